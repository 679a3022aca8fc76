"""A network that drops, delays, repeats and reorders, and that can be cut, also in one direction only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .kernel import MILLISECOND, Kernel


@dataclass
class NetworkOptions:
    """How bad the network is, for a whole run."""

    delay_min_ms: float = 0.2
    delay_mean_ms: float = 1.0  # on top of the least one; exponential
    tail_share: float = 0.0  # of messages that take `tail_factor` times as long
    tail_factor: float = 60.0
    loss_share: float = 0.0
    twice_share: float = 0.0  # delivered again, up to `tail_factor` times later


class SimNetwork:
    """Carries messages between nodes. A node reaches itself always, and at once."""

    def __init__(self, kernel: Kernel, options: NetworkOptions) -> None:
        self._kernel = kernel
        self._random = kernel.randoms.network
        self.options = options
        self._cuts: dict[tuple[int, int], int] = {}  # how many cuts are on the way from one node to another
        self.healed = False

    def send(self, source: int, target: int, deliver: Callable[..., object], *arguments: Any) -> None:
        """Calls `deliver(*arguments)` once, later; or never; or twice."""
        if source == target:
            self._kernel.schedule(1_000, deliver, *arguments)
            return
        if self._cuts and (source, target) in self._cuts:
            self._kernel.counters["cut off"] += 1
            return
        options, random = self.options, self._random
        if self.healed:
            self._kernel.schedule(int(options.delay_min_ms * MILLISECOND * (1 + random.random())), deliver, *arguments)
            return
        if options.loss_share and random.random() < options.loss_share:
            self._kernel.counters["lost"] += 1
            return
        delay = self._delay_ns()
        if options.tail_share and random.random() < options.tail_share:
            delay = int(delay * options.tail_factor * random.random())
        self._kernel.schedule(delay, deliver, *arguments)
        if options.twice_share and random.random() < options.twice_share:
            self._kernel.counters["twice"] += 1
            self._kernel.schedule(int(delay * (1 + options.tail_factor * random.random())), deliver, *arguments)

    def cut(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        """Nothing gets from those nodes to these any more. Cuts add up."""
        for way in _ways(sources, targets):
            self._cuts[way] = self._cuts.get(way, 0) + 1

    def mend(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        """Takes one such cut back."""
        for way in _ways(sources, targets):
            left = self._cuts.get(way, 0) - 1
            if left > 0:
                self._cuts[way] = left
            else:
                self._cuts.pop(way, None)

    def heal(self) -> None:
        """From now on every message arrives, soon."""
        self._cuts.clear()
        self.healed = True

    def reaches(self, source: int, target: int) -> bool:
        return (source, target) not in self._cuts

    def _delay_ns(self) -> int:
        options = self.options
        return int((options.delay_min_ms + self._random.expovariate(1.0) * options.delay_mean_ms) * MILLISECOND)


def _ways(sources: Iterable[int], targets: Iterable[int]) -> list[tuple[int, int]]:
    ends = list(targets)
    return [(source, target) for source in sources for target in ends if source != target]
