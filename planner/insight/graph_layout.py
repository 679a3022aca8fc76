"""The layout of a graph: nodes in layers from left to right, with few crossings. Other modules draw it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .graph import Graph

_SWEEPS = 8
_GAP_X, _GAP_Y = 56.0, 18.0


@dataclass(frozen=True, slots=True)
class Box:
    """The upper left corner and the size of a node."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """`boxes`: by node. `bends`: for each edge, in the graph's order, the points between its ends, in the direction of
    the edge."""

    boxes: Mapping[str, Box]
    bends: Sequence[Sequence[tuple[float, float]]]
    width: float
    height: float


@dataclass(slots=True)
class _Places:
    """By layer: nodes, and the places that edges over several layers go through."""

    layers: list[list[str]]
    before: dict[str, list[str]]
    after: dict[str, list[str]]
    chains: list[list[str]] = field(default_factory=list)  # for each edge the places between its ends


def lay_out(graph: Graph, sizes: Mapping[str, tuple[float, float]]) -> GraphLayout:
    """Lays out a graph. In: `sizes`: the width and height of each node."""
    if not graph.nodes:
        return GraphLayout({}, [], 0.0, 0.0)
    turned = _back_edges(graph)
    places = _placed(graph, _layers(graph, turned), turned)
    _uncross(places)
    tops = _tops(places, sizes)
    lefts, widths = _lefts(places, sizes)
    boxes: dict[str, Box] = {}
    centres: dict[str, tuple[float, float]] = {}
    for number, layer in enumerate(places.layers):
        for place in layer:
            width, height = sizes.get(place, (0.0, 0.0))
            if place in sizes:
                boxes[place] = Box(lefts[number], tops[place], width, height)
            centres[place] = lefts[number] + widths[number] / 2, tops[place]
    bends = [[centres[place] for place in chain] for chain in places.chains]
    right = max(box.x + box.width for box in boxes.values())
    lowest = [box.y + box.height for box in boxes.values()] + [y for chain in bends for _, y in chain]
    return GraphLayout(boxes, bends, right, max(lowest))


def _back_edges(graph: Graph) -> set[int]:
    """The edges that close a cycle. They are laid out in the opposite direction."""
    after: dict[str, list[tuple[int, str]]] = {node.id: [] for node in graph.nodes}
    for i, edge in enumerate(graph.edges):
        after[edge.source].append((i, edge.target))
    state: dict[str, int] = {}  # 1: being visited, 2: done
    back: set[int] = set()
    for root in after:
        stack = [] if root in state else [(root, iter(after[root]))]
        state.setdefault(root, 1)
        while stack:
            node, ahead = stack[-1]
            step = next(ahead, None)
            if step is None:
                state[node] = 2
                stack.pop()
                continue
            number, target = step
            if state.get(target) == 1:
                back.add(number)
            elif target not in state:
                state[target] = 1
                stack.append((target, iter(after[target])))
    return back


def _layers(graph: Graph, turned: set[int]) -> dict[str, int]:
    """The layer of each node: the length of its longest path from the left. Nodes without inputs then move to the
    right, next to their readers."""
    pairs = [_ends(graph, i, turned) for i in range(len(graph.edges)) if _ends(graph, i, turned) is not None]
    ahead: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    missing = dict.fromkeys(ahead, 0)
    for source, target in (pair for pair in pairs if pair is not None):
        ahead[source].append(target)
        missing[target] += 1
    layer = dict.fromkeys(ahead, 0)
    ready = [node for node, count in missing.items() if not count]
    order: list[str] = []
    while ready:
        node = ready.pop(0)
        order.append(node)
        for target in ahead[node]:
            layer[target] = max(layer[target], layer[node] + 1)
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    reached = {target for targets in ahead.values() for target in targets}
    for node in reversed(order):
        if ahead[node] and node not in reached:
            layer[node] = min(layer[target] for target in ahead[node]) - 1
    return layer


def _ends(graph: Graph, number: int, turned: set[int]) -> tuple[str, str] | None:
    edge = graph.edges[number]
    if edge.source == edge.target:
        return None
    return (edge.target, edge.source) if number in turned else (edge.source, edge.target)


def _placed(graph: Graph, layer: Mapping[str, int], turned: set[int]) -> _Places:
    count = max(layer.values()) + 1
    places = _Places([[] for _ in range(count)], {}, {})
    for node in graph.nodes:
        places.layers[layer[node.id]].append(node.id)
    for number in range(len(graph.edges)):
        ends = _ends(graph, number, turned)
        chain: list[str] = []
        if ends is not None:
            source, target = ends
            for at in range(layer[source] + 1, layer[target]):
                chain.append(f"\0{number} {at}")
                places.layers[at].append(chain[-1])
            way = [source, *chain, target]
            for left, right in pairwise(way):
                places.after.setdefault(left, []).append(right)
                places.before.setdefault(right, []).append(left)
        places.chains.append(chain[::-1] if number in turned else chain)
    return places


def _uncross(places: _Places) -> None:
    """Sorts each layer by the middles of its neighbours, from left to right and back, several times."""
    for sweep in range(_SWEEPS):
        rightwards = sweep % 2 == 0
        neighbours = places.before if rightwards else places.after
        numbers = range(1, len(places.layers)) if rightwards else range(len(places.layers) - 2, -1, -1)
        for number in numbers:
            beside = {place: i for i, place in enumerate(places.layers[number - 1 if rightwards else number + 1])}
            own = {place: i for i, place in enumerate(places.layers[number])}
            places.layers[number].sort(key=lambda place: _middle(neighbours.get(place, ()), beside, own[place]))


def _middle(neighbours: Sequence[str], positions: Mapping[str, int], own: int) -> float:
    found = [positions[each] for each in neighbours if each in positions]
    return sum(found) / len(found) if found else float(own)


def _tops(places: _Places, sizes: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """The tops of all nodes, near the middle of their neighbours, without overlaps. For a place that an edge goes
    through, it is the line's position."""
    height = {place: sizes.get(place, (0.0, 0.0))[1] for layer in places.layers for place in layer}
    centre: dict[str, float] = {}
    for layer in places.layers:
        _stack(layer, dict.fromkeys(layer, 0.0), height, centre)
    for sweep in range(_SWEEPS):
        sides = (places.before, places.after) if sweep % 2 == 0 else (places.after, places.before)
        for layer in places.layers if sweep % 2 == 0 else reversed(places.layers):
            wanted = {
                place: _mean([centre[each] for each in sides[0].get(place) or sides[1].get(place) or [place]])
                for place in layer
            }
            _stack(layer, wanted, height, centre)
    top = min(centre[place] - height[place] / 2 for place in centre)
    return {place: centre[place] - height[place] / 2 - top for place in centre}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _stack(
    layer: Sequence[str], wanted: Mapping[str, float], height: Mapping[str, float], centre: dict[str, float]
) -> None:
    """Places the members of a layer, in their order, as near to their wanted positions as their sizes allow. Blocks
    that overlap become one block, at the mean of its members' wanted positions."""
    blocks: list[tuple[list[str], float, float]] = []  # members, the first one's centre, the distance to the last one's
    for place in layer:
        members, first, extent = [place], wanted[place], 0.0
        while blocks:
            above, start, length = blocks[-1]
            gap = (height[above[-1]] + height[members[0]]) / 2 + _GAP_Y
            if start + length + gap <= first:
                break
            blocks.pop()
            size, count = length + gap + extent, len(above)
            first = (start * count + (first - length - gap) * len(members)) / (count + len(members))
            members, extent = above + members, size
        blocks.append((members, first, extent))
    for members, first, _ in blocks:
        at = first
        for i, place in enumerate(members):
            if i:
                at += (height[members[i - 1]] + height[place]) / 2 + _GAP_Y
            centre[place] = at


def _lefts(places: _Places, sizes: Mapping[str, tuple[float, float]]) -> tuple[list[float], list[float]]:
    widths = [max(sizes.get(place, (0.0, 0.0))[0] for place in layer) for layer in places.layers]
    lefts: list[float] = []
    x = 0.0
    for width in widths:
        lefts.append(x)
        x += width + _GAP_X
    return lefts, widths
