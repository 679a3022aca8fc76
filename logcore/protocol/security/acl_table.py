"""All ACLs of a log, and what they say about an operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from ...log_settings import ACLS
from ..served_log import ServedLog
from .acl_bindings import (
    EVERY,
    EVERYBODY,
    AclBinding,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    binding_of,
    principal_of,
)

_Place = tuple[int, str, str]  # type, principal, name or prefix; enums are slow to hash


class AclTable:
    """Immutable. To decide takes as long as there are ACLs of the principal that fit the name, and a look for each
    length of a prefix."""

    def __init__(self, bindings: Iterable[AclBinding] = ()) -> None:
        self.bindings: Final = frozenset(bindings)
        self._literal: dict[_Place, list[AclBinding]] = {}
        self._prefixed: dict[_Place, list[AclBinding]] = {}
        lengths: set[int] = set()
        for binding in self.bindings:
            prefixed = binding.pattern is AclPattern.PREFIXED
            place = (int(binding.resource), binding.principal, binding.name)
            (self._prefixed if prefixed else self._literal).setdefault(place, []).append(binding)
            if prefixed:
                lengths.add(len(binding.name))
        self._lengths = sorted(lengths)

    def decide(
        self, user: str, host: str | None, operation: AclOperation, resource: AclResource, name: str
    ) -> AclPermission | None:
        """DENY, if one ACL denies it, else ALLOW, if one allows it; None if no ACL is about it.

        In: `host`: the address that the user's request comes from. None if that is unknown: then a DENY for one host
        counts, and an ALLOW for one host does not.
        """
        allowed = False
        for binding in self._about(principal_of(user), int(resource), name) if self.bindings else ():
            if not binding.covers(operation):
                continue
            if binding.permission is AclPermission.DENY:
                if host is None or binding.host in (EVERY, host):
                    return AclPermission.DENY
            elif binding.host in (EVERY, host):
                allowed = True
        return AclPermission.ALLOW if allowed else None

    def _about(self, principal: str, resource: int, name: str) -> Iterator[AclBinding]:
        for who in (principal, EVERYBODY):
            for literal in (name, EVERY) if name != EVERY else (EVERY,):
                yield from self._literal.get((resource, who, literal), ())
            for length in self._lengths:
                if length > len(name):
                    break
                yield from self._prefixed.get((resource, who, name[:length]), ())


NO_ACLS: Final = AclTable()


class KeptAcls:
    """The ACLs that are in force at this node. Any thread may call it.

    State: where they are kept, once that is known; and the last table, with the settings that it was read from.
    """

    def __init__(self) -> None:
        self._settings: Callable[[], Mapping[str, str]] | None = None
        self._known: tuple[Mapping[str, str], AclTable] = ({}, NO_ACLS)

    def follow(self, log: ServedLog) -> None:
        """From now on, the ACLs are those of this log."""
        self._settings = lambda: log.settings(ACLS)

    @property
    def table(self) -> AclTable:
        settings = self._settings() if self._settings is not None else None
        if not settings:
            return NO_ACLS
        read_from, table = self._known
        if read_from is not settings:  # settings that do not change stay the same object
            table = table_of(settings)
            self._known = settings, table
        return table


def table_of(settings: Mapping[str, str]) -> AclTable:
    return AclTable(map(binding_of, settings))
