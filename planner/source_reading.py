"""What a SELECT from one stream or table asks of the records of its topic, for programs that read them themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .schema import Schema
from .specs import RecordSchema
from .steps.source import Source


@dataclass(frozen=True, slots=True)
class SourceReading:
    """`source` decodes the records. `sql`: DuckDB's, over the relation `source` (the columns are those of
    `SourceRelation`), gives `c0`, `c1`, … with the names and types of `schema`, and calls the functions `udfs`.
    `schemas`: of the registry, by id, of the subjects of the topic. `changes`: of a table every change, not its rows.
    """

    source: Source
    sql: str
    schema: Schema
    udfs: tuple[str, ...] = ()
    changes: bool = False
    schemas: Mapping[str, RecordSchema] = field(default_factory=dict)
