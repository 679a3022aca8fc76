"""ConnectorSandbox: time that the test moves, and deaths that it chooses, for sources and sinks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from millstream.executor.connect.connector import ConnectRecord, SinkConnector, TaskInfo
from millstream.executor.connect.connector_errors import ConnectorFailed, InvalidConnector, SystemUnavailable
from millstream.executor.connect.connector_settings import setting
from millstream.executor.connect.sources.datagen import Datagen
from millstream.executor.connect.sources.file_source import FileSource
from millstream.logcore.client import TopicPartition
from millstream.testing import ConnectorSandbox

USERS = {"quickstart": "users", "kafka.topic": "users", "key.converter": "string"}


def test_an_hour_of_records_takes_no_time_and_has_the_virtual_times() -> None:
    began = time.monotonic()
    with ConnectorSandbox(Datagen, {**USERS, "max.interval": "60000"}, now_ms=1_000_000) as sandbox:
        for _ in range(60):
            sandbox.run()
            sandbox.clock.advance(60_000)
        times = [record.timestamp_ms for record in sandbox.records("users")]
    assert times == [1_000_000 + 60_000 * minute for minute in range(60)]
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    "point", ["after_read", "after_records", "after_position", "after_commit", "after_acknowledge"]
)
def test_a_built_in_source_loses_and_repeats_nothing(tmp_path: Path, point: str) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{number}\n" for number in range(1000)))
    with ConnectorSandbox(FileSource, {"file": str(file), "topic": "lines", "value.converter": "string"}) as sandbox:
        sandbox.kill_at(point)
        sandbox.run()
        sandbox.restart()
        file.write_text(file.read_text() + "more\n")
        sandbox.run()
        assert sandbox.deaths == 1
        assert [record.value for record in sandbox.records("lines")] == [*map(str, range(1000)), "more"]


@dataclass(frozen=True)
class LetterSettings:
    topics: str = setting("What is read.")
    fails: int = setting("Writes that fail first.", default=0)


class Letters(SinkConnector):
    """Keeps what it gets; the clock is the only one it asks."""

    settings = LetterSettings
    got: ClassVar[list[ConnectRecord]]
    attempts: ClassVar[list[float]]

    def __init__(self, settings: LetterSettings, task: TaskInfo) -> None:
        self._settings, self._clock = settings, task.clock

    def write(self, records: Sequence[ConnectRecord], positions: Mapping[TopicPartition, int]) -> None:
        type(self).attempts.append(self._clock.monotonic())
        if len(type(self).attempts) <= self._settings.fails:
            raise SystemUnavailable("not yet")
        type(self).got += records


@pytest.fixture(autouse=True)
def _nothing_yet() -> None:
    Letters.got, Letters.attempts = [], []


@pytest.mark.parametrize(
    ("point", "times"), [("sink_after_read", 1), ("sink_after_write", 2), ("sink_after_commit", 1)]
)
def test_a_sink_is_killed_where_a_write_may_be_repeated(point: str, times: int) -> None:
    with ConnectorSandbox(Letters, {"topics": "t"}) as sandbox:
        for number in range(3):
            sandbox.produce("t", {"id": number}, {"n": number})
        sandbox.kill_at(point)
        sandbox.run()
        assert [record.value["n"] for record in Letters.got] == [0, 1, 2] * times
        assert sandbox.deaths == 1


def test_a_system_that_is_not_available_is_asked_again_by_the_virtual_clock() -> None:
    with ConnectorSandbox(Letters, {"topics": "t", "fails": "5"}) as sandbox:
        sandbox.produce("t", None, {"n": 1})
        sandbox.run()
        assert len(Letters.got) == 1
        pauses = [after - before for before, after in zip(Letters.attempts, Letters.attempts[1:], strict=False)]
        assert pauses == sorted(pauses) and pauses[0] > 0 and sum(pauses) > 5
    with ConnectorSandbox(Letters, {"topics": "t", "fails": "100"}) as sandbox:
        sandbox.produce("t", None, {"n": 1})
        with pytest.raises(SystemUnavailable, match="not yet"):
            sandbox.run()


def test_what_ends_a_task_ends_the_run_and_wrong_names_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("no json\n")
    with ConnectorSandbox(FileSource, {"file": str(file), "topic": "t", "format": "ndjson"}) as sandbox:
        with pytest.raises(ConnectorFailed, match="the line at offset 0"):
            sandbox.run()
        assert sandbox.records("t") == []
        with pytest.raises(InvalidConnector, match='sink_after_read" is no kill point'):
            sandbox.kill_at("sink_after_read")
    with pytest.raises(InvalidConnector, match="topic is missing"):
        ConnectorSandbox(FileSource, {"file": "x"})
