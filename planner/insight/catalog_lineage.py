"""Column lineage through the queries and topics of a catalog: from a column back to the topics that it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..catalog import Catalog, PersistentQuery
from ..source_info import SourceInfo
from ..steps.sink import Sink
from .lineage import QueryLineage, trace
from .lineage_rows import Directness, Influence, LineageField, Subtype, stronger


@dataclass(frozen=True, slots=True)
class LineageEdge:
    """One step back: `output` comes from `input`. `query_id`: None if both are columns of one topic.

    `description`: the expression, condition or key. `topic`: that of the input. `depth`: 1 for the first step from the
    column asked for.
    """

    output: LineageField
    input: LineageField
    kind: Directness
    subtype: Subtype
    description: str
    query_id: str | None
    topic: str
    depth: int


@dataclass(frozen=True, slots=True)
class _Way:
    """The strongest kind of influence on the path from a column to the one asked for."""

    kind: Directness
    subtype: Subtype
    description: str

    def after(self, influence: Influence) -> _Way:
        if self.kind == "INDIRECT":
            return self
        if influence.kind == "INDIRECT":
            return _Way("INDIRECT", influence.subtype, influence.description)
        subtype = stronger(self.subtype, influence.subtype)
        return _Way("DIRECT", subtype, influence.description if self.subtype == "IDENTITY" else self.description)


class CatalogLineage:
    """Answers questions about one catalog. Each plan is traced only once."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._traced: dict[str, QueryLineage] = {}

    def edges(self, source: SourceInfo, column: str | None = None) -> list[LineageEdge]:
        """Every step from these columns back to columns that no query writes, nearest first. For all columns of a
        source, what influences all of its rows is listed once, for the column `*`."""
        columns = [each.name for each in source.schema] if column is None else [column]
        waiting = [(LineageField(source.name, name), 1) for name in columns]
        seen, found = {field for field, _ in waiting}, dict[LineageEdge, None]()
        while waiting:
            asked, depth = waiting.pop(0)
            for query_id, influence in self._influences(asked):
                output = asked
                topic = self._topic(influence.field.source)
                if column is None and query_id is not None and influence in self._traced[query_id].rows:
                    output = LineageField(output.source, "*")
                found[
                    LineageEdge(
                        output, influence.field, influence.kind, influence.subtype, influence.description, query_id,
                        topic, depth,
                    )
                ] = None  # fmt: skip
                if influence.field not in seen:
                    seen.add(influence.field)
                    waiting.append((influence.field, depth + 1))
        return list(found)

    def roots(self, source: SourceInfo, column: str) -> list[Influence]:
        """The columns that the column comes from through any number of steps, and that no query writes; DIRECT ones
        first."""
        found: dict[tuple[LineageField, Directness, Subtype], Influence] = {}
        waiting = [(LineageField(source.name, column), _Way("DIRECT", "IDENTITY", ""))]
        seen = {(waiting[0][0], waiting[0][1].kind)}
        while waiting:
            field, way = waiting.pop(0)
            steps = [(influence.field, way.after(influence)) for _, influence in self._influences(field)]
            if not steps:
                found.setdefault(
                    (field, way.kind, way.subtype), Influence(field, way.kind, way.subtype, way.description)
                )
            for step in steps:
                if (step[0], step[1].kind) not in seen:
                    seen.add((step[0], step[1].kind))
                    waiting.append(step)
        return sorted(found.values(), key=lambda each: (each.kind, each.field, each.subtype))

    def facet(self, source: SourceInfo, column: str | None = None) -> dict[str, Any]:
        """The columnLineage facet of OpenLineage: the input fields of each column, which are columns of topics."""
        columns = [each.name for each in source.schema] if column is None else [column]
        return {"fields": {name: {"inputFields": self._input_fields(self.roots(source, name))} for name in columns}}

    def _input_fields(self, influences: Iterable[Influence]) -> list[dict[str, Any]]:
        fields: dict[LineageField, list[dict[str, Any]]] = {}
        for each in influences:
            transformation = {"type": each.kind, "subtype": each.subtype, "description": each.description}
            fields.setdefault(each.field, []).append({**transformation, "masking": False})
        return [
            {"namespace": "kafka", "name": self._topic(field.source), "field": field.column, "transformations": ways}
            for field, ways in fields.items()
        ]

    def _influences(self, field: LineageField) -> Iterator[tuple[str | None, Influence]]:
        """What the column comes from in one step, through the queries that write its topic."""
        source = self._catalog.sources.get(field.source)
        if source is None:
            return
        for query in self._writers(source):
            lineage = self._trace(query)
            if query.sink != source.name:  # another stream on the same topic: its columns are those of the same name
                other = LineageField(query.sink, field.column)
                if field.column in lineage.columns:
                    yield None, Influence(other, "DIRECT", "IDENTITY", f"topic {source.topic}")
                continue
            own = lineage.columns.get(field.column, ())
            for influence in (*own, *lineage.rows):
                yield query.id, influence

    def _writers(self, source: SourceInfo) -> list[PersistentQuery]:
        own = self._catalog.writers_of(source.name)
        if own:
            return list(own)
        return [
            query
            for query in self._catalog.queries.values()
            if isinstance(query.plan.root, Sink) and query.plan.root.topic == source.topic
        ]

    def _trace(self, query: PersistentQuery) -> QueryLineage:
        if query.id not in self._traced:
            traced = trace(query.plan)
            sink = self._catalog.sources.get(query.sink)
            # Columns of INSERT INTO may have other names than those of its target: they are matched by position.
            if sink is not None and isinstance(query.plan.root, Sink):
                names = {
                    written.name: known.name
                    for written, known in zip(query.plan.root.schema, sink.schema, strict=False)
                    if written.name not in {column.name for column in sink.schema}
                }
                columns = {names.get(name, name): influences for name, influences in traced.columns.items()}
                traced = replace(traced, columns=columns)
            self._traced[query.id] = traced
        return self._traced[query.id]

    def _topic(self, name: str) -> str:
        source = self._catalog.sources.get(name)
        return name if source is None else source.topic
