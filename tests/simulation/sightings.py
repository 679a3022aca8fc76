"""Until when a client surely has what a coordinator has told it."""

from __future__ import annotations

from typing import NamedTuple

from .kernel import MILLISECOND, Kernel


class Sighting(NamedTuple):
    """A request that was answered: what the answer says has held since `asked_ns` at the earliest. `clock_jumps`: how
    often a node's clock had jumped then."""

    asked_ns: int
    clock_jumps: int

    @classmethod
    def now(cls, kernel: Kernel) -> Sighting:
        return cls(kernel.now_ns, _clock_jumps(kernel))

    def surely_holds(self, kernel: Kernel, timeout_ms: int) -> bool:
        """Half of the time: a coordinator knows the time as of its last tick, and its clock may run faster. Not when a
        clock has jumped ahead since: for its node the time is over."""
        is_young = kernel.now_ns < self.asked_ns + timeout_ms * MILLISECOND // 2
        return is_young and _clock_jumps(kernel) == self.clock_jumps


def _clock_jumps(kernel: Kernel) -> int:
    return kernel.counters["fault clock_jump"]
