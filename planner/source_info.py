"""A stream or table of the catalog, as statements and plans see it."""

from __future__ import annotations

from dataclasses import dataclass

from .schema import Schema
from .specs import FormatSpec, KeyWindow, Kind


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """A stream or table.

    `timestamp_column`, `timestamp_format`: the WITH properties. `created_by`: the id of the query that CREATE … AS
    started. `read_only`: CREATE SOURCE. `partition_count`: of its topic.
    """

    name: str
    kind: Kind
    topic: str
    schema: Schema
    key_format: FormatSpec
    value_format: FormatSpec
    key_window: KeyWindow | None = None
    timestamp_column: str | None = None
    timestamp_format: str | None = None
    partition_count: int = 1
    read_only: bool = False
    created_by: str | None = None
    statement: str = ""
    key_features: tuple[str, ...] = ()  # WRAP_SINGLES / UNWRAP_SINGLES, as set by WITH
    value_features: tuple[str, ...] = ()
    ttl_ms: int | None = None  # for a table: rows that are not updated for this long are deleted
