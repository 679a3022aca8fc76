"""Batches that are under way at once: written in order, and begun again together when one fails; the state lags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest
from hand_plans import count_plan, read_all, rows

from millstream.executor.batch import ChangeBatch
from millstream.executor.queries import query
from millstream.executor.queries.query import QueryRuntime
from millstream.executor.sink_writer import Output, SinkWriter
from millstream.executor.sources.source_reader import ReadBatch
from millstream.executor.state import state_commits
from millstream.executor.state.state_commits import Settlements
from millstream.executor.state.state_file import StateFile
from millstream.executor.work_pool import Work, WorkPool
from millstream.logcore.client import LogClient
from millstream.logcore.failpoints import FailpointHit, arm
from millstream.logcore.log import open_log

T = TypeVar("T")

BATCHES, PER_BATCH, KEYS = 12, 5, 3
EVERY_CHANGE = {"ksql.streams.cache.max.bytes.buffering": "0"}


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogClient]:
    """With input in many batches, of which every one counts as large."""
    monkeypatch.setattr(query, "READ_AHEAD_RECORDS", 1)
    monkeypatch.setattr(state_commits, "_EVERY_S", 1e9)
    log = open_log(tmp_path / "log", sync="never")
    for topic in ("input", "counts"):
        log.create_topic(topic, 1)
    for batch in range(BATCHES):
        numbers = range(batch * PER_BATCH, (batch + 1) * PER_BATCH)
        log.append("input", 0, rows([(f"key-{n % 3}", {"V": n, "W": "w"}, 1_000 + n) for n in numbers]))
    yield log
    arm("")
    log.close()


def drain(runtime: QueryRuntime) -> None:
    while runtime.step(1):
        pass


def drain_and_rest(runtime: QueryRuntime) -> None:
    drain(runtime)
    runtime.rest()


def counts(client: LogClient) -> list[tuple[bytes, int]]:
    return [(record["key"], record["value"]["N"]) for record in read_all(client, "counts")]


EXPECTED = [(f"key-{n % 3}".encode(), n // 3 + 1) for n in range(BATCHES * PER_BATCH)]


def test_everything_is_written_in_order_when_step_has_nothing_more(client: LogClient, tmp_path: Path) -> None:
    runtime = QueryRuntime(count_plan(), client, tmp_path / "state", EVERY_CHANGE)
    drain(runtime)
    assert counts(client) == EXPECTED
    assert runtime.metrics.rows_in == BATCHES * PER_BATCH
    assert sum(runtime.lag().values()) == 0
    runtime.close()


@pytest.mark.parametrize("nth", [1, 2, 5])
@pytest.mark.parametrize(
    "point",
    ["query.processed", "query.appended", "txn.before_prepare", "txn.committed", "query.before_store_commit"],
)
def test_what_fails_in_one_batch_is_raised_and_begun_again(
    client: LogClient, tmp_path: Path, point: str, nth: int
) -> None:
    runtime = QueryRuntime(count_plan(), client, tmp_path / "state", EVERY_CHANGE)
    arm(f"{point}:{nth}:raise")
    with pytest.raises(FailpointHit):
        drain(runtime)
    arm("")
    drain(runtime)
    assert counts(client) == EXPECTED
    runtime.close()


class NobodyHelps(WorkPool):
    """What is begun is done by who waits for it."""

    def begin(self, call: Callable[[], T]) -> Work[T]:
        return Work(call)


@pytest.mark.parametrize("pool", [WorkPool(2), NobodyHelps(2)])
@pytest.mark.parametrize("bad", [{0}, {33}, {61}, {64}, {32, 33, 34, 36}])
def test_a_record_whose_result_cannot_be_encoded_is_left_out_and_no_other(
    client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: set[int], pool: WorkPool
) -> None:
    """The batches after it are computed by then, those before it may not be written yet."""
    encode = SinkWriter.encode

    def encode_unless_bad(self: SinkWriter, changes: ChangeBatch, batch: ReadBatch) -> Output:
        if any(bad.intersection(inputs.rows["v0"].to_pylist()) for inputs in batch.inputs.values()):
            raise ValueError("no bytes for it")
        return encode(self, changes, batch)

    count = BATCHES * PER_BATCH + 5
    for n in range(count - 5, count):
        client.append("input", 0, rows([(f"key-{n % 3}", {"V": n, "W": "w"}, 1_000 + n)]))  # each alone in its batch
    monkeypatch.setattr(SinkWriter, "encode", encode_unless_bad)
    monkeypatch.setattr(query, "work_pool", lambda: pool)
    runtime = QueryRuntime(count_plan(), client, tmp_path / "state", EVERY_CHANGE)
    drain(runtime)
    good = [f"key-{n % 3}" for n in range(count) if n not in bad]
    assert counts(client) == [(key.encode(), good[: i + 1].count(key)) for i, key in enumerate(good)]
    assert (runtime.metrics.rows_in, runtime.metrics.rows_failed) == (count, len(bad))
    runtime.close()


@pytest.mark.parametrize(
    "pools", [(WorkPool(2), WorkPool(8)), (NobodyHelps(2), WorkPool(3)), (WorkPool(3), WorkPool(1))]
)
@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_who_stops_under_way_goes_on_where_it_was_with_another_number_of_threads(
    client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, pools: tuple[WorkPool, WorkPool]
) -> None:
    for pool, count in zip(pools, (steps, BATCHES), strict=True):
        monkeypatch.setattr(query, "work_pool", lambda pool=pool: pool)
        runtime = QueryRuntime(count_plan(), client, tmp_path / "state", EVERY_CHANGE)
        assert counts(client) == EXPECTED[: len(counts(client))]
        for _ in range(count):
            runtime.step(1)
        runtime.close()
    assert counts(client) == EXPECTED


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("point", ["query.store_commit", "query.store_committed"])
def test_a_commit_of_the_state_file_that_fails_beside_the_batches_is_begun_again(
    client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, nth: int
) -> None:
    monkeypatch.setattr(state_commits, "_EVERY_S", 0.0)
    runtime = QueryRuntime(count_plan(), client, tmp_path / "state", EVERY_CHANGE)
    arm(f"{point}:{nth}:raise")
    with pytest.raises(FailpointHit):
        drain_and_rest(runtime)
    arm("")
    drain(runtime)
    assert counts(client) == EXPECTED
    assert runtime.metrics.restarts == 1
    runtime.close()


@pytest.mark.parametrize("pool", [WorkPool(2), WorkPool(8), NobodyHelps(2)])
def test_the_state_file_is_never_ahead_of_the_log_nor_of_itself(
    client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: WorkPool
) -> None:
    """Whatever was computed meanwhile: its rows are those of the batch up to which it says it has the changelog."""
    seen: list[tuple[int, int]] = []
    write = StateFile.write

    def look(self: StateFile, settlements: Settlements, applied: Mapping[int, int], rows: int) -> None:
        write(self, settlements, applied, rows)
        newest = 'SELECT arg_max(s0_0, _version) AS n FROM "state a" GROUP BY k0'
        with closing(self._database.connect()) as connection:
            ((rows_counted,),) = connection.execute(f"SELECT sum(n) FROM ({newest})").fetchall()
        end = client.offsets("_millstream-COUNT_1-changelog", 0).last_stable_offset
        assert all(offset <= end for offset in applied.values())
        seen.append((int(rows_counted), len(counts(client))))

    for module in (query, state_commits):
        monkeypatch.setattr(module, "work_pool", lambda: pool)
    monkeypatch.setattr(state_commits, "_EVERY_S", 0.0)
    monkeypatch.setattr(StateFile, "write", look)
    runtime = QueryRuntime(count_plan(), client, tmp_path / "state", EVERY_CHANGE)
    drain_and_rest(runtime)
    assert all(counted % PER_BATCH == 0 and counted <= written for counted, written in seen)
    assert seen[-1] == (len(EXPECTED), len(EXPECTED))
    runtime.close()


@pytest.mark.parametrize("rows_max", [1, PER_BATCH, 4 * PER_BATCH])
def test_batches_wait_for_a_commit_that_takes_long(
    client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> None:
    """So what a restart replays, and what waits in memory, stays bounded. Here nobody begins a commit unless another
    one waits for it."""
    done: list[int] = []
    write = StateFile.write

    def note(self: StateFile, settlements: Settlements, applied: Mapping[int, int], rows: int) -> None:
        done.append(rows)
        write(self, settlements, applied, rows)

    monkeypatch.setattr(state_commits, "work_pool", lambda: NobodyHelps(2))
    monkeypatch.setattr(state_commits, "_EVERY_ROWS", 1)
    monkeypatch.setattr(state_commits, "_WAIT_ROWS", rows_max)
    monkeypatch.setattr(StateFile, "write", note)
    runtime = QueryRuntime(count_plan(), client, tmp_path / "state", EVERY_CHANGE)
    drain(runtime)
    runtime.close()
    assert max(done) < rows_max + (query.WRITES + 2) * KEYS, "those that were computed, not written, come on top"
    assert sum(done) == BATCHES * KEYS
    assert counts(client) == EXPECTED


def test_at_rest_the_state_file_has_all_of_the_changelog(client: LogClient, tmp_path: Path) -> None:
    runtime = QueryRuntime(count_plan(), client, tmp_path / "state", EVERY_CHANGE)
    drain(runtime)
    assert runtime._recovered is not None
    assert runtime._recovered.state.applied == {}  # the time has not come yet
    runtime.rest()
    (topic,) = [name for name in client.topics() if name.endswith("-changelog")]
    end = client.offsets(topic, 0).last_stable_offset
    applied = runtime._recovered.state.applied[0]
    runtime.close()
    assert 0 < applied <= end
    again = QueryRuntime(count_plan(), client, tmp_path / "state", EVERY_CHANGE)
    client.append("input", 0, rows([("key-0", {"V": 0, "W": "w"}, 2_000)]))
    drain(again)
    again.close()
    assert counts(client)[-1] == (b"key-0", BATCHES * PER_BATCH // 3 + 1)
