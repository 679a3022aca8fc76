"""Joins two streams WITHIN a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..insight.answer_times import duration_text
from ..insight.lineage_rows import LineageRows
from ..insight.stall import Cause, OperatorSeen, counted
from ..lowering import Lowering
from ..schema import Schema
from ..specs import JoinKind, Kind
from .join import JoinStep, LogicalJoin, Side, pairs
from .step import Step, Text

UNBOUNDED_MS = 1 << 60  # larger than the distance of any two times, and sums of it fit 64 bits


@dataclass(frozen=True, slots=True)
class LogicalStreamStreamJoin(LogicalJoin):
    """A left row at t with the right rows in [t - before, t + after]. `grace_ms` None: rows without a partner are
    emitted at once."""

    before_ms: int
    after_ms: int
    grace_ms: int | None = None

    @property
    def keeps_sides(self) -> bool:
        """Only for an unbounded join. Otherwise stream time decides which rows the join still stores, and a row that is
        filtered out after the join must advance it."""
        unbounded = (self.before_ms, self.after_ms) == (UNBOUNDED_MS, UNBOUNDED_MS)
        return self.join == "INNER" and self.key_window is None and unbounded

    def lower(self, lowering: Lowering) -> StreamStreamJoin:
        left, right = self.left.lower(lowering), self.right.lower(lowering)
        times = self.before_ms, self.after_ms, self.grace_ms
        schemas = self.schema, self.left.schema, self.right.schema
        return StreamStreamJoin(lowering.id("join"), left, right, self.join, *times, *schemas)


@dataclass(frozen=True, slots=True)
class StreamStreamJoin(JoinStep):
    """Each row of one stream joins the other stream's rows of its key that are close enough in time.

    A left row at t joins right rows in [t - before, t + after]; the result's time is the later one. Rows of an outer
    side without a partner are padded with NULL: with `grace_ms` once no partner can come any more (stream time is
    beyond the end of their window plus grace), else at once, even if a partner comes later. UNBOUNDED_MS before and
    after: any distance in time; rows are stored forever.
    Out: the join key, the left value columns, then the right ones. Rows with a null key or value are dropped.
    """

    left: Step
    right: Step
    kind: JoinKind
    before_ms: int
    after_ms: int
    grace_ms: int | None
    schema: Schema
    left_schema: Schema
    right_schema: Schema

    @property
    def gives(self) -> Kind:
        return "STREAM"

    @property
    def passes_stream_time(self) -> bool:
        return False

    @property
    def partner_hint(self) -> str:
        before, after = duration_text(self.before_ms), duration_text(self.after_ms)
        return (
            f"Rows meet within {before} before and {after} after, by their rowtimes, and the keys must be equal to the "
            "letter."
        )

    def stall(self, seen: OperatorSeen, covered: Sequence[Step]) -> Iterator[Cause]:
        """Also reports rows of an outer side that wait until no partner can come any more, and late rows."""
        waiting = sum(rows for store, rows in seen.kept.items() if store.startswith(f"{self.id}.unmatched."))
        if waiting and self.grace_ms is not None:
            reach = duration_text(max(self.before_ms, self.after_ms) + self.grace_ms)
            rows = counted(waiting, "row without a partner waits", "rows without a partner wait")
            yield Cause(
                "ROWS_WAIT_FOR_PARTNER",
                f"{rows} until none can arrive: until stream time is {reach} beyond their time.",
                "Only records advance stream time: send later ones to the same partitions, or shorten WITHIN or GRACE "
                "PERIOD.",
                blocks=not seen.rows_out,
                figures={"step": self.id, "rows": waiting, "graceMs": self.grace_ms},
            )
        if seen.late_rows:
            yield Cause(
                "LATE_ROWS",
                f"{seen.late_rows} of {counted(seen.rows_in, 'row')} came too late for the join: rows of the other "
                "side that could match are no longer stored.",
                "A longer GRACE PERIOD stores rows longer.",
                blocks=seen.late_rows == seen.rows_in,
                figures={"step": self.id, "late": seen.late_rows, "rowsIn": seen.rows_in},
            )
        yield from JoinStep.stall(self, seen, covered)

    def describe(self, text: Text = str) -> str:
        grace = "" if self.grace_ms is None else f", grace {self.grace_ms} ms"
        window = f"within {self.before_ms} ms before and {self.after_ms} ms after{grace}"
        if self.before_ms == UNBOUNDED_MS:
            window = "without limit in time"
        return f"JOIN {self.kind} stream with stream {window} | {self.schema}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        left, right = below
        return pairs(Side(left, self.left_schema), Side(right, self.right_schema), self.kind, timed=True)
