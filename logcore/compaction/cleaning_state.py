"""What compaction remembers about a partition from one pass to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

_PASSES_PER_RETENTION: Final = 64


class Pass(NamedTuple):
    """A pass: at `at_ms` everything below `end_offset` had been cleaned."""

    end_offset: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class CleaningState:
    """Below `cleaned_to` each key occurred once, except for records that must be kept for some time.

    Invariant: `passes` ascend in both offset and time. A tombstone was first cleaned in the first pass that ends after
    it; its retention begins then. Below `removed_below` the tombstones with expired retention have been removed.
    """

    cleaned_to: int = 0
    passes: tuple[Pass, ...] = ()
    removed_below: int = 0

    def after(self, end_offset: int, now_ms: int, retention_ms: int, removed_below: int) -> CleaningState:
        """The state after one more pass. Only a few passes are remembered. Others are merged, and their tombstones are
        kept until the time of the last one of them."""
        passes = list(self.passes)
        floor = self.removable_below(now_ms, retention_ms)
        while len(passes) > 1 and passes[1].end_offset <= floor:
            passes.pop(0)
        new = Pass(max(end_offset, self.cleaned_to), max(now_ms, passes[-1].at_ms if passes else now_ms))
        if len(passes) > 1 and new.at_ms - passes[-2].at_ms < retention_ms // _PASSES_PER_RETENTION:
            passes.pop()
        if not passes or new.end_offset > passes[-1].end_offset:
            passes.append(new)
        return CleaningState(new.end_offset, tuple(passes), removed_below)

    def removable_below(self, now_ms: int, retention_ms: int) -> int:
        """Tombstones and markers below this offset have been kept for long enough."""
        return max((old.end_offset for old in self.passes if old.at_ms + retention_ms <= now_ms), default=0)

    def to_json(self) -> Any:
        return {"cleaned_to": self.cleaned_to, "passes": self.passes, "removed_below": self.removed_below}

    @classmethod
    def from_json(cls, content: Any) -> CleaningState:
        if content is None:
            return cls()
        return cls(
            content["cleaned_to"], tuple(Pass(*fields) for fields in content["passes"]), content["removed_below"]
        )
