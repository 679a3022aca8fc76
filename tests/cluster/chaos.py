"""One run: clients at work on a cluster while faults come and go; then all is healed, read, and checked."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.clusters import Cluster

from .clients import ClientSpec
from .disks import SmallDisk
from .events import Recorder, read_events
from .faults import Fault, Links, Scene, draw_fault, ensure_runs
from .finals import Inspector, NotWell
from .history import Anomaly, anomalies
from .observed import Observed
from .recording import SENT_TOPIC, TRANSACTIONS_TOPIC

CLIENTS: Final = (
    ClientSpec("producer", "producer1"),
    ClientSpec("transactions", "transactions1"),
    ClientSpec("transactions", "transactions2"),
    ClientSpec("copier", "copier1", "copiers"),
    ClientSpec("copier", "copier2", "copiers"),
    ClientSpec("member", "member1", "readers"),
    ClientSpec("member", "member2", "readers"),
    ClientSpec("member", "member3", "modern", "consumer"),
)
BRIEF_CLIENTS: Final = tuple(spec for spec in CLIENTS if spec.name not in ("transactions2", "copier2", "member2"))
SENDING: Final = ("producer", "transactions")
COPYING: Final = ("copier",)
_CLIENTS_END_WITHIN_S: Final = 45.0
_STUCK_S: Final = 30.0
_JAVA_AFTER_SIGTERM: Final = 143
_REPOSITORY: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Settings:
    """`within_s`: how long the cluster may take, once all faults are healed, until each thing that is asked works.

    `brief`: fewer clients, and the end is read with one node away instead of each in turn.
    """

    seed: int
    seconds: float
    session_ms: int
    folder: Path
    brief: bool = False
    within_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    anomalies: Sequence[Anomaly]
    counts: Counter[str]


class Clients:
    """State: one process per client, and which life it is in."""

    def __init__(self, specs: Sequence[ClientSpec], brokers: str, folder: Path) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._brokers = brokers
        self._folder = folder
        self._lives: Counter[str] = Counter()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ended_badly: list[str] = []
        self.stuck = 0

    def start_all(self) -> None:
        for name in self._specs:
            self._start(name)

    def keep_running(self) -> None:
        """Starts those anew that were killed; one that ended by itself is noted."""
        for name, process in list(self._processes.items()):
            code = process.poll()
            if code is not None:
                if code != -signal.SIGKILL:
                    self.ended_badly.append(f"{name} ended with {code}: see {name}.txt")
                self._start(name)

    def kill_stuck(self) -> None:
        """Copiers that have noted nothing for long, while there is something to copy: their next life goes on.

        librdkafka 2.16 may stay in `send_offsets_to_transaction` for ever, whatever the timeout, whoever the brokers
        are: AddOffsetsToTxn is answered, TxnOffsetCommit is never sent. It waits for a connection to the group's
        coordinator by a handle that it destroyed itself but keeps in its cache of coordinators, and looks again only
        when some other connection comes up or is lost. It destroys handles (1) when all brokers were unreachable at
        once, and it begins anew from `bootstrap.servers`: producers here have `metadata.recovery.strategy=none`; (2)
        when Metadata does not name a node any more: Apache Kafka leaves out fenced nodes, Millstream does not.
        So a client that is stuck at Millstream is for us to explain: the run says so loudly. If it is the cluster that
        does not answer, the next life does not get further either, and the run fails.
        """
        for name, process in self._processes.items():
            notes = self._folder / f"{name}.{self._lives[name]}.jsonl"
            if self._specs[name].kind in COPYING and notes.exists() and time.time() - notes.stat().st_mtime > _STUCK_S:
                process.kill()
                self.stuck += 1
        self.keep_running()

    def kill_one(self, draw: random.Random) -> str:
        name = draw.choice(sorted(self._processes))
        self._processes[name].kill()
        return name

    def pause_one(self, draw: random.Random) -> tuple[str, Callable[[], None]]:
        name = draw.choice(sorted(self._processes))
        process = self._processes[name]
        process.send_signal(signal.SIGSTOP)
        return name, lambda: process.send_signal(signal.SIGCONT)

    def end(self, kinds: Sequence[str]) -> None:
        """Those of these kinds, properly: they finish what they have begun."""
        ending = {name: p for name, p in self._processes.items() if self._specs[name].kind in kinds}
        for process in ending.values():
            process.send_signal(signal.SIGTERM)
        until = time.monotonic() + _CLIENTS_END_WITHIN_S
        for name, process in ending.items():
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            del self._processes[name]

    def kill_all(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    @property
    def groups(self) -> dict[str, str]:
        """The kind of the members of each group."""
        return {spec.group: spec.kind for spec in self._specs.values() if spec.group}

    def _start(self, name: str) -> None:
        self._lives[name] += 1
        command = [sys.executable, *self._specs[name].command(self._lives[name], self._brokers, self._folder)]
        with (self._folder / f"{name}.txt").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                command, cwd=_REPOSITORY, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )


class Run:
    """State: the cluster, the clients, and the faults that are not healed yet."""

    def __init__(self, settings: Settings, cluster: Cluster, links: Links | None, disks: dict[int, SmallDisk]) -> None:
        self._settings = settings
        self._cluster = cluster
        self._draw = random.Random(settings.seed)
        self._log = (settings.folder / "faults.txt").open("a", buffering=1)
        self._history = settings.folder / "history"
        self._history.mkdir(parents=True)
        self._clients = Clients(BRIEF_CLIENTS if settings.brief else CLIENTS, cluster.brokers, self._history)
        self._scene = Scene(cluster, links, disks, self._clients, settings.session_ms, set())
        self._inspector = Inspector(cluster.brokers, settings.within_s)
        self._recorder = Recorder(self._history / "finals.jsonl")
        self._open: list[tuple[float, Fault]] = []
        self._faults: Counter[str] = Counter()
        self._found: list[Anomaly] = []

    def execute(self) -> Outcome:
        """All of it. What was noted stays in the folder."""
        try:
            self._cluster.start_all()
            self._inspector.create_topics(len(self._cluster.nodes))
            self._clients.start_all()
            self._suffer()
            self._heal()
            self._converge()
        except NotWell as error:
            self._found.append(Anomaly("not well", str(error)))
        finally:
            self._clients.kill_all()
            self._cluster.stop()
            self._recorder.close()
            self._log.close()
        return self._judge()

    def _suffer(self) -> None:
        end = time.monotonic() + self._settings.seconds
        next_fault = time.monotonic() + 3.0
        while (now := time.monotonic()) < end:
            self._clients.keep_running()
            self._look_for_the_dead()
            for at, fault in [each for each in self._open if each[0] <= now]:
                self._open.remove((at, fault))
                self._end(fault)
            if now >= next_fault and len(self._open) < 2:
                self._begin()
                next_fault = now + self._draw.choice((0.5, 2.0, 4.0, 7.0)) * self._settings.session_ms / 1000
            time.sleep(0.05)

    def _begin(self) -> None:
        fault = draw_fault(self._scene, self._draw)
        self._faults[fault.what.translate(_NO_DIGITS)] += 1
        self._say(f"{fault.what}, for {fault.seconds:.1f} s")
        self._open.append((time.monotonic() + fault.seconds, fault))

    def _end(self, fault: Fault) -> None:
        fault.heal()
        self._say(f"healed: {fault.what}")

    def _look_for_the_dead(self) -> None:
        """A node may be killed, or end because its disk is full; any other end is a finding."""
        for node in self._cluster.nodes:
            code = self._cluster.exit_code(node)
            if code in (None, 0, -signal.SIGKILL, _JAVA_AFTER_SIGTERM) or node in self._scene.excused:
                continue
            self._found.append(Anomaly("node ended", f"{node} with {code}: {self._cluster.said(node)}"))
            self._say(f"node {node} ended with {code}")
            ensure_runs(self._scene, node)

    def _heal(self) -> None:
        for _, fault in self._open:
            self._end(fault)
        self._open.clear()
        for node in self._cluster.nodes:
            ensure_runs(self._scene, node)
        self._clients.keep_running()
        self._say("all is healed")

    def _converge(self) -> None:
        """Clients end in the order in which records flow, so that in the end each group has read all."""
        self._clients.end(SENDING)
        self._inspector.no_transaction_is_open()
        self._say("senders have ended, no transaction is open")
        sent = self._inspector.read_all("after the senders", self._recorder, (SENT_TOPIC, TRANSACTIONS_TOPIC))
        groups = self._clients.groups
        self._inspector.groups_are_done(
            [group for group, kind in groups.items() if kind in COPYING], sent, self._clients.kill_stuck
        )
        self._clients.end(COPYING)
        self._inspector.no_transaction_is_open()
        records = self._inspector.read_all("after the copiers", self._recorder)
        self._inspector.groups_are_done([group for group, kind in groups.items() if kind not in COPYING], records)
        self._clients.end(("member",))
        self._say("groups are done")
        self._read_from_each_copy()

    def _read_from_each_copy(self) -> None:
        """With one node after the other away, others lead, and have to give the same records."""
        nodes = self._cluster.nodes
        for node in nodes[:1] if self._settings.brief else nodes:
            self._cluster.kill(node)
            self._inspector.no_transaction_is_open()
            self._inspector.read_all(f"without node {node}", self._recorder)
            self._say(f"read without node {node}: {Counter(self._inspector.leaders().values())}")
            if not self._settings.brief:
                self._cluster.start(node)
                self._inspector.no_transaction_is_open()

    def _judge(self) -> Outcome:
        observed = Observed(read_events(self._history))
        self._found += anomalies(observed)
        self._found += [Anomaly("client ended", what) for what in self._clients.ended_badly]
        counts = Counter(
            {
                "records sent": len(observed.sends),
                "records acknowledged": sum(observed.surely_there(send) for send in observed.sends.values()),
                "transactions": len(observed.transactions),
                "transactions committed": sum(each.committed for each in observed.transactions.values()),
                "records read": sum(len(poll.records) for each in observed.readings for poll in each.polls),
                "assignments": len(observed.readings),
                "group commits": len(observed.stored),
                "stuck clients": self._clients.stuck,
                **{f"fault: {kind}": count for kind, count in self._faults.items()},
            }
        )
        outcome = Outcome(self._found, counts)
        lines = [f"{each.kind}: {each.what}" for each in outcome.anomalies]
        (self._settings.folder / "anomalies.txt").write_text("\n".join(lines))
        (self._settings.folder / "counts.json").write_text(json.dumps(counts, indent=1))
        return outcome

    def _say(self, what: str) -> None:
        self._log.write(f"{time.monotonic():.3f} {time.strftime('%H:%M:%S')} {what}\n")


_NO_DIGITS: Final = str.maketrans("", "", "0123456789")
