"""Limits how many groups, clients and users may have settings of their own, and the length of their names.

All settings are in the metadata, which every node of a cluster has in memory, so a client that sets many would slow
down all others. Apache Kafka has no such limit; it answers POLICY_VIOLATION to what an operator does not allow.
"""

from __future__ import annotations

from typing import Final

from millstream.errors import LogError

from ..log_settings import CLIENT, GROUP, USER, Changes
from .served_log import ServedLog

RESOURCES_MAX: Final = 2_000
"""Of each kind."""
NAME_BYTES_MAX: Final = 255
"""Of a group, a client id or a user."""
_KINDS: Final = (GROUP, CLIENT, USER)


class TooManySettings(LogError):
    """More groups, clients or users than allowed would have settings."""

    code = "TOO_MANY_SETTINGS"


def check_room(log: ServedLog, resource: str, changes: Changes) -> None:
    """Checks `changes` of a resource before they are made. Removing settings is always allowed. Raises
    `TooManySettings`.

    Concurrent requests may exceed the limit by their number.
    """
    kind = next((kind for kind in _KINDS if resource.startswith(kind)), None)
    if kind is None or all(value is None for value in changes.values()):
        return
    known = list(log.resources(kind))
    if len(known) >= RESOURCES_MAX and resource not in known:
        what = f"{RESOURCES_MAX} {kind.removesuffix(':')}s have settings of their own, and no more may"
        raise TooManySettings(what, hint="Take settings back that nobody needs, or set the default for all others.")


def is_too_long(name: str | None) -> bool:
    return name is not None and len(name.encode()) > NAME_BYTES_MAX
