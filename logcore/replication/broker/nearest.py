"""Chooses the replica that a client should read from: one on its own rack that has the wanted records (KIP-392)."""

from __future__ import annotations

from collections.abc import Callable

from ..controller.metadata_image import MetadataImage
from ..controller.metadata_records import PartitionState
from ..machine import NodeId


def nearest_replica(
    image: MetadataImage, state: PartitionState, rack: str, offset: int, acknowledged: Callable[[NodeId], int]
) -> NodeId | None:
    """None: the client should read from the leader.

    In: the client's `rack`; the `offset` that it wants to read; `acknowledged`: the offset below which, as the leader
    knows, a follower has everything. The follower with the highest is chosen, so that the
    reader can follow the leader closely.
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
