"""Graphs of streams, tables and queries for programs and notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from millstream.server.client import Client


@dataclass(frozen=True, slots=True)
class GraphPicture:
    """A graph in all output formats. A notebook draws it; `str` returns it as text."""

    text: str
    dot: str
    svg: str
    nodes: tuple[dict[str, Any], ...]
    edges: tuple[dict[str, Any], ...]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        return self.svg


def graph_picture(client: Client, of: str | None = None) -> GraphPicture:
    """The graph of everything, or the neighbours of a stream, a table or a topic, or the plan of a query.

    In: `of`: its name. Raises `StatementError` or `RemoteError` if nothing has this name.
    """
    shown = shown_graph(client, of, "TEXT")
    return GraphPicture(
        text=shown["text"],
        dot=shown_graph(client, of, "DOT")["text"],
        svg=shown_graph(client, of, "SVG")["text"],
        nodes=tuple(shown["nodes"]),
        edges=tuple(shown["edges"]),
    )


def shown_graph(client: Client, of: str | None, form: Literal["TEXT", "DOT", "SVG"]) -> dict[str, Any]:
    """The answer of SHOW GRAPH."""
    named = "" if of is None else " OF '" + of.replace("'", "''") + "'"
    return client.execute(f"SHOW GRAPH{named} AS {form};")[0]
