"""Answers about mirrors, as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .tables import cell_text, render_table

_Mirror = Mapping[str, Any]


def mirror_table(entity: _Mirror) -> tuple[Sequence[str], list[Sequence[Any]]]:
    """Answer of SHOW MIRRORS."""
    titles = ["Mirror", "State", "Mode", "Source", "Topics", "Partitions", "Lag", "Per second", "Last error"]
    return titles, [_cells(mirror) for mirror in entity["mirrors"]]


def mirror_lines(entity: _Mirror, width_max: int | None) -> list[str]:
    """Answer of DESCRIBE MIRROR: figures, partitions, topics that are not copied, settings."""
    mirror = entity["mirror"]
    facts = {
        "Name": mirror["name"],
        "State": mirror["state"],
        "Mode": mirror["mode"],
        "Source": mirror["source"],
        "Topics": ", ".join(mirror["topics"]),
        "Lag": mirror["lag"],
        "Copied": f"{entity['records']} records, {size_text(entity['bytes'])} since the start of the server",
        "Groups": f"{entity['groupOffsets']} offsets",
        "Restarts": entity["restarts"],
        "Error": mirror["lastError"],
    }
    lines = [f"{title:<10}: {cell_text(value)}" for title, value in facts.items() if value is not None]
    fields = ("topic", "partition", "endOffset", "lag", "phase", "error")
    rows = [[line[field] for field in fields] for line in entity["partitions"]]
    lines += ["", *render_table(["Topic", "Partition", "End", "Lag", "Phase", "Error"], rows, width_max)]
    if entity["refused"]:
        refused = [[topic, why] for topic, why in sorted(entity["refused"].items())]
        lines += ["", *render_table(["Not copied", "Why"], refused, width_max)]
    settings = [[name, value] for name, value in sorted(entity["config"].items())]
    return [*lines, "", *render_table(["Setting", "Value"], settings, width_max)]


def _cells(mirror: _Mirror) -> list[Any]:
    first = [mirror[field] for field in ("name", "state", "mode", "source")]
    rate = size_text(mirror["bytesPerSecond"])
    return [*first, ", ".join(mirror["topics"]), mirror["partitions"], mirror["lag"], rate, mirror["lastError"] or ""]


def size_text(size: int) -> str:
    """
    >>> size_text(0), size_text(12_345), size_text(12_345_678)
    ('0 B', '12.3 kB', '12.3 MB')
    """
    for unit, factor in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"
