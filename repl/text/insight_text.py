"""Answers of EXPLAIN STALL, SHOW LINEAGE and SHOW GRAPH, as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .tables import printable, render_table

Entity = Mapping[str, Any]


def stall_lines(entity: Entity, width_max: int | None) -> list[str]:
    """Marks what blocks, and puts its hint below each sentence."""
    del width_max
    verdict = "is held back" if entity["stalled"] else "is not held back"
    kinds = {"queryId": "Query", "connector": "Connector", "mirror": "Mirror"}
    kind, name = next((kind, entity[field]) for field, kind in kinds.items() if field in entity)
    lines = [f"{kind} {printable(str(name))} ({entity['state']}) {verdict}:"]
    for cause in entity["causes"]:
        lines.append(f"{'✗' if cause['blocks'] else '·'} {printable(str(cause['message']))}")
        if cause["hint"]:
            lines.append(f"  hint: {printable(str(cause['hint']))}")
    return lines


def lineage_lines(entity: Entity, width_max: int | None) -> list[str]:
    """A row for each step back."""
    titles = ["Column", "Comes from", "How", "Through", "Query", "Topic"]
    rows = [
        [
            line["output"],
            line["input"],
            f"{line['type'].lower()} {line['subtype'].lower().replace('_', ' ')}",
            line["description"],
            line["queryId"],
            line["topic"],
        ]
        for line in entity["lineage"]
    ]
    if not rows:
        named = ".".join(str(entity[part]) for part in ("source", "column") if entity[part])
        return [f"No query writes {printable(named)}: it comes from its topic as it is."]
    return render_table(titles, rows, width_max)


def graph_lines(entity: Entity, width_max: int | None) -> list[str]:
    """The graph, in the requested format."""
    del width_max
    return [printable(line) for line in str(entity["text"]).splitlines()]
