"""How to compute a SELECT from one stream or table from the records of its topic, for programs that read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .schema import Schema
from .specs import RecordSchema
from .steps.source import Source


@dataclass(frozen=True, slots=True)
class SourceReading:
    """`source` decodes the records. `sql`: DuckDB SQL over the relation `source` (columns as in `SourceRelation`); it
    returns `c0`, `c1`, … with the names and types of `schema`, and calls the functions `udfs`. `schemas`: the
    registry's schemas for the subjects of the topic, by id. `changes`: read every change of a table, not its rows.
    """

    source: Source
    sql: str
    schema: Schema
    udfs: tuple[str, ...] = ()
    changes: bool = False
    schemas: Mapping[str, RecordSchema] = field(default_factory=dict)
