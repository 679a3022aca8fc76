"""What a simulation is about: which machines run on a node, who asks them what, and which promises are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.logcore.replication.machine import Effect, Input

from .host import Host, Running

if TYPE_CHECKING:
    from .faults import Fault
    from .simulation import Simulation


class World:
    """The base of all worlds; most of it does nothing. A world is made anew for each run."""

    name: ClassVar[str] = ""
    node_counts: ClassVar[tuple[int, ...]] = (3, 3, 5)  # what a seed chooses from
    must_happen: ClassVar[tuple[str, ...]] = ()  # counters above zero after some hundred seeds

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.kernel = simulation.kernel

    @classmethod
    def draw(cls, random: Random) -> dict[str, Any]:
        """Options of its own (JSON), found in `Options.world`."""
        return {}

    @classmethod
    def faults(cls) -> Mapping[str, Callable[[Simulation, Fault], None]]:
        """Faults that only this world knows, by kind."""
        return {}

    @classmethod
    def acts(cls) -> Mapping[str, Callable[[Simulation, Fault], None]]:
        """Acts of operators, by kind: planned as faults are, but not in bursts."""
        return {}

    def start(self, host: Host) -> Mapping[str, Running]:
        """The machines of a node whose process starts, recovered from `host.disk`. Raises CannotStart."""
        raise NotImplementedError

    def begin(self) -> None:
        """All hosts exist, none has been started: schedule what clients do."""

    def stepped(self, host: Host, machine: str, given: Input, effects: Sequence[Effect]) -> None:
        """After each step, before its effects are carried out: check the promises. Raises InvariantViolated."""

    def replied(self, host: Host, request: int, response: Any) -> None:
        """A machine answered a client."""

    def died(self, host: Host) -> None:
        """The process of a node is gone."""

    def healed(self) -> None:
        """No faults any more: from now on everything has to become well."""

    def missing(self) -> str | None:
        """What is not well yet, once healed; None when all is."""
        return None

    def finish(self) -> None:
        """The last checks, when all is well."""

    def line(self, host: Host) -> str:
        """One row about a node in the report of a failure."""
        return ""
