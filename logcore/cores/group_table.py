"""The common part of consumer groups (KIP-848) and share groups (KIP-932): a table of groups, and the records about
them that are to be written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, Protocol, TypeVar

from .group_records import GroupKey, GroupRecord, GroupValue


class TabledGroup(Protocol):
    """`saved`: the group's records as written."""

    @property
    def members(self) -> Collection[str]: ...

    @property
    def saved(self) -> Mapping[GroupKey, GroupValue]: ...


_Group = TypeVar("_Group", bound=TabledGroup)


class GroupTable(Generic[_Group]):
    """State: the groups by name; a group without members stays until it is forgotten. `take_records` returns the
    records to write, in order; answers may be sent once those records are durable."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._records: list[GroupRecord] = []

    def take_records(self) -> list[GroupRecord]:
        """The records to write now, in this order."""
        records, self._records = self._records, []
        return records

    def forget(self, name: str) -> bool:
        """Removes a group without members; False if it has members."""
        group = self._groups.get(name)
        if group is None:
            return True
        if group.members:
            return False
        self._records += [GroupRecord(key, None) for key in group.saved]
        del self._groups[name]
        return True

    def has(self, group: str) -> bool:
        return group in self._groups

    def is_in_use(self, group: str) -> bool:
        """Whether it has members."""
        return self.has(group) and bool(self._groups[group].members)

    def names(self) -> list[str]:
        return list(self._groups)
