"""What EXPLAIN STALL, SHOW LINEAGE and SHOW GRAPH answer; ksqlDB has none of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .entities import Entity


@dataclass(frozen=True, slots=True)
class CauseLine:
    """`blocks`: whether it keeps results from coming. `figures`: what the message is about, for programs."""

    code: str
    message: str
    hint: str
    blocks: bool
    figures: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStall(Entity):
    """EXPLAIN STALL; what blocks stands first."""

    type_name = "query_stall"

    query_id: str
    state: str
    stalled: bool
    causes: list[CauseLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorStall(Entity):
    """EXPLAIN STALL CONNECTOR; what blocks stands first."""

    type_name = "connector_stall"

    connector: str
    state: str
    stalled: bool
    causes: list[CauseLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStall(Entity):
    """EXPLAIN STALL MIRROR; what blocks stands first."""

    type_name = "mirror_stall"

    mirror: str
    state: str
    stalled: bool
    causes: list[CauseLine]


@dataclass(frozen=True, slots=True)
class InfluenceLine:
    """One step back from `output` to `input`, both SOURCE.COLUMN. `query_id` None: both lie in one topic."""

    output: str
    input: str
    type: str
    subtype: str
    description: str
    query_id: str | None
    topic: str
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageShown(Entity):
    """SHOW LINEAGE. `column_lineage`: the facet of this name in OpenLineage, down to columns of topics."""

    type_name = "lineage"

    source: str
    column: str | None
    lineage: list[InfluenceLine]
    column_lineage: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphShown(Entity):
    """SHOW GRAPH. `text`: in the format that was asked for; `nodes` and `edges` for who draws it otherwise."""

    type_name = "graph"

    of: str | None
    format: str
    text: str
    nodes: list[Any]
    edges: list[Any]
