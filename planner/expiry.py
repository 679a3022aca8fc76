"""TTL of a table that a query makes: which step forgets its rows."""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import InvalidProperty

from .physical import Aggregate, Expire, Filter, Project, Step, schema_of


def check_ttl(kind: str, ttl_ms: int | None) -> None:
    """Raises `InvalidProperty` for a stream."""
    if ttl_ms is not None and kind != "TABLE":
        raise InvalidProperty(
            "TTL is a property of tables: a stream's rows are not updated.",
            hint="How long a topic keeps a stream's records is its RETENTION_MS.",
        )


def with_ttl(step: Step, ttl_ms: int) -> Step:
    """The steps of a table without the rows that were not updated for so long.

    An aggregation right below forgets its groups itself, so that they begin anew. Windows end without it: their rows
    go, once nothing can change them any more.
    """
    aggregate = _aggregate_of(step)
    if aggregate is not None and aggregate.window is None:
        return _replaced(step, aggregate, replace(aggregate, ttl_ms=ttl_ms))
    if aggregate is not None and aggregate.window is not None:
        open_ms = aggregate.window.size_ms + aggregate.window.grace_ms
        if ttl_ms < open_ms:
            raise InvalidProperty(
                f"TTL is shorter than a window stays open ({open_ms} ms, its size and grace period).",
                hint="Give the window a shorter GRACE PERIOD, or the table a longer TTL.",
            )
    return Expire("expire", step, ttl_ms, schema_of(step))


def _aggregate_of(step: Step) -> Aggregate | None:
    while isinstance(step, Project | Filter):
        step = step.input
    return step if isinstance(step, Aggregate) else None


def _replaced(step: Step, old: Step, new: Step) -> Step:
    if step is old:
        return new
    assert isinstance(step, Project | Filter)
    return replace(step, input=_replaced(step.input, old, new))
