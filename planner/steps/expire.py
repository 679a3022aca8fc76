"""The TTL of a table that a query creates."""

from __future__ import annotations

from dataclasses import dataclass

from ..insight.lineage_rows import LineageRows
from ..schema import Schema
from .step import NOTHING, Step, Text, schema_of


@dataclass(frozen=True, slots=True)
class Expire(Step):
    """Deletes the rows of a table that were not updated for `ttl_ms`.

    In: a table's changes. Out: the same changes, and at -1 each row whose rowtime is this far behind the stream time of
    its task. A row that is too old on arrival deletes the previous one.
    """

    input: Step
    ttl_ms: int
    schema: Schema

    @property
    def stateful(self) -> bool:
        return True

    @property
    def state_identity(self) -> Step | None:
        """The state has only keys and times, so other columns do not matter."""
        return Expire(self.id, NOTHING, self.ttl_ms, Schema(()))

    def describe(self, text: Text = str) -> str:
        return f"EXPIRE rows that are not updated for {self.ttl_ms} ms"

    def lineage(self, *below: LineageRows) -> LineageRows:
        return below[0]


def with_ttl(step: Step, ttl_ms: int) -> Step:
    """The steps of a table, extended to delete rows that were not updated for `ttl_ms`.

    An aggregation directly below deletes its groups itself, so that they start again. Windows do not need that: their
    rows are deleted once nothing can change them.
    """
    return step.forgetting(ttl_ms) or Expire("expire", step, ttl_ms, schema_of(step))
