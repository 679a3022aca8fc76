"""A graph as SVG: a self-contained picture, which follows the reader's light or dark colours."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from xml.sax.saxutils import escape

from .graph import Graph, GraphNode, visible
from .graph_layout import Box, lay_out

_FONT = 12.0
_CHAR, _LINE, _PAD = 7.0, 16.0, 9.0
_MARGIN = 14.0
_LINE_MAX = 44  # characters

_STYLE = """
.millstream-graph{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12px}
.millstream-graph text{fill:#1f2328}.millstream-graph .d{fill:#59636e}
.millstream-graph .n{stroke-width:1.2}
.millstream-graph .stream{fill:#ddf4ff;stroke:#0969da}.millstream-graph .table{fill:#dafbe1;stroke:#1a7f37}
.millstream-graph .query{fill:#fff8c5;stroke:#9a6700}.millstream-graph .step{fill:#f6f8fa;stroke:#59636e}
.millstream-graph .bad{fill:#ffebe9;stroke:#cf222e}
.millstream-graph .e{fill:none;stroke:#6e7781;stroke-width:1.3}.millstream-graph .h{fill:#6e7781}
@media (prefers-color-scheme:dark){
.millstream-graph text{fill:#e6edf3}.millstream-graph .d{fill:#9198a1}
.millstream-graph .stream{fill:#0c2d6b;stroke:#4493f8}.millstream-graph .table{fill:#033a16;stroke:#3fb950}
.millstream-graph .query{fill:#341a00;stroke:#d29922}.millstream-graph .step{fill:#212830;stroke:#9198a1}
.millstream-graph .bad{fill:#490202;stroke:#f85149}
.millstream-graph .e{stroke:#8b949e}.millstream-graph .h{fill:#8b949e}
}
"""


def graph_svg(graph: Graph) -> str:
    """One `svg` element, without a background."""
    sizes = {node.id: node_size(node) for node in graph.nodes}
    layout = lay_out(graph, sizes)
    width, height = layout.width + 2 * _MARGIN, layout.height + 2 * _MARGIN
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="millstream-graph" {size} role="img">',
        "<title>" + _text(f"{len(graph.nodes)} nodes, {len(graph.edges)} edges") + "</title>",
        f"<style>{_STYLE}</style>",
        f'<g transform="translate({_MARGIN:.0f} {_MARGIN:.0f})">',
    ]
    for edge, bends in zip(graph.edges, layout.bends, strict=True):
        parts.append(_edge(layout.boxes[edge.source], layout.boxes[edge.target], bends, edge.dashed))
    parts += [_node(node, layout.boxes[node.id]) for node in graph.nodes]
    return "\n".join([*parts, "</g>", "</svg>"])


def _lines(node: GraphNode) -> list[str]:
    return [_cut(line) for line in (*node.lines, *([node.state] if node.state else []))]


def _cut(text: str) -> str:
    return text if len(text) <= _LINE_MAX else f"{text[: _LINE_MAX - 1]}…"


def node_size(node: GraphNode) -> tuple[float, float]:
    """The width and height, in pixels."""
    lines = _lines(node)
    longest = max(map(_columns, (_cut(node.title), *lines)))
    return longest * _CHAR * 1.03 + 2 * _PAD, (1 + len(lines)) * _LINE + 2 * _PAD - 4


def _columns(text: str) -> int:
    """The width of the text in a fixed-width font, in characters."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _node(node: GraphNode, box: Box) -> str:
    kind = "bad" if node.state == "ERROR" else node.kind.lower()
    radius = min(box.height / 2, 18) if node.kind == "QUERY" else 9 if node.kind == "TABLE" else 2
    parts = [
        f'<g transform="translate({box.x:.1f} {box.y:.1f})">',
        f"<title>{_text(f'{node.kind} {node.title}')}</title>",
        f'<rect class="n {kind}" width="{box.width:.1f}" height="{box.height:.1f}" rx="{radius:.0f}"/>',
    ]
    middle, y = box.width / 2, _PAD + _FONT - 2
    parts.append(_label(_cut(node.title), middle, y, bold=True))
    for i, line in enumerate(_lines(node)):
        parts.append(_label(line, middle, y + (i + 1) * _LINE, bold=False))
    return "".join([*parts, "</g>"])


def _label(text: str, x: float, y: float, *, bold: bool) -> str:
    look = 'font-weight="600"' if bold else 'class="d"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" {look}>{_text(text)}</text>'


def _edge(source: Box, target: Box, bends: Sequence[tuple[float, float]], dashed: bool) -> str:
    """A line from the right side of one box to the left side of the other. An edge that goes back starts on the left
    side and ends on the right one."""
    forward = source.x + source.width <= target.x
    start = (source.x + source.width if forward else source.x, source.y + source.height / 2)
    end = (target.x if forward else target.x + target.width, target.y + target.height / 2)
    points = [start, *bends, end]
    path = f"M{start[0]:.1f} {start[1]:.1f}"
    for (x1, y1), (x2, y2) in pairwise(points):
        half = (x2 - x1) / 2
        path += f"C{x1 + half:.1f} {y1:.1f} {x2 - half:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    tip = -7 if forward else 7
    head = f"M{end[0]:.1f} {end[1]:.1f}l{tip} -4v8z"
    style = ' stroke-dasharray="4 4"' if dashed else ""
    return f'<path class="e" d="{path}"{style}/><path class="h" d="{head}"/>'


def _text(text: str) -> str:
    """The text as the content of an XML element, without characters that XML cannot hold."""
    return escape(visible(text))
