"""The table: rates, ratios within this run, and what was wanted of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .latency import Latency
from .measuring import Measured

HEADER = ("what", "rows/s", "rows/CPU s", "ratio", "wanted")


@dataclass(frozen=True, slots=True)
class Line:
    """`ratio` says of what it is; `wanted` is empty where nothing was set as a goal."""

    what: str
    rate: str = ""
    cpu_rate: str = ""
    ratio: str = ""
    wanted: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        return (self.what, self.rate, self.cpu_rate, self.ratio, self.wanted)


def rate_line(what: str, measured: Measured, *, of: Measured | None = None, base: str = "", wanted: str = "") -> Line:
    """In: `of`: what the ratios, by the wall and by the processor, refer to; `base`: its name."""
    ratio = ""
    if of is not None:
        ratio = f"{measured.rate / of.rate:.2f}"
        if measured.cpu_rate is not None and of.cpu_rate is not None:
            ratio += f" (CPU {measured.cpu_rate / of.cpu_rate:.2f})"
        ratio += f" of {base}"
    cpu = "" if measured.cpu_rate is None else _thousands(measured.cpu_rate)
    return Line(what, _thousands(measured.rate), cpu, ratio, wanted)


def latency_line(what: str, latency: Latency, *, of: Latency | None = None, base: str = "", wanted: str = "") -> Line:
    ratio = "" if of is None else f"p50 {latency.p50_ms / of.p50_ms:.1f} × {base}"
    return Line(what, f"p50 {latency.p50_ms:.2f} ms", f"p99 {latency.p99_ms:.2f} ms", ratio, wanted)


def as_text(lines: Sequence[Line]) -> str:
    """A Markdown table that is also readable as it is."""
    rows = [HEADER, *(line.cells for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]

    def row_text(row: Sequence[str]) -> str:
        cells = [
            cell.rjust(width) if column in (1, 2) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "| " + " | ".join(cells) + " |"

    rule = "|" + "|".join("-" * (width + 1) + (":" if i in (1, 2) else "-") for i, width in enumerate(widths)) + "|"
    return "\n".join([row_text(HEADER), rule, *map(row_text, rows[1:])])


def _thousands(rate: float) -> str:
    return f"{rate / 1000:,.0f} k"
