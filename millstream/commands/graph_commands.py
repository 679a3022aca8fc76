"""The command `millstream graph`."""

from __future__ import annotations

import enum
from typing import Annotated, Literal, cast

import typer

from .addresses import DEFAULT_SERVER, ServerOption
from .command_line import one_sentence_errors


class GraphFormat(enum.StrEnum):
    text = "text"
    dot = "dot"
    svg = "svg"


def graph(
    of: Annotated[str | None, typer.Argument(metavar="NAME", help="A stream, table, topic or query.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    form: Annotated[GraphFormat, typer.Option("--format", help="Output format.")] = GraphFormat.text,
) -> None:
    """Print the graph of a server's streams, tables and queries, or the plan of one query."""
    with one_sentence_errors():
        from millstream.server.client import connect

        from ..graph import shown_graph

        client = connect(server)
        try:
            wanted = cast(Literal["TEXT", "DOT", "SVG"], form.value.upper())
            typer.echo(shown_graph(client, of, wanted)["text"])
        finally:
            client.close()
