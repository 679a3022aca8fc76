"""An operator who slows down what replicas catch up with, now more, now less: nobody is left behind by that."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, ClassVar, Final

from millstream.logcore.replication.controller.controller_messages import SetThrottle
from millstream.logcore.replication.replica.throttle import throttled_rate

from .kernel import MILLISECOND

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld

_SHARE: Final = 0.25  # of the seeds
_EVERY_MS: Final = 1_500
_RATES: Final = (None, 2_000, 20_000, 200_000)  # bytes per second
_LAST_RATE: Final = 500_000  # under which all has to become well in the end


class ThrottledCopying:
    """No draw of others is shifted by what it does."""

    counters: ClassVar[tuple[str, ...]] = ("done SetThrottle",)

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._random = Random(f"{world.kernel.seed}/throttle")
        self._happens = self._random.random() < _SHARE

    def begin(self) -> None:
        if self._happens:
            self._act()

    def _act(self) -> None:
        world = self._world
        if not world.simulation.healing:
            world.operator.ask(SetThrottle(self._random.choice(_RATES)))
            world.kernel.schedule(int(self._random.expovariate(1.0) * _EVERY_MS * MILLISECOND), self._act)
        elif throttled_rate(world.image()) != _LAST_RATE:
            world.operator.ask(SetThrottle(_LAST_RATE))
            world.kernel.schedule(200 * MILLISECOND, self._act)
