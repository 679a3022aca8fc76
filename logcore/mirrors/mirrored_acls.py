"""The ACLs of mirrored topics, as MirrorMaker 2 copies them: it adds them here, and never deletes one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import structlog

from millstream.errors import LogError

from ..errors import LogClosed, LogUnavailable, NotNow
from ..protocol.security.acl_bindings import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from .mirror_source import MirrorSource
from .mirror_target import MirrorLog

_TOGETHER: Final = 1_000
_OF_TOPICS: Final = AclFilter(AclResource.TOPIC)
_PASSING: Final = (LogClosed, LogUnavailable, NotNow)
_log = structlog.get_logger("millstream.connect")


class MirroredAcls:
    """State: the ACLs that are here because of this mirror, what they came from, and what was last logged."""

    def __init__(self, log: MirrorLog, source: MirrorSource, mirror: str, *, writable: bool) -> None:
        """In: `writable`: who may write at the source may write the copy, once the mirror lets go of it; else never."""
        self._log, self._source, self._mirror, self._writable = log, source, mirror, writable
        self._made = frozenset[AclBinding]()
        self._came_from: tuple[frozenset[AclBinding], Mapping[str, str]] = frozenset(), {}
        self._said = ""

    def copy(self, names: Mapping[str, str]) -> None:
        """In: `names`: those here of the source's topics. A source or a log that has no ACLs is no error: it is logged
        once. Raises errors that pass."""
        try:
            there = frozenset(self._source.acls.describe(_OF_TOPICS))
            if self._came_from == (there, names):
                return
            new = sorted(frozenset(self._wanted(there, names)) - self._made)[:_TOGETHER]
            failed = self._log.cluster.acls.create(new) if new else {}
        except _PASSING:
            raise
        except LogError as error:
            self._say(error)
            return
        self._made |= {binding for binding in new if binding not in failed}
        if len(new) < _TOGETHER:
            self._came_from = there, dict(names)
        for error in failed.values():
            self._say(error)

    def _wanted(self, there: Iterable[AclBinding], names: Mapping[str, str]) -> Iterator[AclBinding]:
        """One for each topic: a pattern would be about topics here that are not mirrored, too."""
        for binding in there:
            for name, here in names.items():
                if binding.fits(name):
                    for operation in self._operations(binding):
                        yield binding._replace(name=here, pattern=AclPattern.LITERAL, operation=operation)

    def _operations(self, binding: AclBinding) -> tuple[AclOperation, ...]:
        if binding.permission is AclPermission.DENY:
            return (binding.operation,)
        match binding.operation:
            case AclOperation.ALL:
                return (AclOperation.READ, AclOperation.WRITE) if self._writable else (AclOperation.READ,)
            case AclOperation.WRITE:
                return (AclOperation.WRITE,) if self._writable else ()
            case other:
                return (other,)

    def _say(self, error: LogError) -> None:
        if error.message != self._said:
            self._said = error.message
            _log.warning("acls are not copied", mirror=self._mirror, reason=error.message)
