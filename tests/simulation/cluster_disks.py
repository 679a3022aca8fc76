"""Disks that lose what was safe, in a simulated cluster: bits that flip in a log, a node whose disk is exchanged.

Never the last good copy: one node of a run at most, where every partition needs two in sync. Of such a node it is
wanted that it notices, says so, and gets everything again; or that it is replaced, as the documentation says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from .kernel import MILLISECOND
from .replica_log import recovery_point_in

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld
    from .disk import SimFile
    from .faults import Fault
    from .host import Host
    from .simulation import Simulation


def flip_log(simulation: Simulation, fault: Fault) -> None:
    """A bit changes below the recovery point of a log, and the node's power goes: it starts from what is there."""
    world = _world(simulation)
    host = simulation.hosts[fault.nodes[0]]
    if not _may_lose(world, host):
        return
    logs = _logs(host)
    if not logs:
        return
    file, size = logs[fault.seed % len(logs)]
    world.lost = host.id
    host.kill()
    file.flip(fault.seed // 7 % size, fault.seed % 8)
    world.checks.forget(host.id)
    simulation.kernel.counters["damaged logs"] += 1
    simulation.kernel.schedule(fault.lasts_ms * MILLISECOND, host.start)


def _logs(host: Host) -> list[tuple[SimFile, int]]:
    """Those that have something below their recovery points, and how much."""
    logs: list[tuple[SimFile, int]] = []
    for name in host.disk.names():
        log, point = host.disk.get(name), host.disk.get(name + ".point")
        if log is not None and point is not None and (size := recovery_point_in(point)[0]) > 0:
            logs.append((log, size))
    return logs


def exchange_disk(simulation: Simulation, fault: Fault) -> None:
    """A node comes back with an empty disk. Nobody counts on it until the operator has replaced it."""
    world = _world(simulation)
    host = simulation.hosts[fault.nodes[0]]
    active = world.operator.active()
    if not _may_lose(world, host) or active is None:
        return
    voters = active.quorum.log.voters
    if active.quorum.log.voters_index > active.quorum.commit or not voters.disks or not all(voters.disks):
        return
    world.lost = host.id
    world.operator.replace(host.id, host.disk_name)
    host.kill()
    host.disk.wipe()
    world.quorum_checks.forget(host.id)
    world.checks.forget(host.id)
    simulation.kernel.counters["disks exchanged"] += 1
    simulation.kernel.schedule(fault.lasts_ms * MILLISECOND, host.start)


def _may_lose(world: ClusterWorld, host: Host) -> bool:
    """Another replica has everything: two at least are in sync, or eligible, wherever anything was acknowledged.

    Of a new partition that is not so before anybody else has joined: nothing is acknowledged, and nobody else may lead.
    """
    image = world.image()
    return (
        world.simulation.options.world["damage"]
        and world.lost is None
        and host.alive
        and world.topic is not None
        and all(state.min_isr > 1 and {*state.isr, *state.elr} - {host.id} for state in image.partitions())
    )


def _world(simulation: Simulation) -> ClusterWorld:
    return cast("ClusterWorld", simulation.world)
