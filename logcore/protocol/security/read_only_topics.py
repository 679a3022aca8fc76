"""Topics that a mirror writes are read-only for clients: they cannot delete records, add records, or name a mirror."""

from __future__ import annotations

from collections.abc import Mapping

from ...topic_settings import OF_MIRRORS, settings_of
from ..served_log import ServedLog
from .access import NotAllowed
from .peer import Peer


def check_not_mirrored(log: ServedLog, topic: str, peer: Peer) -> None:
    """Raises `ReadOnlyTopic`."""
    found = None if peer.trusted else log.topic(topic)
    if found is not None:
        settings_of(found.config).check_writer(topic, None)


def check_no_mirror_named(before: Mapping[str, str], after: Mapping[str, str], peer: Peer) -> None:
    """Raises `NotAllowed`."""
    for name in OF_MIRRORS:
        if not peer.trusted and before.get(name) != after.get(name):
            raise NotAllowed(f"{name} is set by CREATE MIRROR and PROMOTE MIRROR, and by nobody else")
