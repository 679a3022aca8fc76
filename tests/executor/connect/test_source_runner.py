"""A task of a source that dies anywhere: each record is in the log once, in order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from connectors import read_topic

from millstream.executor.connect.connector import Chunk, ConnectRecord, Position, SourceConnector, TaskInfo
from millstream.executor.connect.connector_errors import ConnectorFailed, InvalidConnector
from millstream.executor.connect.connector_settings import setting
from millstream.executor.connect.source_runner import SourceRunner
from millstream.executor.connect.task_positions import read_position
from millstream.logcore.errors import ProducerFenced
from millstream.logcore.failpoints import FailpointHit, arm
from millstream.logcore.log import Log, open_log

POINTS = ("after_read", "after_records", "after_position", "after_commit", "after_acknowledge")


@dataclass(frozen=True)
class NumbersSettings:
    limit: int = setting("Records to write.", default=60)
    parts: int = setting("Chunks of a transaction.", default=1)


class Numbers(SourceConnector):
    """0, 1, 2, …, some at a time."""

    settings = NumbersSettings

    def __init__(self, settings: NumbersSettings, task: TaskInfo) -> None:
        self._settings = settings
        self.acknowledged: list[int] = []

    def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
        first = 0 if position is None else position["next"]
        if first >= self._settings.limit:
            return None
        end = min(first + 3, self._settings.limit)
        records = [ConnectRecord("numbers", None, {"n": number}) for number in range(first, end)]
        return Chunk(
            records, {"next": end}, complete=end // 3 % self._settings.parts == 0 or end == self._settings.limit
        )

    def acknowledge(self, position: Position) -> None:
        self.acknowledged.append(position["next"])


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", sync="never") as opened:
        yield opened
    arm("")


def run(running: SourceRunner) -> None:
    while running.step(0):
        pass


def runner(log: Log, **config: str) -> SourceRunner:
    settings = NumbersSettings(parts=int(config.get("parts", "1")))
    return SourceRunner(log, Numbers(settings, TaskInfo("n")), TaskInfo("n"), config)


def numbers(log: Log) -> list[int]:
    return [record.json["n"] for record in read_topic(log, "numbers")]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("nth", [1, 2, 5])
def test_a_task_that_dies_at_any_step_leaves_each_record_once(log: Log, point: str, nth: int) -> None:
    running = runner(log)
    arm(f"connect.{point}:{nth}:raise")
    with pytest.raises(FailpointHit):
        run(running)
    again = runner(log)  # the dead one closes nothing: its transaction stays open
    run(again)
    assert numbers(log) == list(range(60))
    assert read_position(log, "n", 0) == {"next": 60}


def test_transactions_of_several_chunks_survive_many_deaths(log: Log) -> None:
    chance = random.Random(4)
    deaths = 0
    while read_position(log, "n", 0) != {"next": 60}:
        running = runner(log, parts="4")
        arm(f"connect.{chance.choice(POINTS)}:{chance.randrange(1, 4)}:raise")
        try:
            run(running)
        except FailpointHit:
            deaths += 1
    assert numbers(log) == list(range(60))
    assert deaths > 3


def test_what_is_not_complete_is_not_seen_and_not_acknowledged(log: Log) -> None:
    source = Numbers(NumbersSettings(parts=2), TaskInfo("n"))
    running = SourceRunner(log, source, TaskInfo("n"), {})
    assert running.step(0)
    assert (numbers(log), source.acknowledged, running.position) == ([], [], None)
    assert running.step(0)
    assert (numbers(log), source.acknowledged, running.position) == (list(range(6)), [6], {"next": 6})


def test_an_older_task_is_fenced(log: Log) -> None:
    older = runner(log)
    assert older.step(0)
    newer = runner(log)
    with pytest.raises(ProducerFenced):
        older.step(0)
    run(newer)
    assert numbers(log) == list(range(60))


@pytest.mark.parametrize("topic", ["_millstream-command", "_schemas"])
def test_topics_of_our_own_are_refused(log: Log, topic: str) -> None:
    routed = runner(log, **{
        "transforms": "r", "transforms.r.type": "RegexRouter", "transforms.r.regex": ".*",
        "transforms.r.replacement": topic,
    })  # fmt: skip
    with pytest.raises(InvalidConnector, match="is reserved"):
        routed.step(0)
    with pytest.raises(InvalidConnector, match="is reserved"):
        runner(log, **{"errors.tolerance": "all", "errors.deadletterqueue.topic.name": topic})


def test_a_value_without_bytes_is_refused(log: Log) -> None:
    with pytest.raises(ConnectorFailed, match="integer converter cannot write a value of type dict"):
        runner(log, **{"value.converter": "integer"}).step(0)


def test_records_of_one_key_go_to_one_partition_and_others_take_turns(log: Log) -> None:
    config = {
        "topic.creation.default.partitions": "3", "transforms": "k", "transforms.k.type": "HoistField$Key",
        "transforms.k.field": "n",
    }  # fmt: skip
    run(runner(log, **config))
    assert log.partition_count("numbers") == 3
    assert sorted(numbers(log)) == list(range(60))
    assert all(log.offsets("numbers", partition).log_end_offset > 10 for partition in range(3))


def test_a_record_that_no_converter_takes_ends_the_task_or_is_a_dead_letter(log: Log) -> None:
    with pytest.raises(ConnectorFailed, match="a record of the topic numbers cannot be written: the integer converter"):
        run(runner(log, **{"value.converter": "integer"}))
    tolerant = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead", "value.converter": "integer"}
    arm("connect.after_position:2:raise")
    with pytest.raises(FailpointHit):
        run(runner(log, **tolerant))
    run(runner(log, **tolerant))
    letters = read_topic(log, "dead")
    assert [letter.json["n"] for letter in letters] == list(range(60))
    headers = {header["key"]: header["value"] for header in letters[0].headers or ()}
    assert headers["__connect.errors.connector.name"] == b"n"
    assert read_topic(log, "numbers") == []


def test_a_tolerance_that_nobody_knows_is_refused(log: Log) -> None:
    with pytest.raises(InvalidConnector, match=r'errors\.tolerance is "some"'):
        runner(log, **{"errors.tolerance": "some"})


def test_partitions_that_are_added_get_records_from_the_next_transaction_on(log: Log) -> None:
    """They got none before the task began again, which then put keys elsewhere than all other producers meanwhile."""
    running = runner(log, parts="2")
    running.step(0)
    log.add_partitions("numbers", 3)
    running.step(0)  # completes the transaction
    assert [log.offsets("numbers", partition).log_end_offset > 0 for partition in range(3)] == [True, False, False]
    run(running)
    assert all(log.offsets("numbers", partition).log_end_offset > 10 for partition in range(3))
    assert sorted(numbers(log)) == list(range(60))
