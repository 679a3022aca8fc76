"""Why a step emits nothing: its figures, and what the step concludes from them.

`server/insight/stall.py` does this for a whole query, with its topics and its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason, or something that is as it should be (`blocks` is False). `figures`: the numbers in the message."""

    code: str
    message: str
    hint: str = ""
    blocks: bool = True
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OperatorSeen:
    """The counts of the operator that computes a step, since the query started here.

    `given`: rows that its input steps emitted, by id. `kept`: rows in the query's stores, by name; `state_known`:
    whether they could be counted.
    """

    rows_in: int
    rows_out: int
    late_rows: int
    given: Mapping[str, int]
    kept: Mapping[str, int]
    state_known: bool


def counted(count: int, one: str, many: str = "") -> str:
    """
    >>> counted(1, "row"), counted(2, "row"), counted(1, "group waits", "groups wait")
    ('1 row', '2 rows', '1 group waits')
    """
    return f"{count} {one if count == 1 else many or one + 's'}"
