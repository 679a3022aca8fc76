"""Faults: what they are, how a seed plans them, how they are done. A plan is a list: stored, shortened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from .kernel import MILLISECOND

if TYPE_CHECKING:
    from .host import Host
    from .options import Options
    from .simulation import Simulation

_PLAN_MS: Final = 120_000  # no chaos phase lasts longer; what comes after it is not done
_YEAR_MS: Final = 31_557_600_000
_LASTS_MS: Final = (20, 20, 200, 200, 1_000, 1_000, 3_000, 3_000, 10_000)  # the last one: longer than any session


@dataclass(frozen=True)
class Fault:
    """One fault. `seed` is for what it has to draw when it is done (what survives on a disk, for one)."""

    at_ms: int
    kind: str
    nodes: tuple[int, ...]
    lasts_ms: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, content: dict[str, Any]) -> Fault:
        fields: dict[str, Any] = {**content, "nodes": tuple(content["nodes"])}
        return cls(**fields)


def plan_faults(random: Random, options: Options) -> list[Fault]:
    """The faults of one seed, in the order of time."""
    plan = [*_plan_bursts(random, options), *_plan_acts(random, options)]
    return sorted(plan, key=lambda fault: fault.at_ms)


def _plan_acts(random: Random, options: Options) -> list[Fault]:
    kinds = list(options.act_weights)
    plan: list[Fault] = []
    at_ms = 0.0
    while options.act_mean_ms and kinds:
        at_ms += random.expovariate(1.0) * options.act_mean_ms
        if at_ms > _PLAN_MS:
            break
        kind = random.choices(kinds, list(options.act_weights.values()))[0]
        plan.append(_draw(random, options, int(at_ms), kind))
    return plan


def _plan_bursts(random: Random, options: Options) -> list[Fault]:
    kinds = [kind for kind, weight in options.fault_weights.items() if weight > 0]
    weights = [options.fault_weights[kind] for kind in kinds]
    plan: list[Fault] = []
    at_ms = _calm(random, options)
    burst_ends_ms = at_ms + random.expovariate(1.0) * options.burst_ms if options.calm_ms else 0.0
    while options.fault_mean_ms and kinds:
        at_ms += random.expovariate(1.0) * options.fault_mean_ms
        if options.calm_ms and at_ms >= burst_ends_ms:
            at_ms += _calm(random, options)
            burst_ends_ms = at_ms + random.expovariate(1.0) * options.burst_ms
        if at_ms > _PLAN_MS:
            break
        plan.append(_draw(random, options, int(at_ms), random.choices(kinds, weights)[0]))
    return plan


def _calm(random: Random, options: Options) -> float:
    """At least half of the mean, so that a leader can be elected and work."""
    return options.calm_ms * (0.5 + random.expovariate(2.0)) if options.calm_ms else 0.0


def _draw(random: Random, options: Options, at_ms: int, kind: str) -> Fault:
    everybody = list(range(1, options.nodes + 1))
    if kind.endswith("_all"):
        nodes = everybody
    elif kind.startswith(("cut", "flap")):
        nodes = random.sample(everybody, random.randint(1, max(1, options.nodes // 2)))
    else:
        nodes = [random.choice(everybody)]
    lasts_ms = int(random.choice(_LASTS_MS) * (0.5 + random.random()))
    return Fault(at_ms, kind, tuple(sorted(nodes)), lasts_ms, random.getrandbits(32))


def do_fault(simulation: Simulation, fault: Fault) -> None:
    """Does the fault, and plans its end."""
    if simulation.healing:
        return
    what = "act" if fault.kind in simulation.options.act_weights else "fault"
    simulation.kernel.counters[f"{what} {fault.kind}"] += 1
    simulation.kernel.note("fault", fault.nodes[0], str(fault))
    simulation.fault_kinds[fault.kind](simulation, fault)


def _hosts(simulation: Simulation, fault: Fault) -> list[Host]:
    return [simulation.hosts[node] for node in fault.nodes]


def _others(simulation: Simulation, fault: Fault) -> list[int]:
    return [node for node in simulation.hosts if node not in fault.nodes]


def _later(simulation: Simulation, fault: Fault, action: Callable[..., object], *arguments: Any) -> None:
    simulation.kernel.schedule(fault.lasts_ms * MILLISECOND, action, *arguments)


def _kill(simulation: Simulation, fault: Fault) -> None:
    for host in _hosts(simulation, fault):
        host.kill()
        _later(simulation, fault, host.start)


def _power(simulation: Simulation, fault: Fault) -> None:
    random = Random(fault.seed)
    for host in _hosts(simulation, fault):
        host.cut_power(random)
        simulation.kernel.schedule(int(fault.lasts_ms * MILLISECOND * (0.5 + random.random())), host.start)


def _pause(simulation: Simulation, fault: Fault) -> None:
    for host in _hosts(simulation, fault):
        if host.alive:
            host.pause()
            _later(simulation, fault, host.resume)


def _cut(simulation: Simulation, fault: Fault) -> None:
    others = _others(simulation, fault)
    for sources, targets in ((fault.nodes, others), (others, fault.nodes)):
        simulation.network.cut(sources, targets)
        _later(simulation, fault, simulation.network.mend, sources, targets)


def _cut_one_way(simulation: Simulation, fault: Fault) -> None:
    ways = (fault.nodes, _others(simulation, fault))
    sources, targets = ways if fault.seed % 2 else ways[::-1]
    simulation.network.cut(sources, targets)
    _later(simulation, fault, simulation.network.mend, sources, targets)


def _cut_link(simulation: Simulation, fault: Fault) -> None:
    others = _others(simulation, fault)
    other = others[fault.seed % len(others)]
    for sources, targets in ((fault.nodes[:1], (other,)), ((other,), fault.nodes[:1])):
        simulation.network.cut(sources, targets)
        _later(simulation, fault, simulation.network.mend, sources, targets)


def _flap(simulation: Simulation, fault: Fault) -> None:
    others = _others(simulation, fault)
    period_ns = max(1, fault.lasts_ms // 8) * MILLISECOND
    for turn in range(0, 8, 2):
        simulation.kernel.schedule(turn * period_ns, simulation.network.cut, fault.nodes, others)
        simulation.kernel.schedule((turn + 1) * period_ns, simulation.network.mend, fault.nodes, others)


def _slow_disk(simulation: Simulation, fault: Fault) -> None:
    for host in _hosts(simulation, fault):
        host.disk.slowness = 5.0 + fault.seed % 100
        _later(simulation, fault, _set, host.disk, "slowness", 1.0)


def _full_disk(simulation: Simulation, fault: Fault) -> None:
    for host in _hosts(simulation, fault):
        host.disk.full = True
        _later(simulation, fault, _set, host.disk, "full", False)


def _failing_sync(simulation: Simulation, fault: Fault) -> None:
    for host in _hosts(simulation, fault):
        host.disk.failing_syncs = 1 + fault.seed % 2
        _later(simulation, fault, _set, host.disk, "failing_syncs", 0)


def _power_in_write(simulation: Simulation, fault: Fault) -> None:
    for host in _hosts(simulation, fault):
        host.disk.operations_left = fault.seed % 12


def _clock_jump(simulation: Simulation, fault: Fault) -> None:
    random = Random(fault.seed)
    for host in _hosts(simulation, fault):
        host.jump_clock(random.choice([0, 0, 500, 5_000]), random.choice([-_YEAR_MS, -3_600_000, 1_000, _YEAR_MS]))


def _slow_node(simulation: Simulation, fault: Fault) -> None:
    for host in _hosts(simulation, fault):
        host.delay_ns = (5 + fault.seed % 200) * MILLISECOND
        _later(simulation, fault, _set, host, "delay_ns", 0)


def _set(target: object, name: str, value: Any) -> None:
    setattr(target, name, value)


FAULTS: Final[Mapping[str, Callable[[Any, Fault], None]]] = {
    "kill": _kill,
    "kill_all": _kill,
    "power": _power,
    "power_all": _power,
    "power_in_write": _power_in_write,
    "pause": _pause,
    "cut": _cut,
    "cut_one_way": _cut_one_way,
    "cut_link": _cut_link,
    "flap": _flap,
    "slow_disk": _slow_disk,
    "full_disk": _full_disk,
    "failing_sync": _failing_sync,
    "clock_jump": _clock_jump,
    "slow_node": _slow_node,
}
