"""Faults of real processes, drawn from a seed: each is done, lasts for a while, and is healed."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from bench.clusters import Cluster

from .disks import SmallDisk


class Links(Protocol):
    """Between nodes; each direction for itself."""

    def cut(self, source: int, target: int) -> None: ...

    def mend(self, source: int, target: int) -> None: ...


class ClientsAtWork(Protocol):
    """The clients, as far as faults touch them."""

    def kill_one(self, draw: random.Random) -> str: ...

    def pause_one(self, draw: random.Random) -> tuple[str, Callable[[], None]]: ...


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is to break. `excused`: nodes that may end by themselves, because their disk was full."""

    cluster: Cluster
    links: Links | None
    disks: Mapping[int, SmallDisk]
    clients: ClientsAtWork
    session_ms: int
    excused: set[int]


@dataclass(frozen=True, slots=True)
class Fault:
    """Begun already. `seconds`: how long it lasts; then `heal` ends it."""

    what: str
    seconds: float
    heal: Callable[[], None]


def draw_fault(scene: Scene, draw: random.Random) -> Fault:
    """Begins one of the faults that are possible here."""
    kinds = [*_OF_PROCESSES, *(_OF_NETWORKS if scene.links else ()), *(_OF_DISKS if scene.disks else ())]
    return draw.choice(kinds)(scene, draw)


def kill_a_node(scene: Scene, draw: random.Random) -> Fault:
    node = draw.choice(scene.cluster.nodes)
    scene.cluster.kill(node)
    return Fault(f"kill -9 node {node}", _some_seconds(scene, draw), lambda: ensure_runs(scene, node))


def kill_a_node_that_comes_back_at_once(scene: Scene, draw: random.Random) -> Fault:
    node = draw.choice(scene.cluster.nodes)
    scene.cluster.kill(node)
    return Fault(f"kill -9 node {node}, and start it at once", 0.1, lambda: ensure_runs(scene, node))


def kill_two_nodes(scene: Scene, draw: random.Random) -> Fault:
    nodes = draw.sample(scene.cluster.nodes, 2)
    for node in nodes:
        scene.cluster.kill(node)

    def heal() -> None:
        for node in nodes:
            ensure_runs(scene, node)

    return Fault(f"kill -9 nodes {nodes}", _some_seconds(scene, draw), heal)


def end_a_node(scene: Scene, draw: random.Random) -> Fault:
    node = draw.choice(scene.cluster.nodes)
    scene.cluster.end(node)
    return Fault(f"SIGTERM to node {node}", _some_seconds(scene, draw), lambda: ensure_runs(scene, node))


def pause_a_node(scene: Scene, draw: random.Random) -> Fault:
    node = draw.choice(scene.cluster.nodes)
    scene.cluster.signal(node, signal.SIGSTOP)
    seconds = _some_seconds(scene, draw)
    return Fault(f"SIGSTOP to node {node}", seconds, lambda: scene.cluster.signal(node, signal.SIGCONT))


def kill_a_client(scene: Scene, draw: random.Random) -> Fault:
    return Fault(f"kill -9 client {scene.clients.kill_one(draw)}", 0.5, lambda: None)


def pause_a_client(scene: Scene, draw: random.Random) -> Fault:
    """Beyond its session, often: others take over, and then it wakes up and goes on."""
    name, wake = scene.clients.pause_one(draw)
    return Fault(f"SIGSTOP to client {name}", draw.uniform(1.0, 15.0), wake)


def cut_a_pair(scene: Scene, draw: random.Random) -> Fault:
    a, b = draw.sample(scene.cluster.nodes, 2)
    return _cut(scene, draw, f"cut {a} and {b}", [(a, b), (b, a)])


def cut_one_way(scene: Scene, draw: random.Random) -> Fault:
    a, b = draw.sample(scene.cluster.nodes, 2)
    return _cut(scene, draw, f"cut {a} to {b}", [(a, b)])


def isolate_a_node(scene: Scene, draw: random.Random) -> Fault:
    """From all other nodes; clients still reach it."""
    node = draw.choice(scene.cluster.nodes)
    others = [other for other in scene.cluster.nodes if other != node]
    return _cut(scene, draw, f"isolate {node}", [pair for o in others for pair in ((node, o), (o, node))])


def silence_a_node(scene: Scene, draw: random.Random) -> Fault:
    """It hears the others, and they do not hear it; or the other way round."""
    node = draw.choice(scene.cluster.nodes)
    others = [other for other in scene.cluster.nodes if other != node]
    deaf = draw.random() < 0.5
    directions = [(o, node) if deaf else (node, o) for o in others]
    return _cut(scene, draw, f"{node} is {'deaf' if deaf else 'mute'}", directions)


def fill_a_disk(scene: Scene, draw: random.Random) -> Fault:
    node = draw.choice(sorted(scene.disks))
    scene.excused.add(node)
    scene.disks[node].fill()

    def heal() -> None:
        scene.disks[node].free()
        ensure_runs(scene, node)
        scene.excused.discard(node)

    return Fault(f"the disk of node {node} is full", _some_seconds(scene, draw), heal)


def ensure_runs(scene: Scene, node: int) -> None:
    if not scene.cluster.runs(node):
        scene.cluster.start(node)


Kind = Callable[[Scene, random.Random], Fault]

_OF_PROCESSES: Final[tuple[Kind, ...]] = (
    kill_a_node,
    kill_a_node,
    kill_a_node_that_comes_back_at_once,
    kill_two_nodes,
    end_a_node,
    pause_a_node,
    pause_a_node,
    kill_a_client,
    pause_a_client,
)
_OF_NETWORKS: Final[tuple[Kind, ...]] = (cut_a_pair, cut_one_way, isolate_a_node, isolate_a_node, silence_a_node)
_OF_DISKS: Final[tuple[Kind, ...]] = (fill_a_disk,)


def _cut(scene: Scene, draw: random.Random, what: str, directions: list[tuple[int, int]]) -> Fault:
    links = scene.links
    assert links is not None
    for direction in directions:
        links.cut(*direction)

    def heal() -> None:
        for direction in directions:
            links.mend(*direction)

    return Fault(what, _some_seconds(scene, draw), heal)


def _some_seconds(scene: Scene, draw: random.Random) -> float:
    """Shorter than a session, often; several of them, at times."""
    return draw.choice((0.3, 0.8, 1.5, 2.5, 4.0)) * scene.session_ms / 1000 + draw.random()
