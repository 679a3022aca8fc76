"""A persistent query, batch by batch, over a real log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hand_plans import ARROW, INPUT, count_plan, filter_plan, read_all, rows

from millstream.executor import processing_log
from millstream.executor.batch import ChangeBatch
from millstream.executor.errors import ForeignState, PositionLost
from millstream.executor.pipeline import Pipeline
from millstream.executor.queries import query, query_log
from millstream.executor.queries.known_topics import KnownTopics
from millstream.executor.queries.query import QueryRuntime
from millstream.executor.queries.query_log import offset_group
from millstream.executor.sources.shared_reading import SharedReading
from millstream.executor.sources.source_reader import ReadBatch, SourceReader
from millstream.executor.state import state_commits
from millstream.executor.state.state_commits import StateCommits
from millstream.executor.work_pool import WorkPool
from millstream.logcore.client import ColumnarRecords, FetchedColumns, LogClient, TopicPartition
from millstream.logcore.errors import LogUnavailable, OffsetOutOfRange, ProducerFenced, UnknownTopic
from millstream.logcore.failpoints import FailpointHit, arm
from millstream.logcore.log import open_log
from millstream.planner.physical import PhysicalPlan
from millstream.planner.specs import SqlExpression
from millstream.planner.steps.project import Project
from millstream.sql.types import BIGINT, STRING


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    for topic in ("input", "filtered", "counts"):
        client.create_topic(topic, 1)
    yield client
    arm("")
    client.close()


def drain(runtime: QueryRuntime, max_bytes: int = 1 << 20) -> None:
    while runtime.step(max_bytes):
        pass


def run(plan: PhysicalPlan, client: LogClient, state: Path | None = None) -> QueryRuntime:
    runtime = QueryRuntime(plan, client, state)
    drain(runtime)
    runtime.close()
    return runtime


def value(number: int) -> dict[str, object]:
    return {"V": number, "W": "w"}


def values(client: LogClient, topic: str) -> list[object]:
    return [record["value"] for record in read_all(client, topic)]


def test_a_stateless_query_filters_and_projects(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 10), ("b", value(-1), 20), ("c", value(3), 30)]))
    runtime = run(filter_plan(), client)
    assert [(r["key"], r["value"], r["timestamp"]) for r in read_all(client, "filtered")] == [
        (b"a", {"V": 2, "W": "w"}, 10),
        (b"c", {"V": 6, "W": "w"}, 30),
    ]
    metrics = runtime.metrics
    assert (metrics.rows_in, metrics.rows_used, metrics.rows_dropped, metrics.rows_failed) == (3, 2, 1, 0)


def test_every_change_of_an_aggregate_is_emitted_without_a_cache(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 10), ("b", value(2), 20), ("a", value(3), 30)]))
    run(count_plan(), client)
    assert values(client, "counts") == [{"N": 1, "S": 1}, {"N": 1, "S": 2}, {"N": 2, "S": 4}]


def test_the_last_change_of_a_batch_is_emitted_with_a_cache(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 10), ("b", value(2), 20), ("a", value(3), 30)]))
    run(count_plan(cache=10_000_000), client)
    assert sorted(map(str, values(client, "counts"))) == sorted(["{'N': 1, 'S': 2}", "{'N': 2, 'S': 4}"])


def aborted(client: LogClient) -> None:
    producer = client.transactional_producer("somebody")
    producer.begin()
    producer.append("input", 0, rows([("a", value(7), 10)]))
    producer.abort()


def test_a_query_is_not_behind_where_nothing_is_left_but_an_aborted_transaction(client: LogClient) -> None:
    runtime = QueryRuntime(count_plan(), client, None)
    client.append("input", 0, rows([("a", value(1), 10)]))
    drain(runtime)
    aborted(client)
    drain(runtime)
    at = TopicPartition("input", 0)
    assert (runtime.positions, runtime.lag()) == ({at: 3}, {at: 0})
    assert client.committed_offsets(offset_group("COUNT_1"))[at] == 1, "it makes no batch of its own"
    runtime.rest()
    assert client.committed_offsets(offset_group("COUNT_1"))[at] == 3
    runtime.close()
    client.append("input", 0, rows([("a", value(5), 20)]))
    run(count_plan(), client)
    assert values(client, "counts") == [{"N": 1, "S": 1}, {"N": 2, "S": 6}]


def test_a_start_that_fails_after_the_state_was_opened_leaves_it_to_the_next_one(
    client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.append("input", 0, rows([("a", value(1), 10)]))
    run(count_plan(), client, tmp_path / "state")
    before = list((tmp_path / "state").glob("state-*.duckdb"))

    def unavailable(*_: object, **__: object) -> None:
        raise LogUnavailable("the log is away")

    with monkeypatch.context() as patched:
        patched.setattr(QueryRuntime, "_reader_from", unavailable)
        with pytest.raises(LogUnavailable):
            QueryRuntime(count_plan(), client, tmp_path / "state")
    client.append("input", 0, rows([("a", value(5), 20)]))
    run(count_plan(), client, tmp_path / "state")
    assert list((tmp_path / "state").glob("state-*.duckdb")) == before
    assert values(client, "counts") == [{"N": 1, "S": 1}, {"N": 2, "S": 6}]


def test_a_topic_that_is_not_there_yet_is_waited_for(client: LogClient, tmp_path: Path) -> None:
    """As on a cluster whose other brokers have created it, and the one that is asked does not know of it."""
    client.delete_topic("filtered")
    client.append("input", 0, rows([("a", value(5), 1_000)]))
    with pytest.raises(UnknownTopic, match=r"is not there\. Create it with 1 partition"):
        run(filter_plan(), client, tmp_path / "state")
    client.create_topic("filtered", 1)
    run(filter_plan(), client, tmp_path / "state")
    assert len(read_all(client, "filtered")) == 1


def test_a_topic_that_was_away_and_came_again_is_another_one(client: LogClient, tmp_path: Path) -> None:
    client.append("input", 0, rows([("a", value(1), 10), ("a", value(2), 11)]))
    runtime = QueryRuntime(filter_plan(), client, tmp_path / "state")
    drain(runtime)
    client.delete_topic("input")
    with pytest.raises(UnknownTopic):
        runtime.step()
    with pytest.raises(PositionLost, match="was deleted"):  # it recovers, and has no committed place any more
        runtime.step()
    client.create_topic("input", 1)
    client.append("input", 0, rows([("a", value(3), 12)]))
    for _ in range(2):
        with pytest.raises(PositionLost, match="created again"):
            runtime.step()
    KnownTopics(client, runtime.plan).accept()
    drain(runtime)
    runtime.close()
    assert len(read_all(client, "filtered")) == 3


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_restart_continues_with_the_state(client: LogClient, tmp_path: Path, in_memory: bool) -> None:
    state = None if in_memory else tmp_path / "state"
    client.append("input", 0, rows([("a", value(1), 10)]))
    run(count_plan(), client, state)
    client.append("input", 0, rows([("a", value(5), 20)]))
    run(count_plan(), client, state)
    assert values(client, "counts") == [{"N": 1, "S": 1}, {"N": 2, "S": 6}]


def test_what_a_restart_replays_is_in_the_file_from_then_on(
    client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    client.append("input", 0, rows([("a", value(1), 10)]))
    run(count_plan(), client, state)
    shutil.rmtree(state)
    with monkeypatch.context() as patch:
        patch.setattr(StateCommits, "commit", lambda _: None)  # it dies before it has anything to commit
        QueryRuntime(count_plan(), client, state).close()
    client.append("input", 0, rows([("a", value(5), 20)]))
    run(count_plan(), client, state)
    assert values(client, "counts") == [{"N": 1, "S": 1}, {"N": 2, "S": 6}]


def test_a_batch_asks_for_no_topics(client: LogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the network that takes the longer the more topics there are."""
    runtime = QueryRuntime(count_plan(), client, None)
    client.append("input", 0, rows([("a", value(1), 10)]))
    drain(runtime)
    for name in ("topics", "topic", "partition_count"):
        monkeypatch.setattr(client, name, None)
    client.append("input", 0, rows([("a", value(5), 20)]))
    drain(runtime)
    assert values(client, "counts") == [{"N": 1, "S": 1}, {"N": 2, "S": 6}]
    monkeypatch.undo()
    runtime.close()


