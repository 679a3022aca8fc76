"""The metadata quorum in the form for Kafka's clients."""

from __future__ import annotations

from collections.abc import Iterable

from ..protocol.layout import NodeAddress, QuorumLayout, QuorumMember
from ..replication.controller.metadata_image import MetadataImage
from ..replication.controller.operations_messages import MemberLag, QuorumDescription
from ..replication.machine import NodeId
from .peers import address_of


def quorum_layout(found: QuorumDescription, now_ms: int) -> QuorumLayout:
    """In: `now_ms`: the time of day. Indexes of the metadata log begin at 1, offsets at 0."""
    heard = {lag.node: lag for lag in found.members}

    def members(nodes: Iterable[NodeId]) -> list[QuorumMember]:
        return [_member(found, node, heard.get(node), now_ms) for node in nodes]

    return QuorumLayout(
        found.controller,
        found.term,
        found.commit,
        members(found.voters.voters),
        members(found.voters.learners),
        [address for node in found.voters.members() if (address := _address(found.image, node)) is not None],
    )


def _member(found: QuorumDescription, node: NodeId, lag: MemberLag | None, now_ms: int) -> QuorumMember:
    if node == found.controller:
        return QuorumMember(node, found.last_index, now_ms, now_ms)
    if lag is None or lag.index < 0:
        return QuorumMember(node, -1)
    heard_ms = now_ms - lag.heard_ms_ago
    return QuorumMember(node, lag.index, heard_ms, heard_ms if lag.index >= found.commit else -1)


def _address(image: MetadataImage, node: NodeId) -> NodeAddress | None:
    known = image.brokers.get(node)
    where = (known.address("node") if known is not None else None) or image.addresses.get(node)
    if where is None:
        return None
    address = address_of(where)
    return NodeAddress(node, address.host, address.port)
