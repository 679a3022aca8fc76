"""Which replica a client should read from: one on its own rack, if it has what the client wants (KIP-392)."""

from __future__ import annotations

from collections.abc import Callable

from ..controller.metadata_image import MetadataImage
from ..controller.metadata_records import PartitionState
from ..machine import NodeId


def nearest_replica(
    image: MetadataImage, state: PartitionState, rack: str, offset: int, acknowledged: Callable[[NodeId], int]
) -> NodeId | None:
    """None: the leader is the one to read from.

    In: `rack` of the client, `offset` that it wants to read, `acknowledged`: up to where the leader knows that a
    follower has everything. The one that has most is chosen: who reads follows it closely.
    """
    if state.leader is None or not rack or _is_on(image, state.leader, rack):
        return None
    near = [
        node
        for node in state.isr
        if node != state.leader and image.is_live(node) and _is_on(image, node, rack) and acknowledged(node) >= offset
    ]
    return max(near, key=lambda node: (acknowledged(node), -node), default=None)


def _is_on(image: MetadataImage, node: NodeId, rack: str) -> bool:
    broker = image.brokers.get(node)
    return broker is not None and broker.rack == rack
