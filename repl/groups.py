"""Shows consumer groups: `millstream group list`, `describe`, `reset-offsets` and `delete`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, Literal

from millstream.errors import LogError

from ..logcore.clients.admin import Admin
from .text.tables import render_table

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}.*")
_DIGITS_MAX: Final = 18  # of an offset
_END: Final[tuple[Literal["earliest"], Literal["latest"]]] = ("earliest", "latest")


class BadTarget(LogError):
    """The new position for the offsets of a group is not an end, an offset, or a time."""

    code = "BAD_TARGET"


def group_table(admin: Admin, width_max: int | None = None) -> list[str]:
    """All groups, as lines of a table."""
    rows = [[group.group, str(group.state), len(group.members), group.protocol] for group in admin.groups()]
    return render_table(["Group", "State", "Members", "Protocol"], rows, width_max)


def group_description(admin: Admin, group: str, width_max: int | None = None) -> list[str]:
    """The position of a group in each partition, and its members. Raises `GroupChangeRefused` if there is no such
    group."""
    described = admin.group(group)
    clients = {member.member_id: f"{member.client_id}@{member.client_host}" for member in described.members}
    rows = [
        [
            position.partition.topic,
            position.partition.partition,
            position.committed_offset,
            position.log_end_offset,
            position.lag,
            position.lead,
            clients.get(position.member_id or "", ""),
        ]
        for position in admin.positions(group)
    ]
    titles = ["Topic", "Partition", "Committed", "Log end", "Lag", "Lead", "Member"]
    head = f"{group}: {described.state}, {len(described.members)} members"
    return [head, *render_table(titles, rows, width_max)]


def reset_offsets(admin: Admin, group: str, topic: str, to: str) -> list[str]:
    """Moves the group to other offsets; returns the new offsets as lines of a table.

    In: `to`: earliest, latest, an offset, or a time such as 2026-01-31 or 2026-01-31T12:00:00Z. Raises `BadTarget`.
    """
    if to in _END:
        offsets = admin.reset_offsets(group, topic, "earliest" if to == "earliest" else "latest")
    elif to.isdecimal() and len(to) <= _DIGITS_MAX:
        offsets = admin.reset_offsets(group, topic, int(to))
    else:
        offsets = admin.reset_offsets(group, topic, _milliseconds(to), by_time=True)
    rows = [[partition.topic, partition.partition, offset] for partition, offset in sorted(offsets.items())]
    return render_table(["Topic", "Partition", "Committed"], rows, None)


def _milliseconds(text: str) -> int:
    try:
        if not _DATE.fullmatch(text):
            raise ValueError
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadTarget(
            f'offsets cannot be set to "{text}"',
            hint="Give earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z.",
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
