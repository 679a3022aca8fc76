"""A disk that fills up under a running query: the query waits and goes on, and every record has exactly its effect."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hand_plans import count_plan, filter_plan, read_all, rows
from waiting import eventually

from millstream.executor.queries import query_worker
from millstream.executor.queries.duckdb_executor import DuckDBExecutor
from millstream.executor.queries.query_log import changelog_topic
from millstream.executor.state import cached_rows, state_commits, store
from millstream.logcore.client import LogClient
from millstream.logcore.errors import LogFull
from millstream.logcore.failpoints import arm
from millstream.logcore.log import open_log
from millstream.logcore.storage.disk import LogFile
from millstream.planner.catalog import PersistentQuery
from millstream.planner.physical import PhysicalPlan

SUPPORT = Path(__file__).parent.parent / "support"


class Disk:
    """A disk that is full while `full` is set: every write to the log is refused, as by the operating system."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = threading.Event()
        self.refused = 0
        write = LogFile.write

        def checked_write(file: LogFile, buffers: list[bytes], position: int) -> int:
            if self.full.is_set():
                self.refused += 1
                raise OSError(28, "No space left on device")
            return write(file, buffers, position)

        monkeypatch.setattr(LogFile, "write", checked_write)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(query_worker, "BACKOFF_S", 0.001)
    monkeypatch.setattr(query_worker, "BACKOFF_MAX_S", 0.05)
    return Disk(monkeypatch)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log")
    for topic in ("input", "filtered", "counts"):
        client.create_topic(topic, 1)
    yield client
    arm("")
    client.close()


@pytest.fixture
def executor(client: LogClient, tmp_path: Path) -> Iterator[DuckDBExecutor]:
    executor = DuckDBExecutor(client, tmp_path / "queries")
    yield executor
    executor.close()


def query(plan: PhysicalPlan) -> PersistentQuery:
    return PersistentQuery(plan.query_id, "", plan, "SINK", ("INPUT",), "CREATE_AS")


def append(client: LogClient, count: int) -> None:
    client.append("input", 0, rows([("a", {"V": 1, "W": "w"}, number) for number in range(count)]))


def counts(client: LogClient) -> list[int]:
    return [record["value"]["N"] for record in read_all(client, "counts")]


def test_a_query_waits_for_room_and_goes_on(
    client: LogClient, executor: DuckDBExecutor, monkeypatch: pytest.MonkeyPatch, disk: Disk
) -> None:
    monkeypatch.setattr(query_worker, "FAILURES_MAX", 2)
    append(client, 3)
    executor.start(query(count_plan()))
    eventually(lambda: counts(client) == [1, 2, 3])
    append(client, 2)
    disk.full.set()
    append_refused(client)
    eventually(lambda: disk.refused > 3 * query_worker.FAILURES_MAX)
    eventually(lambda: "no room" in (executor.status("COUNT_1").error or ""))
    assert executor.status("COUNT_1").state == "RUNNING"
    disk.full.clear()
    eventually(lambda: counts(client) == [1, 2, 3, 4, 5])
    append(client, 1)
    eventually(lambda: counts(client) == [1, 2, 3, 4, 5, 6])
    eventually(lambda: executor.status("COUNT_1").error is None)
    eventually(lambda: set(executor.status("COUNT_1").lag.values()) == {0})


def test_a_query_waits_for_room_to_lay_rows_aside(
    client: LogClient, executor: DuckDBExecutor, monkeypatch: pytest.MonkeyPatch, disk: Disk
) -> None:
    """Memory has room for one row, and the log has a disk of its own."""
    monkeypatch.setattr(query_worker, "FAILURES_MAX", 2)
    monkeypatch.setattr(store, "ROOM_BYTES", 0)
    monkeypatch.setattr(cached_rows, "_FEWEST", 1)
    write, full, refused = os.pwrite, threading.Event(), []

    def checked_write(file: int, content: memoryview, offset: int) -> int:
        if full.is_set() and os.fstat(file).st_nlink == 0:
            refused.append(file)
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, content, offset)

    monkeypatch.setattr(os, "pwrite", checked_write)
    executor.start(query(count_plan()))
    batch = rows([(key, {"V": 1, "W": key}, 0) for key in "abc"])
    client.append("input", 0, batch)
    eventually(lambda: counts(client) == [1, 1, 1])
    full.set()
    client.append("input", 0, batch)
    eventually(lambda: len(refused) > query_worker.FAILURES_MAX)
    assert executor.status("COUNT_1").state == "RUNNING"
    eventually(lambda: "cannot be laid aside" in (executor.status("COUNT_1").error or ""))
    full.clear()
    eventually(lambda: counts(client) == [1, 1, 1, 2, 2, 2])
    assert disk.refused == 0


