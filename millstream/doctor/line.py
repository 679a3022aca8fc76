"""A line of output of `millstream doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    check: str
    level: Level
    message: str
    hint: str = ""
