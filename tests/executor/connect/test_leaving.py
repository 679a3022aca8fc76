"""A task that hangs in another system, and is let go of: it writes nothing once its successor has begun."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from connectors import read_topic
from waiting import eventually

from millstream.executor.connect import leaving
from millstream.executor.connect.connector import (
    Chunk,
    ConnectRecord,
    Position,
    SinkConnector,
    SourceConnector,
    TaskInfo,
)
from millstream.executor.connect.connector_secrets import Secrets
from millstream.executor.connect.leaving import Departure, LeavingTasks, TaskReplaced, Tenure
from millstream.executor.connect.secret_vault import KnownSecrets, SecretVault
from millstream.executor.connect.sink_runner import SinkRunner, group_of
from millstream.executor.connect.source_runner import SourceRunner
from millstream.executor.connect.task_worker import TaskRunner, TaskWorker
from millstream.logcore.clients.producer import Producer
from millstream.logcore.log import Log, open_log


class Hanging:
    """A system that does not answer, until it does. `asked`: somebody waits for it."""

    def __init__(self) -> None:
        self.asked, self.answers = threading.Event(), threading.Event()

    def call(self) -> None:
        self.asked.set()
        self.answers.wait()


class Counting(SourceConnector):
    """0, 1, 2, … In: `end`: its one number is the first one that is not there yet; `opened`, `reads`: called when it is
    opened, and before it reads."""

    def __init__(
        self, end: list[int], *, opened: Callable[[], None] = lambda: None, reads: Callable[[], None] = lambda: None
    ) -> None:
        self._end = end
        self._reads = reads
        opened()

    def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
        self._reads()
        number = 0 if position is None else position["next"]
        if number >= self._end[0]:
            return None
        return Chunk([ConnectRecord("numbers", None, number)], {"next": number + 1})


class Kept(SinkConnector):
    """Keeps what it is given. In: `call`: made for each record."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self.records: list[object] = []

    def write(self, records: object, positions: object) -> None:
        self._call()
        self.records.append(records)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "LEAVES_S", 0.1)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", sync="never") as opened:
        yield opened


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    system = Hanging()
    yield system
    system.answers.set()


def worker(opening: Callable[[TaskInfo], TaskRunner], *before: Departure) -> TaskWorker:
    tenure = Tenure()
    task, secrets = TaskInfo("c", tenure=tenure), Secrets(KnownSecrets(SecretVault(), dict))
    started = TaskWorker("c", 0, lambda: opening(task), secrets, paused=False, tenure=tenure, before=before)
    started.start()
    return started


def left(task: TaskWorker) -> LeavingTasks:
    task.ask_to_stop()
    return LeavingTasks("c", (task,))


@pytest.mark.parametrize("where", ["opened", "reads"])
def test_a_source_that_is_answered_after_its_successor_has_begun_leaves_it_alone(
    log: Log, hanging: Hanging, where: str
) -> None:
    """A producer that is made late would fence the successor's."""
    end = [3]
    old = worker(lambda task: SourceRunner(log, Counting(end, **{where: hanging.call}), task, {}))
    hanging.asked.wait()
    new = worker(lambda task: SourceRunner(log, Counting(end), task, {}), left(old))
    eventually(lambda: len(read_topic(log, "numbers")) == 3)
    hanging.answers.set()
    assert old.ends_within(10)
    end[0] = 5
    eventually(lambda: len(read_topic(log, "numbers")) == 5, otherwise=str(new.status()))
    new.stop()
    assert [read.json for read in read_topic(log, "numbers")] == [0, 1, 2, 3, 4]


def test_a_sink_that_is_answered_late_moves_no_offsets(log: Log, hanging: Hanging) -> None:
    log.create_topic("t", 1)
    with Producer(log) as producer:
        producer.send("t", b"1", None)
    old = worker(lambda task: _sink_runner(log, Kept(hanging.call), task))
    hanging.asked.wait()
    assert left(old).wait(10)
    hanging.answers.set()
    assert old.ends_within(10)
    assert log.committed_offsets(group_of("c")) == {}


def test_a_task_begins_when_those_before_it_have_gone_and_can_be_stopped_meanwhile(hanging: Hanging) -> None:
    opened: list[TaskInfo] = []

    def opening(task: TaskInfo) -> TaskRunner:
        opened.append(task)
        hanging.call()
        raise OSError("gone")

    first = worker(opening)
    hanging.asked.wait()
    gone, before = left(first), Departure("c", "its slot is not removed yet")
    second = worker(opening, gone, before)
    eventually(lambda: "is not removed yet" in (second.status().error or ""))
    third = worker(opening, gone, before, left(second))
    assert second.ends_within(10)
    assert len(opened) == 1
    before.finish()
    eventually(lambda: len(opened) == 2)
    hanging.answers.set()
    third.stop()


def test_nothing_is_under_way_once_a_tenure_has_ended() -> None:
    tenure, inside, done = Tenure(), threading.Event(), list[str]()

    def write() -> None:
        with tenure:
            inside.set()
            eventually(lambda: "ends" in done)
            done.append("written")

    writing = threading.Thread(target=write)
    writing.start()
    inside.wait()
    done.append("ends")
    tenure.end()
    assert done == ["ends", "written"]
    with pytest.raises(TaskReplaced):
        tenure.check()
    writing.join()


def _sink_runner(log: Log, sink: SinkConnector, task: TaskInfo) -> SinkRunner:
    return SinkRunner(log, sink, task, {"topics": "t"}, lambda topic, batch, time_ms: pytest.fail("columnar"))
