"""What is drawn once per seed: how many nodes, how bad network, disks and clocks are, how often faults come.

Swarm testing: each seed has its own mix, so that some runs are all cuts, and some quiet enough for much work. Faults
come in bursts in most seeds: without a calm a cluster has no leader for three quarters of the time, and what does not
happen is not tested.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from .network import NetworkOptions


@dataclass
class Options:
    """All that a run depends on besides its seed, its world and its faults. JSON and back."""

    nodes: int = 3
    events: int = 20_000  # of the chaos phase; healing and converging come after it
    tick_ms: int = 50
    clock_drift: float = 0.0  # a node's clock runs so much faster or slower, at most
    sync_ms: float = 1.0  # mean time that a sync takes
    restart_ms: int = 300  # until a process that panicked is started again
    converge_ms: int = 60_000  # virtual time for everything to be well after the healing
    network: NetworkOptions = field(default_factory=NetworkOptions)
    fault_mean_ms: float = 0.0  # mean time between two faults; 0: none
    burst_ms: float = 0.0  # mean time for which faults come
    calm_ms: float = 0.0  # mean time for which none comes, before the first and between bursts; 0: they never cease
    fault_weights: dict[str, float] = field(default_factory=dict[str, float])
    act_mean_ms: float = 0.0  # mean time between two acts of operators, in calms and bursts alike; 0: none
    act_weights: dict[str, float] = field(default_factory=dict[str, float])
    world: dict[str, Any] = field(default_factory=dict[str, Any])  # what the world drew for itself

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, content: dict[str, Any]) -> Options:
        fields: dict[str, Any] = {**content, "network": NetworkOptions(**content["network"])}
        return cls(**fields)


def draw_options(
    random: Random, *, fault_kinds: list[str], act_kinds: list[str], nodes: tuple[int, ...], events: int
) -> Options:
    """The options of one seed."""
    network = NetworkOptions(
        delay_min_ms=random.choice([0.1, 0.5, 2.0]),
        delay_mean_ms=random.choice([0.2, 1.0, 5.0, 20.0]),
        tail_share=random.choice([0.0, 0.01, 0.05]),
        loss_share=random.choice([0.0, 0.0, 0.01, 0.05, 0.2]),
        twice_share=random.choice([0.0, 0.01, 0.05, 0.2]),
    )
    weights = {kind: round(random.random() ** 2, 3) if random.random() < 0.5 else 0.0 for kind in fault_kinds}
    if not any(weights.values()):
        weights["kill"] = 1.0
    return Options(
        nodes=random.choice(nodes),
        events=events,
        tick_ms=random.choice([20, 50, 100]),
        clock_drift=random.choice([0.0, 0.01, 0.2]),
        sync_ms=random.choice([0.2, 1.0, 5.0, 20.0]),
        restart_ms=random.choice([50, 300, 1_000]),
        network=network,
        fault_mean_ms=random.choice([100.0, 300.0, 1_000.0, 3_000.0]),
        burst_ms=random.choice([300.0, 1_000.0, 3_000.0]),
        calm_ms=random.choice([0.0, 2_000.0, 4_000.0, 8_000.0]),
        fault_weights=weights,
        act_mean_ms=random.choice([500.0, 2_000.0, 8_000.0]),
        act_weights={kind: round(0.05 + random.random(), 3) for kind in act_kinds if random.random() < 0.7},
    )
