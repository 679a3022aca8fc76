"""A simulated node: its disk, its clock, the life and death of its process, and the shell around its machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from millstream.logcore.replication.machine import (
    Asked,
    Committed,
    Input,
    Machine,
    NodeId,
    Panic,
    Persist,
    Persisted,
    Received,
    Reply,
    RequestId,
    Send,
    Tick,
)

from .disk import PowerLost, SimDisk
from .kernel import MILLISECOND

if TYPE_CHECKING:
    from .simulation import Simulation

_BACKLOG_MAX: Final = 2_000  # messages that wait for a stopped process, as in the buffers of its sockets


class Storage(Protocol):
    """Where the changes of a machine go. What it raises as OSError becomes `Persisted(…, failed=…)`."""

    def apply(self, change: Any) -> None: ...

    def sync(self) -> None: ...


class Running(NamedTuple):
    """A machine of a node and what its `Persist` effects are carried out on."""

    machine: Machine
    storage: Storage | None = None


class CannotStart(Exception):
    """The files of a node are such that its process refuses to start: it stays down, for people to look at."""


class Host:
    """One node."""

    def __init__(self, simulation: Simulation, node: int, *, drift: float) -> None:
        self.simulation = simulation
        self.kernel = simulation.kernel
        self.id = NodeId(node)
        self.disk = SimDisk()
        self.running: dict[str, Running] = {}
        self.alive = False
        self.broken: str | None = None  # why the process refuses to start
        self.life = 0  # how often its process was started or ended
        self.starts = 0
        self.wall_offset_ms = 0  # how wrong its time of day is
        self.delay_ns = 0  # how long it takes to take up what has arrived (a slow node)
        self._drift = drift
        self._clock_ahead_ms = 0
        self._paused = 0
        self._backlog: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._unsynced: dict[str, list[Any]] = {}  # operations per machine, while a sync of it is under way

    @property
    def disk_name(self) -> str:
        """Another one after every exchange."""
        return f"{self.id}-{self.disk.exchanged}"

    # Life

    def start(self) -> None:
        """Starts the process, unless it runs; its machines recover from the disk."""
        if self.alive or self.broken is not None:
            return
        self.life += 1
        self.starts += 1
        self._clock_ahead_ms = 0
        try:
            self.running = dict(self.simulation.world.start(self))
        except CannotStart as error:
            self.broken = str(error)
            self.kernel.counters["refused to start"] += 1
            self.kernel.note("broken", self.id, self.broken)
            return
        except OSError as error:  # no room for what a start writes
            self.kernel.note("no start", self.id, str(error))
            self._start_later()
            return
        except PowerLost:
            self._lose_power()
            return
        self.alive = True
        self._unsynced = {}
        self.kernel.note("start", self.id, str(self.starts))
        self._schedule(0, self._tick, self.life)

    def kill(self) -> None:
        """The process is gone. What it wrote is still in the machine's memory, and synced by nobody."""
        if not self.alive:
            return
        self.alive = False
        self.life += 1
        self.running = {}
        self._backlog.clear()
        self._paused = 0
        self.kernel.note("killed", self.id, "")
        self.simulation.world.died(self)

    def cut_power(self, random: Random | None) -> None:
        """The process is gone, and so is what the disk had not made safe (a part of it, or with None all of it)."""
        self.kill()
        self.disk.crash(random)
        self.kernel.note("no power", self.id, "")

    def _lose_power(self) -> None:
        """In the middle of a change of the disk."""
        self.kernel.counters["power lost while writing"] += 1
        self.cut_power(self.kernel.randoms.disk)
        self._start_later()

    def panic(self, reason: str) -> None:
        """The process ends itself; somebody starts it again."""
        self.kernel.counters["panics"] += 1
        self.kernel.note("panic", self.id, reason)
        self.kill()
        self._start_later()

    def pause(self) -> None:
        """SIGSTOP: nothing is done any more, and what arrives waits."""
        self._paused += 1

    def resume(self) -> None:
        if self._paused == 0:
            return
        self._paused -= 1
        if self._paused == 0:
            backlog, self._backlog = self._backlog, []
            for action, arguments in backlog:
                self._schedule(0, action, *arguments)

    def jump_clock(self, ahead_ms: int, wall_ms: int) -> None:
        """The machine slept, or somebody set the time of day: the monotonic clock never goes back, the other may."""
        self._clock_ahead_ms += max(0, ahead_ms)
        self.wall_offset_ms += wall_ms

    @property
    def paused(self) -> bool:
        return self._paused > 0

    @property
    def now_ms(self) -> int:
        """Its monotonic clock."""
        return int(self.kernel.now_ns * (1 + self._drift)) // MILLISECOND + self._clock_ahead_ms

    @property
    def wall_ms(self) -> int:
        """Its time of day, as far as it knows."""
        return self.kernel.now_ns // MILLISECOND + self.wall_offset_ms

    # Inputs

    def ask(self, machine: str, request: int, body: Any) -> None:
        """A client's request reaches a machine of this node; the answer goes to `World.replied`."""
        self._arrive(machine, Asked(RequestId(request), body))

    def deliver(self, machine: str, sender: NodeId, message: Any) -> None:
        """A message of another node (or of another machine of this one) arrives."""
        self._arrive(machine, Received(sender, message))

    def _arrive(self, machine: str, given: Input) -> None:
        if not self.alive:
            self.kernel.counters["to the dead"] += 1
        elif self.delay_ns and not self._paused:
            self._schedule(self.delay_ns, self._take, self.life, machine, given)
        else:
            self._take(self.life, machine, given)

    def _take(self, life: int, machine: str, given: Input) -> None:
        if life != self.life or self._waits(self._take, life, machine, given):
            return
        self.step(machine, given)

    def _tick(self, life: int) -> None:
        if life != self.life or self._waits(self._tick, life):
            return
        tick = Tick(self.now_ms, self.wall_ms)
        for name in list(self.running):
            self.step(name, tick)
            if life != self.life:
                return
        random = self.kernel.randoms.schedule.random()
        self._schedule(int(self.simulation.options.tick_ms * MILLISECOND * (0.75 + random / 2)), self._tick, life)

    def _waits(self, action: Callable[..., object], *arguments: Any) -> bool:
        if self._paused and len(self._backlog) < _BACKLOG_MAX:
            self._backlog.append((action, arguments))
        return self._paused > 0

    # The shell

    def step(self, name: str, given: Input) -> None:
        """Steps a machine and carries out what it says."""
        running = self.running.get(name)
        if running is None:
            return
        kernel, life = self.kernel, self.life
        kernel.note(name, self.id, given)
        try:
            effects = running.machine.step(given)
        except PowerLost:  # while the machine wrote to its log
            self._lose_power()
            return
        self.simulation.world.stepped(self, name, given, effects)
        for effect in effects:
            self._carry_out(name, effect)
            if self.life != life:
                return

    def _carry_out(self, name: str, effect: Any) -> None:
        kind = effect.__class__
        if kind is Send:
            self.simulation.send(self.id, effect.to, effect.machine or name, effect.message)
        elif kind is Persist:
            self._persist(name, effect)
        elif kind is Reply:
            self.simulation.world.replied(self, effect.request, effect.response)
        elif kind is Committed:
            for other in list(self.running):
                if other != name:
                    self.step(other, effect)
        elif kind is Panic:
            self.panic(effect.reason)
        else:
            raise TypeError(f"not an effect: {effect!r}")

    def _persist(self, name: str, effect: Persist) -> None:
        storage = self.running[name].storage
        assert storage is not None, f"machine {name} has no storage"
        try:
            storage.apply(effect.change)
        except OSError as error:
            self._schedule(0, self._failed, self.life, name, Persisted(effect.operation, str(error)))
            return
        except PowerLost:
            self._lose_power()
            return
        waiting = self._unsynced.get(name)
        if waiting is not None:  # the sync that is under way covers it, as far as it gets written in time
            waiting.append(effect.operation)
            return
        self._unsynced[name] = [effect.operation]
        random = self.kernel.randoms.disk
        mean_ms = self.simulation.options.sync_ms * self.disk.slowness
        self._schedule(int(mean_ms * MILLISECOND * (0.2 + random.expovariate(1.25))), self._sync, self.life, name)

    def _sync(self, life: int, name: str) -> None:
        if life != self.life or self._waits(self._sync, life, name):
            return
        storage = self.running[name].storage
        assert storage is not None
        operation = self._unsynced.pop(name)[-1]  # it stands for those before it
        try:
            storage.sync()
        except OSError as error:
            self.kernel.counters["failed syncs"] += 1
            self.step(name, Persisted(operation, str(error)))
        except PowerLost:
            self._lose_power()
        else:
            self.step(name, Persisted(operation))

    def _failed(self, life: int, name: str, given: Persisted) -> None:
        if life == self.life and not self._waits(self._failed, life, name, given):
            self.step(name, given)

    def _start_later(self) -> None:
        self._schedule(self.simulation.options.restart_ms * MILLISECOND, self._start_again, self.life)

    def _start_again(self, life: int) -> None:
        if life == self.life:
            self.start()

    def _schedule(self, delay_ns: int, action: Callable[..., object], *arguments: Any) -> None:
        self.kernel.schedule(delay_ns, action, *arguments)


Machines = Mapping[str, Running]
