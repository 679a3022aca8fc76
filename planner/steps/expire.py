"""TTL of a table that a query makes."""

from __future__ import annotations

from dataclasses import dataclass

from ..insight.lineage_rows import LineageRows
from ..schema import Schema
from .step import NOTHING, Step, Text, schema_of


@dataclass(frozen=True, slots=True)
class Expire(Step):
    """Deletes the rows of a table that were not updated for `ttl_ms`.

    In: a table's changes. Out: the same, and at -1 each row whose rowtime lies so far behind the stream time of its
    task. A row that is too old when it comes deletes the one before it.
    """

    input: Step
    ttl_ms: int
    schema: Schema

    @property
    def stateful(self) -> bool:
        return True

    @property
    def state_identity(self) -> Step | None:
        """Its rows hold keys and times only, so further columns do not matter."""
        return Expire(self.id, NOTHING, self.ttl_ms, Schema(()))

    def describe(self, text: Text = str) -> str:
        return f"EXPIRE rows that are not updated for {self.ttl_ms} ms"

    def lineage(self, *below: LineageRows) -> LineageRows:
        return below[0]


def with_ttl(step: Step, ttl_ms: int) -> Step:
    """The steps of a table without the rows that were not updated for so long.

    An aggregation right below forgets its groups itself, so that they begin anew. Windows end without it: their rows
    go, once nothing can change them any more.
    """
    return step.forgetting(ttl_ms) or Expire("expire", step, ttl_ms, schema_of(step))
