"""Who may do what: users what their roles say; and what Millstream keeps for itself is for its own processes."""

from __future__ import annotations

from millstream.errors import LogError

from ..topic_rules import belongs_to_millstream
from .peer import Peer
from .security import Right


class NotAllowed(LogError):
    """A client wants something that it has no right to."""

    code = "NOT_ALLOWED"


class OnlyForAdministrators(NotAllowed):
    """The same, of something that is no single topic's."""

    code = "ONLY_FOR_ADMINISTRATORS"


def check_writable(peer: Peer, topic: str) -> None:
    """Raises `NotAllowed`."""
    if belongs_to_millstream(topic) and not peer.trusted:
        raise NotAllowed(f'topic "{topic}" belongs to Millstream: other clients can read it, but not write to it')
    _check(peer, "insert", topic)


def check_readable(peer: Peer, topic: str) -> None:
    """Raises `NotAllowed`."""
    _check(peer, "read", topic)


def check_administrable(peer: Peer, topic: str) -> None:
    """For creating, changing and deleting. Raises `NotAllowed`."""
    if belongs_to_millstream(topic) and not peer.trusted:
        raise NotAllowed(f'topic "{topic}" belongs to Millstream: other clients cannot create, change or delete it')
    _check(peer, "ddl", topic)


def check_visible(peer: Peer, topic: str) -> None:
    """For looking at a topic, but not into it. Raises `NotAllowed`."""
    if not may_see(peer, topic):
        raise NotAllowed(f'there is no right on topic "{topic}"')


def check_administrator(peer: Peer) -> None:
    """Raises `OnlyForAdministrators`."""
    if not peer.may("admin", "*"):
        raise OnlyForAdministrators("this is for administrators")


def may_see(peer: Peer, topic: str) -> bool:
    return peer.may("read", topic) or peer.may("insert", topic) or peer.may("ddl", topic)


def _check(peer: Peer, verb: Right, topic: str) -> None:
    if not peer.may(verb, topic):
        raise NotAllowed(f'there is no right "{verb}" on topic "{topic}"')