def test_a_window_is_part_of_the_key(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 10), ("a", value(2), 1_500), ("a", value(3), 900)]))
    run(count_plan(window_ms=1_000), client)
    assert [(r["key"][1:], r["value"]) for r in read_all(client, "counts")] == [
        ((0).to_bytes(8, "big"), {"N": 1, "S": 1}),
        ((1_000).to_bytes(8, "big"), {"N": 1, "S": 2}),
        ((0).to_bytes(8, "big"), {"N": 2, "S": 4}),
    ]


def test_a_record_that_cannot_be_decoded_goes_to_the_processing_log(client: LogClient) -> None:
    client.append("input", 0, rows([("a", b"{oops", 10), ("b", value(2), 20)]))
    runtime = run(filter_plan(), client)
    assert [r["key"] for r in read_all(client, "filtered")] == [b"b"]
    (entry,) = values(client, processing_log.TOPIC)
    error = entry["message"]["deserializationError"]  # pyrefly: ignore[bad-index]
    assert (error["topic"], error["partition"], error["offset"]) == ("input", 0, 0)
    assert entry["logger"].startswith("processing.FILTER_1")  # pyrefly: ignore[bad-index]
    assert (runtime.metrics.rows_in, runtime.metrics.rows_failed, runtime.metrics.rows_used) == (2, 1, 1)


