"""One run: hosts, network and faults around a world. Chaos, then healing, then all has to become well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .faults import FAULTS, Fault, do_fault, plan_faults
from .host import Host
from .kernel import MILLISECOND, InvariantViolated, Kernel
from .network import SimNetwork
from .options import Options, draw_options
from .world import World


class Simulation:
    """A cluster in a world. `run` does all of it; directed tests call the smaller methods themselves."""

    def __init__(
        self,
        world: type[World],
        seed: int,
        *,
        options: Options | None = None,
        faults: Sequence[Fault] | None = None,
        events: int = 20_000,
    ) -> None:
        self.kernel = Kernel(seed)
        self.fault_kinds = {**FAULTS, **world.faults(), **world.acts()}
        self.seed = seed
        self.options = options or _draw(self.kernel, world, events)
        self.faults = list(faults) if faults is not None else plan_faults(self.kernel.randoms.faults, self.options)
        self.network = SimNetwork(self.kernel, self.options.network)
        self.healing = False
        drift = self.options.clock_drift
        draw = self.kernel.randoms.schedule.uniform
        self.hosts = {
            node: Host(self, node, drift=draw(-drift, drift) if drift else 0.0)
            for node in range(1, self.options.nodes + 1)
        }
        self.world = world(self)

    def run(self) -> None:
        """Raises InvariantViolated. What else is raised is a mistake of a machine, or of the simulator."""
        self.begin()
        for fault in self.faults:
            self.kernel.schedule(fault.at_ms * MILLISECOND, do_fault, self, fault)
        self.kernel.run(events=self.options.events)
        self.converge()

    def begin(self) -> None:
        """Starts all nodes."""
        self.world.begin()
        for host in self.hosts.values():
            host.start()

    def converge(self) -> None:
        """Heals everything, waits until all is well, and does the last checks."""
        self.heal()
        limit_ns = self.kernel.now_ns + self.options.converge_ms * MILLISECOND
        while (missing := self.world.missing()) is not None:
            if self.kernel.now_ns > limit_ns:
                raise InvariantViolated("I23", f"{self.options.converge_ms} ms after the healing: {missing}")
            self.run_for(100)
        self.world.finish()
        for host in self.hosts.values():
            self.kernel.hash_state((host.id, host.alive, self.world.line(host)))

    def heal(self) -> None:
        self.healing = True
        self.network.heal()
        for host in self.hosts.values():
            host.disk.full, host.disk.failing_syncs, host.disk.slowness = False, 0, 1.0
            host.disk.operations_left = None
            host.delay_ns = 0
            while host.paused:
                host.resume()
            host.start()
        self.world.healed()

    def run_for(self, milliseconds: int) -> None:
        self.kernel.run(until_ns=self.kernel.now_ns + milliseconds * MILLISECOND)

    def do(self, kind: str, *nodes: int, lasts_ms: int = 0, seed: int = 0) -> None:
        """Does a fault now: for directed scenarios."""
        do_fault(self, Fault(self.kernel.now_ns // MILLISECOND, kind, nodes, lasts_ms, seed))

    def send(self, source: int, target: int, machine: str, message: Any) -> None:
        """Hands a message to the network."""
        host = self.hosts.get(target)
        if host is not None:
            self.network.send(source, target, host.deliver, machine, self.hosts[source].id, message)


def _draw(kernel: Kernel, world: type[World], events: int) -> Options:
    random = kernel.randoms.options
    faults, acts = [*FAULTS, *world.faults()], list(world.acts())
    options = draw_options(random, fault_kinds=faults, act_kinds=acts, nodes=world.node_counts, events=events)
    options.world = world.draw(random)
    return options
