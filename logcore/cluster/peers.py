"""The addresses of the other nodes: those in the list that this node started with, until the metadata have others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..replication.controller.metadata_image import MetadataImage
from ..replication.machine import NodeId
from ..replication.node.node_links import PeerAddress

SetPeer = Callable[[NodeId, PeerAddress | None], None]


class PeerFollower:
    """It is called with each new image, and tells the links about nodes that were added, moved or removed.

    In: `listed`: members keep the addresses in the list, unless they are removed.
    """

    def __init__(self, members: Mapping[NodeId, PeerAddress], set_peer: SetPeer, *, listed: bool = False) -> None:
        self._set_peer = set_peer
        self._fixed = dict(members) if listed else {}
        self._told: dict[NodeId, PeerAddress | None] = dict(members)
        self._addresses: Mapping[NodeId, str | None] = {}

    def __call__(self, image: MetadataImage) -> None:
        if image.addresses is self._addresses:
            return
        self._addresses = image.addresses
        for node, text in image.addresses.items():
            address = None if text is None else self._fixed.get(node) or address_of(text)
            if self._told.get(node) != address:
                self._told[node] = address
                self._set_peer(node, address)


def address_of(text: str) -> PeerAddress:
    """
    >>> address_of("[::1]:9093")
    PeerAddress(host='::1', port=9093)
    """
    host, _, port = text.rpartition(":")
    return PeerAddress(host.removeprefix("[").removesuffix("]"), int(port))