def failing_plan() -> PhysicalPlan:
    """Fails for records whose W is no number."""
    plan = filter_plan()
    assert isinstance(plan.root.input, Project)  # pyrefly: ignore[missing-attribute]
    failing = replace(
        plan.root.input,
        values=(SqlExpression("CAST(v1 AS BIGINT)", BIGINT), SqlExpression("v1", STRING)),
    )
    return replace(plan, root=replace(plan.root, input=failing))  # pyrefly: ignore[unexpected-keyword]


def test_a_record_that_makes_an_expression_fail_is_found_and_left_out(client: LogClient) -> None:
    records = [(f"k{i}", {"V": i, "W": "poison" if i == 13 else str(i)}, i) for i in range(40)]
    client.append("input", 0, rows(records))
    runtime = run(failing_plan(), client)
    assert [value["V"] for value in values(client, "filtered")] == [i for i in range(40) if i != 13]  # pyrefly: ignore[bad-index]
    (entry,) = values(client, processing_log.TOPIC)
    assert entry["message"]["recordProcessingError"]["offset"] == 13  # pyrefly: ignore[bad-index]
    assert (runtime.metrics.rows_in, runtime.metrics.rows_used, runtime.metrics.rows_failed) == (40, 39, 1)


def test_a_query_that_left_out_a_record_keeps_no_shared_reads_for_its_earlier_readers(client: LogClient) -> None:
    shared = SharedReading(client)
    plans = failing_plan(), replace(filter_plan(), query_id="FILTER_2")
    poisoned, other = (QueryRuntime(plan, client, None, shared=shared) for plan in plans)
    client.append("input", 0, rows([("a", {"V": 1, "W": "poison"}, 10)]))
    drain(poisoned)
    client.append("input", 0, rows([("b", {"V": 2, "W": "2"}, 20)]))
    drain(other)
    drain(poisoned)
    assert poisoned.metrics.rows_failed == 1
    assert shared.kept_bytes == 0
    poisoned.close()
    other.close()


def test_latest_skips_what_is_there_and_stays_where_it_began(client: LogClient) -> None:
    plan = filter_plan(reset="latest")
    client.append("input", 0, rows([("old", value(1), 10)]))
    run(plan, client)
    client.append("input", 0, rows([("new", value(1), 20)]))
    run(plan, client)
    assert [r["key"] for r in read_all(client, "filtered")] == [b"new"]