def append_stubbornly(client: LogClient, count: int) -> None:
    """The refused write may be this one."""
    try:
        append(client, count)
    except LogFull:
        append(client, count)


def append_refused(client: LogClient) -> None:
    with pytest.raises(LogFull) as caught:
        append(client, 1)
    assert caught.value.hint


@pytest.mark.parametrize("plan", [count_plan(), filter_plan()], ids=["stateful", "stateless"])
@pytest.mark.parametrize("refused", range(1, 9))
def test_whichever_write_is_refused_nothing_is_lost_or_doubled(
    client: LogClient, tmp_path: Path, disk: Disk, plan: PhysicalPlan, refused: int
) -> None:
    """The writes of a batch are its output, the changelog, the commit record, markers and offsets; of the recovery,
    the epoch and the end of the transaction."""
    del disk  # here for its short waits
    with_executor = DuckDBExecutor(client, tmp_path / "queries")
    with_executor.start(query(plan))
    append(client, 2)
    sink = "counts" if plan.query_id == "COUNT_1" else "filtered"
    eventually(lambda: len(read_all(client, sink)) == 2)
    arm(f"append.write:{refused + 1}:enospc")  # the first one is the input's
    append_stubbornly(client, 2)
    for number in range(3):
        eventually(lambda number=number: len(read_all(client, sink)) == 4 + number)
        append_stubbornly(client, 1)
    eventually(lambda: len(read_all(client, sink)) == 7)
    eventually(lambda: set(with_executor.status(plan.query_id).lag.values()) == {0})
    with_executor.close()
    if sink == "counts":
        assert counts(client) == [1, 2, 3, 4, 5, 6, 7]
    for topic in (sink, changelog_topic(plan.query_id)):
        if topic in client.topics():
            offsets = client.offsets(topic, 0)
            assert offsets.last_stable_offset == offsets.high_watermark


@pytest.mark.parametrize("point", ["query.before_store_commit", "query.store_commit"])
def test_a_state_file_that_cannot_grow_is_rebuilt_from_the_log(
    client: LogClient, executor: DuckDBExecutor, disk: Disk, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setattr(state_commits, "_EVERY_S", 0.0)
    append(client, 2)
    executor.start(query(count_plan()))
    eventually(lambda: counts(client) == [1, 2])
    arm(f"{point}:1:enospc")
    append(client, 2)
    eventually(lambda: counts(client) == [1, 2, 3, 4])
    append(client, 1)
    eventually(lambda: counts(client) == [1, 2, 3, 4, 5])


FILES_TOO_LARGE = """
import json, resource, signal, sys, time
from pathlib import Path
import structlog
from hand_plans import count_plan, read_all, rows
from millstream.executor.queries import query_worker
from millstream.executor.queries.duckdb_executor import DuckDBExecutor
from millstream.logcore.errors import LogFull
from millstream.logcore.log import open_log
from millstream.planner.catalog import PersistentQuery

query_worker.BACKOFF_MAX_S = 0.05
structlog.get_config()["processors"][-1].exception_formatter = structlog.dev.plain_traceback
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
client = open_log(folder / "log")
for topic in ("input", "counts"):
    client.create_topic(topic, 1)
plan = count_plan()
executor = DuckDBExecutor(client, folder / "queries")
executor.start(PersistentQuery(plan.query_id, "", plan, "SINK", ("INPUT",), "CREATE_AS"))

def append():
    client.append("input", 0, rows([("a", {"V": 1, "W": "w" * 50}, 1)]))

def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, (executor.status("COUNT_1"), len(read_all(client, "counts")))
        time.sleep(0.02)

append()
until(lambda: len(read_all(client, "counts")) == 1)
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
limit = 40_000
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, unlimited[1]))
acknowledged = 1
refused = False
for _ in range(400):
    try:
        append()
        acknowledged += 1
    except LogFull:
        refused = True
    status = executor.status("COUNT_1")
    if refused and status.error:
        break
assert refused or status.error, "the limit was never met"
time.sleep(1)
assert executor.status("COUNT_1").state == "RUNNING", executor.status("COUNT_1")
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
until(lambda: len(read_all(client, "counts")) == acknowledged)
append()
until(lambda: len(read_all(client, "counts")) == acknowledged + 1)
executor.close()
print(json.dumps([acknowledged + 1, [record["value"]["N"] for record in read_all(client, "counts")]]))
client.close()
"""


def test_a_limit_of_the_operating_system_is_survived_by_log_and_query(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILES_TOO_LARGE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
        env={"PYTHONPATH": str(SUPPORT)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    acknowledged, found = json.loads(done.stdout.splitlines()[-1])
    assert found == list(range(1, acknowledged + 1))
