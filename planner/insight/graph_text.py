"""A graph as text for a terminal, and in the DOT language."""

from __future__ import annotations

from collections.abc import Iterator

from .graph import Edge, Graph, GraphNode


def graph_text(graph: Graph) -> str:
    """A tree below each node that no edge leads to. A node with several edges to it is drawn once, at the first of
    them, and only named at the others."""
    after: dict[str, list[Edge]] = {node.id: [] for node in graph.nodes}
    targets = {edge.target for edge in graph.edges if edge.source != edge.target}
    for edge in graph.edges:
        after[edge.source].append(edge)
    named = {node.id: node for node in graph.nodes}
    drawn: set[str] = set()
    lines: list[str] = []
    # Roots first. Nodes that are then left are in a cycle, or behind one; it begins anywhere.
    for node in [*(node for node in graph.nodes if node.id not in targets), *graph.nodes]:
        if node.id not in drawn:
            lines += [] if not lines else [""]
            lines += _tree(node, "", named, after, drawn)
    return "\n".join(lines)


def _tree(
    node: GraphNode,
    indent: str,
    named: dict[str, GraphNode],
    after: dict[str, list[Edge]],
    drawn: set[str],
    link: str = "",
) -> Iterator[str]:
    """It is not recursive, since a pipeline may be longer than Python's stack."""
    waiting = [(node, indent, link, "")]
    while waiting:
        node, indent, link, own = waiting.pop()
        seen = node.id in drawn
        yield f"{own}{link}{_line(node)}{' …' if seen and after[node.id] else ''}"
        if seen:
            continue
        drawn.add(node.id)
        edges = after[node.id]
        for i in range(len(edges) - 1, -1, -1):
            last = i == len(edges) - 1
            arrow = ("└" if last else "├") + ("┄▷ " if edges[i].dashed else "─▶ ")
            waiting.append((named[edges[i].target], indent + ("    " if last else "│   "), arrow, indent))


def _line(node: GraphNode) -> str:
    words = [node.kind, node.title] if node.kind != "STEP" else [node.title]
    detail = ", ".join([*node.lines, *([node.state] if node.state else [])])
    return " ".join(words) + (f" ({detail})" if detail and node.kind != "STEP" else f" {detail}" if detail else "")


def graph_dot(graph: Graph) -> str:
    """The graph in the DOT language, for Graphviz."""
    numbers = {node.id: f"n{i}" for i, node in enumerate(graph.nodes)}
    lines = ["digraph millstream {", "  rankdir=LR;", '  node [fontname="sans-serif", fontsize=11];']
    for node in graph.nodes:
        label = "\\n".join(map(_escaped, (node.title, *node.lines, *([node.state] if node.state else []))))
        shape = {"STREAM": "box", "TABLE": "cylinder", "QUERY": "ellipse", "STEP": "box"}[node.kind]
        lines.append(f'  {numbers[node.id]} [shape={shape}, label="{label}"];')
    for edge in graph.edges:
        style = " [style=dashed]" if edge.dashed else ""
        lines.append(f"  {numbers[edge.source]} -> {numbers[edge.target]}{style};")
    return "\n".join([*lines, "}"])


def _escaped(text: str) -> str:
    """The text as the content of a quoted DOT string."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
