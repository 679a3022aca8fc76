"""Messages and fields that came with a version of the cluster after the first. They are not sent to older nodes.

A new field is the last one and has a default, so a node that does not know it works without it. If an older node could
not work without it, it is a message of a new kind instead, sent only once the cluster has its version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Final

from ..cluster_version import VERSIONS
from ..controller.controller_messages import BrokerHeartbeat, RaiseVersion
from ..controller.metadata_records import VersionRaised
from ..controller.operations_messages import BrokerSeen
from ..machine_messages import Message
from ..replica.replica_messages import Produce
from ..shards import share_messages


def _kinds_of(module: ModuleType) -> Iterator[type[object]]:
    for kind in vars(module).values():
        if isinstance(kind, type) and kind.__module__ == module.__name__:
            yield kind


KINDS: Final[Mapping[type[object], int]] = {
    RaiseVersion: 2,
    VersionRaised: 2,
    **dict.fromkeys(_kinds_of(share_messages), 2),
}
"""For each newer kind of message or record, the version that introduced it."""

FIELDS: Final[Mapping[type[Message | BrokerSeen | Produce], Mapping[str, int]]] = {
    BrokerHeartbeat: {"newest_version": 2},
    BrokerSeen: {"newest_version": 2},
    Produce: {"base_offset": 2},  # only sent to a leader in the same process
}
"""The same for newer fields of older kinds."""

_COUNTS: Final[Mapping[type[object], Mapping[int, int]]] = {
    kind: {
        version: sum(fields.get(name, 1) <= version for name in kind._fields)
        for version in range(VERSIONS.oldest, VERSIONS.newest)
    }
    for kind, fields in FIELDS.items()
}


class Unspoken(TypeError):
    """The other node's release does not know the message."""


def fields_spoken(value: tuple[object, ...], version: int) -> Sequence[object]:
    """The fields of a message, or of a part of one, for a node that speaks this version. Raises `Unspoken`."""
    kind = value.__class__
    if KINDS.get(kind, 1) > version:
        raise Unspoken(f"{kind.__name__} came with version {KINDS[kind]} of the cluster, and {version} is spoken here")
    counts = _COUNTS.get(kind)
    return value if counts is None else value[: counts[version]]
