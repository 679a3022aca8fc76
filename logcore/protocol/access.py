"""Who may do what. There is one rule: topics that Millstream keeps for itself are for its own processes."""

from __future__ import annotations

from millstream.errors import LogError

from ..topic_rules import belongs_to_millstream
from .peer import Peer


class NotAllowed(LogError):
    """A client wants to change a topic that belongs to Millstream."""

    code = "NOT_ALLOWED"


def check_writable(peer: Peer, topic: str) -> None:
    """Raises `NotAllowed`."""
    if belongs_to_millstream(topic) and not peer.trusted:
        raise NotAllowed(f'topic "{topic}" belongs to Millstream: other clients can read it, but not write to it')


def check_administrable(peer: Peer, topic: str) -> None:
    """The same for creating, changing and deleting. Raises `NotAllowed`."""
    if belongs_to_millstream(topic) and not peer.trusted:
        raise NotAllowed(f'topic "{topic}" belongs to Millstream: other clients cannot create, change or delete it')