@pytest.mark.parametrize("restarted", [True, False])
def test_a_query_goes_on_after_removed_records_that_it_has_not_read_and_warns_of_them(
    client: LogClient, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    warned: list[dict[str, object]] = []
    log = SimpleNamespace(warning=lambda event, **of: warned.append({"event": event, **of}))
    monkeypatch.setattr(query_log, "_log", log)
    client.append("input", 0, rows([("a", value(number), number) for number in range(1, 3)]))
    runtime = run(count_plan(), client) if restarted else QueryRuntime(count_plan(), client, None)
    drain(runtime)
    client.delete_records("input", 0, 2)
    assert not warned, "what was read may be removed"
    client.append("input", 0, rows([("a", value(number), number) for number in range(3, 6)]))
    client.delete_records("input", 0, 4)
    if restarted:
        runtime = QueryRuntime(count_plan(), client, None)
    else:
        with pytest.raises(OffsetOutOfRange):
            drain(runtime)
    drain(runtime)
    runtime.close()
    assert values(client, "counts")[-1] == {"N": 3, "S": 1 + 2 + 5}
    of = {"query_id": "COUNT_1", "topic": "input", "partition": 0, "from_offset": 2, "to_offset": 3}
    assert warned == [{"event": "records were removed before they were read", **of}]


def test_an_unknown_reset_is_an_error(client: LogClient) -> None:
    with pytest.raises(Exception, match=r"auto\.offset\.reset"):
        QueryRuntime(filter_plan(reset="yesterday"), client, None)


def test_a_second_runtime_fences_the_first(client: LogClient, tmp_path: Path) -> None:
    client.append("input", 0, rows([("a", value(1), 10)]))
    first = QueryRuntime(count_plan(), client, tmp_path / "state")
    drain(first)
    second = QueryRuntime(count_plan(), client, tmp_path / "state")
    client.append("input", 0, rows([("a", value(5), 20)]))
    with pytest.raises(ProducerFenced):
        first.step()
    drain(second)
    first.close()
    second.close()
    assert values(client, "counts") == [{"N": 1, "S": 1}, {"N": 2, "S": 6}]
    run(count_plan(), client, tmp_path / "state")


def test_after_a_failure_the_query_recovers_from_the_log(client: LogClient, tmp_path: Path) -> None:
    runtime = QueryRuntime(count_plan(), client, tmp_path / "state")
    for number, point in enumerate(("query.processed", "query.appended", "txn.committed", "query.before_store_commit")):
        client.append("input", 0, rows([("a", value(1), number)]))
        arm(f"{point}:1:raise")
        with pytest.raises(FailpointHit):
            drain(runtime)
        arm("")
        drain(runtime)
        assert values(client, "counts")[-1] == {"N": number + 1, "S": number + 1}
    runtime.close()
    assert [v["N"] for v in values(client, "counts")] == [1, 2, 3, 4]  # pyrefly: ignore[bad-index]
    assert runtime.metrics.restarts == 4


@pytest.mark.parametrize("damage", ["garbage", "deleted", "ahead"])
def test_a_state_file_that_cannot_be_used_is_rebuilt(client: LogClient, tmp_path: Path, damage: str) -> None:
    state = tmp_path / "state"
    client.append("input", 0, rows([("a", value(1), 10)]))
    run(count_plan(), client, state)
    (file,) = state.glob("*.duckdb")
    match damage:
        case "garbage":
            file.write_bytes(b"no database" * 1000)
        case "deleted":
            file.unlink()
        case _:
            with duckdb.connect(str(file)) as connection:
                connection.execute("UPDATE _millstream_applied SET applied_offset = 1000")
    client.append("input", 0, rows([("a", value(5), 20)]))
    run(count_plan(), client, state)
    assert values(client, "counts") == [{"N": 1, "S": 1}, {"N": 2, "S": 6}]


def test_a_state_file_of_another_plan_is_not_used(client: LogClient, tmp_path: Path) -> None:
    client.append("input", 0, rows([("a", value(1), 10)]))
    run(count_plan(), client, tmp_path / "state")
    client.delete_topic("_millstream-COUNT_1-changelog")
    client.append("input", 0, rows([("a", value(5), 20)]))
    run(count_plan(window_ms=1000), client, tmp_path / "state")
    assert values(client, "counts")[-1] == {"N": 1, "S": 5}


def test_columnar_topics_carry_typed_columns_between_queries(client: LogClient) -> None:
    client.create_topic("columnar", 1)
    client.append("input", 0, rows([("a", value(1), 10), ("b", value(2), 20), ("a", value(3), 30)]))
    run(filter_plan(sink="columnar", output_format=ARROW), client)
    (batch,) = client.fetch("columnar", 0, 0).runs
    assert isinstance(batch, FetchedColumns)
    assert batch.batch.schema.names[:3] == [column.name for column in INPUT]
    run(count_plan(topic="columnar", value_format=ARROW), client)
    assert values(client, "counts") == [{"N": 1, "S": 2}, {"N": 1, "S": 4}, {"N": 2, "S": 8}]


def test_a_new_key_takes_rows_to_another_task(client: LogClient) -> None:
    for topic in ("many", "regrouped"):
        client.create_topic(topic, 4)
    for partition in range(4):
        client.append("many", partition, rows([(None, {"V": i, "W": f"group-{i % 3}"}, i) for i in range(12)]))
    run(count_plan(topic="many", sink="regrouped", partitions=4, rekey=True), client)
    last: dict[object, object] = {}
    for record in read_all(client, "regrouped", range(4)):
        last[record["key"]] = record["value"]
    assert last == {f"group-{i}".encode(): {"N": 16, "S": 4 * sum(range(i, 12, 3))} for i in range(3)}


def test_records_can_be_processed_in_a_given_order(client: LogClient) -> None:
    client.create_topic("two", 2)
    client.append("two", 0, rows([("a", value(1), 10), ("b", value(2), 20)]))
    client.append("two", 1, rows([("c", value(3), 5)]))
    plan = filter_plan(topic="two", partitions=2)
    plan = replace(plan, root=replace(plan.root, partition_count=1))  # pyrefly: ignore[unexpected-keyword]
    runtime = QueryRuntime(plan, client, None)
    runtime.step_in_order([TopicPartition("two", 0), TopicPartition("two", 1), TopicPartition("two", 0)])
    assert [record["key"] for record in read_all(client, "filtered")] == [b"a", b"c", b"b"]
    runtime.close()


@pytest.mark.parametrize("max_bytes", [1, 500, 1 << 20])
def test_where_a_batch_ends_changes_nothing(client: LogClient, max_bytes: int) -> None:
    for batch in range(20):
        client.append("input", 0, rows([(f"k{(batch + i) % 5}", value(i), batch * 10 + i) for i in range(7)]))
    runtime = QueryRuntime(count_plan(window_ms=50), client, None)
    drain(runtime, max_bytes)
    runtime.close()
    expected: dict[tuple[str, int], list[int]] = {}
    outputs: list[dict[str, int]] = []
    for batch in range(20):
        for i in range(7):
            state = expected.setdefault((f"k{(batch + i) % 5}", (batch * 10 + i) // 50), [0, 0])
            state[0] += 1
            state[1] += i
            outputs.append({"N": state[0], "S": state[1]})
    assert values(client, "counts") == outputs


def test_large_input_is_read_ahead_and_exactly_counted(client: LogClient) -> None:
    for batch in range(6):
        client.append("input", 0, rows([(f"k{i % 100}", value(1), batch) for i in range(4_000)]))
    runtime = QueryRuntime(count_plan(cache=1), client, None)
    drain(runtime, 200_000)
    runtime.close()
    last: dict[object, object] = {}
    for record in read_all(client, "counts"):
        last[record["key"]] = record["value"]
    assert set(map(json.dumps, last.values())) == {json.dumps({"N": 240, "S": 240})}
    assert runtime.metrics.rows_in == 24_000


def test_a_batch_that_does_not_fit_in_memory_is_done_in_smaller_ones(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Pipeline.process

    def of_little_memory(pipeline: Pipeline, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        if sum(batch.rows.num_rows for batch in inputs.values()) > 3:
            raise MemoryError("too much")
        return process(pipeline, inputs)

    monkeypatch.setattr(Pipeline, "process", of_little_memory)
    client.append("input", 0, rows([("a", value(1), number) for number in range(20)]))
    runtime = run(count_plan(), client)
    assert [v["N"] for v in values(client, "counts")] == list(range(1, 21))  # pyrefly: ignore[bad-index]
    assert runtime.metrics.rows_failed == 0


def test_a_record_that_does_not_fit_in_memory_is_not_given_up(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(pipeline: Pipeline, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        raise MemoryError("too much")

    client.append("input", 0, rows([("a", value(1), 1)]))
    runtime = QueryRuntime(count_plan(), client, None)
    with monkeypatch.context() as patched:
        patched.setattr(Pipeline, "process", no_memory)
        with pytest.raises(MemoryError):
            drain(runtime)
    drain(runtime)
    runtime.close()
    assert values(client, "counts") == [{"N": 1, "S": 1}]


def test_a_closed_query_can_go_on(client: LogClient) -> None:
    runtime = QueryRuntime(filter_plan(), client, None)
    for _ in range(2):
        for batch in range(3):
            client.append("input", 0, rows([(f"k{i}", value(1), batch) for i in range(4_000)]))
        drain(runtime, 200_000)
        runtime.close()
    assert runtime.metrics.rows_in == 24_000


def test_a_changelog_that_somebody_else_wrote_to_is_an_error_that_says_so(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 1)]))
    run(count_plan(), client)
    client.append("_millstream-COUNT_1-changelog", 0, rows([("a", value(1), 1)]))
    with pytest.raises(ForeignState) as caught:
        run(count_plan(), client)
    assert caught.value.hint


def test_a_columnar_batch_with_times_that_are_none_leaves_out_its_rows_only(client: LogClient) -> None:
    client.create_topic("columnar", 1)
    time_field = pa.field("_ts", pa.string(), metadata={b"millstream.meta": b"1"})
    schema = pa.schema([("K", pa.string()), ("V", pa.int64()), ("W", pa.string()), time_field])
    foreign = pa.RecordBatch.from_arrays(
        [pa.array(["a"]), pa.array([1]), pa.array(["w"]), pa.array(["soon"])], schema=schema
    )
    client.append("columnar", 0, ColumnarRecords(foreign, 5))
    client.append("columnar", 0, ColumnarRecords(foreign.drop_columns(["_ts"]), 5))
    runtime = run(count_plan(topic="columnar", value_format=ARROW), client)
    assert values(client, "counts") == [{"N": 1, "S": 1}]
    assert runtime.metrics.rows_failed == 1


def test_a_state_that_changed_little_is_committed_later(
    client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = QueryRuntime(count_plan(), client, tmp_path / "state")
    assert runtime.rest_due_s == 0, "there is nothing to commit"
    client.append("input", 0, rows([("a", value(1), 10)]))
    drain(runtime)
    little, changed = runtime.rest_due_s, 1
    monkeypatch.setattr(state_commits, "_FEW_ROWS", changed + 1)
    assert runtime.rest_due_s == little
    monkeypatch.setattr(state_commits, "_FEW_ROWS", changed)
    assert little - runtime.rest_due_s == pytest.approx(9.0)
    runtime.rest()
    assert runtime.rest_due_s == 0
    runtime.close()


@pytest.mark.parametrize(("others_wait", "wanted"), [(True, query.MAX_BATCH_BYTES), (False, query.ALONE_BATCH_BYTES)])
def test_a_batch_is_smaller_where_other_queries_wait_for_their_turn(
    client: LogClient, monkeypatch: pytest.MonkeyPatch, others_wait: bool, wanted: int
) -> None:
    monkeypatch.setattr(WorkPool, "others_wait", others_wait)
    asked: list[int] = []
    read = SourceReader.read

    def noted(reader: SourceReader, max_bytes: int, *rest: Any, **named: Any) -> ReadBatch | None:
        asked.append(max_bytes)
        return read(reader, max_bytes, *rest, **named)

    monkeypatch.setattr(SourceReader, "read", noted)
    client.append("input", 0, rows([("a", value(5), 1_000)]))
    runtime = QueryRuntime(filter_plan(), client, None)
    assert runtime.step()
    runtime.close()
    assert asked[0] == wanted
