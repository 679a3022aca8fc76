"""The graph of a catalog (streams, tables, queries) and that of one query's plan, as nodes and edges.

`graph_text.py` (text, DOT) and `graph_svg.py` draw them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ..catalog import Catalog, PersistentQuery
from ..physical import PhysicalPlan
from ..source_info import SourceInfo
from ..steps.step import walk

NodeKind = Literal["STREAM", "TABLE", "QUERY", "STEP"]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """`lines`: the lines below the title. `state`: that of a query."""

    id: str
    kind: NodeKind
    title: str
    lines: tuple[str, ...] = ()
    state: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """`dashed`: both ends are on one topic, so no query moves rows here."""

    source: str
    target: str
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in the order of their names, or in that of the plan."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[Edge, ...]

    def around(self, ids: Iterable[str]) -> Graph:
        """These nodes, all that they come from, and all that comes from them."""
        kept = set(ids)
        for ahead in (True, False):
            waiting = list(ids)
            while waiting:
                node = waiting.pop()
                for edge in self.edges:
                    near, far = (edge.source, edge.target) if ahead else (edge.target, edge.source)
                    if near == node and far not in kept:
                        kept.add(far)
                        waiting.append(far)
        return Graph(
            tuple(node for node in self.nodes if node.id in kept),
            tuple(edge for edge in self.edges if edge.source in kept and edge.target in kept),
        )


def catalog_graph(catalog: Catalog, states: Mapping[str, str] | None = None) -> Graph:
    """The graph of a catalog. In: `states`: those of queries, by their ids."""
    sources = sorted(catalog.sources.values(), key=lambda source: source.name)
    queries = sorted(catalog.queries.values(), key=lambda query: query.id)
    nodes = [_source_node(source) for source in sources]
    nodes += [_query_node(query, (states or {}).get(query.id, "")) for query in queries]
    edges: dict[Edge, None] = {}
    for query in queries:
        for name in query.sources:
            edges[Edge(_source_id(name), _query_id(query.id))] = None
        edges[Edge(_query_id(query.id), _source_id(query.sink))] = None
    edges |= dict.fromkeys(_shared_topics(sources, queries))
    known = {node.id for node in nodes}
    return Graph(tuple(nodes), tuple(edge for edge in edges if {edge.source, edge.target} <= known))


def _shared_topics(sources: list[SourceInfo], queries: list[PersistentQuery]) -> list[Edge]:
    """Edges from a stream that a query writes to other streams and tables on its topic."""
    written = {query.sink for query in queries}
    return [
        Edge(_source_id(writer.name), _source_id(reader.name), dashed=True)
        for writer in sources
        for reader in sources
        if writer.name in written and reader.name not in written and writer.topic == reader.topic
    ]


def graph_of(catalog: Catalog, name: str, states: Mapping[str, str] | None = None) -> Graph | None:
    """The plan of a query, or what surrounds a stream, table or topic; None if nothing has this name."""
    for written in (name, name.upper()):
        if written in catalog.queries:
            return plan_graph(catalog.queries[written].plan)
    found = [
        _source_id(source.name)
        for source in catalog.sources.values()
        if source.name in (name, name.upper()) or source.topic == name
    ]
    return catalog_graph(catalog, states).around(found) if found else None


def plan_graph(plan: PhysicalPlan, notes: Mapping[str, str] | None = None) -> Graph:
    """The steps of a plan, each with the `notes` for its id."""
    steps = walk(plan.root)
    nodes: list[GraphNode] = []
    for step in steps:
        title, _, rest = step.describe_readably().partition(" ")
        lines = [rest, *((notes or {}).get(step.id, "").splitlines())]
        nodes.append(GraphNode(step.id, "STEP", title, tuple(visible(line) for line in lines if line)))
    edges = [Edge(child.id, step.id) for step in steps for child in step.inputs]
    return Graph(tuple(nodes), tuple(edges))


def _source_node(source: SourceInfo) -> GraphNode:
    partitions = "partition" if source.partition_count == 1 else "partitions"
    lines = (visible(f"topic {source.topic}"), f"{source.partition_count} {partitions}, {source.value_format.name}")
    return GraphNode(_source_id(source.name), source.kind, visible(source.name), lines)


def _query_node(query: PersistentQuery, state: str) -> GraphNode:
    what = list(dict.fromkeys(step.word for step in query.plan.steps() if step.word))
    return GraphNode(_query_id(query.id), "QUERY", visible(query.id), (", ".join(what),) if what else (), state)


def _source_id(name: str) -> str:
    return f"source {name}"


def _query_id(query_id: str) -> str:
    return f"query {query_id}"


def visible(text: str) -> str:
    """The text without invisible characters, since a topic may have any name."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
