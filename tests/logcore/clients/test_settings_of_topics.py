"""What can be set on topics, and what is said of records that a topic does not take."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from waiting import eventually

from millstream.logcore.client import RowRecords
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.records.codec import encode

from .asking import TOPIC, Asking
from .outside import unique

_INVALID_TIMESTAMP, _INVALID_CONFIG, _INVALID_REQUEST, _INVALID_RECORD = 32, 40, 42, 87
_APPEND, _SUBTRACT = 2, 3  # operations of IncrementalAlterConfigs
_BEFORE, _AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
_HOUR_MS = 60 * 60 * 1000


@pytest.mark.parametrize(
    "config",
    [
        {"no.such.setting": "1"}, {"retention.ms": "soon"}, {"cleanup.policy": "burn"}, {_BEFORE: "-1"},
        {_AFTER: "soon"},
    ],
)  # fmt: skip
def test_a_topic_is_not_made_with_a_setting_that_does_not_exist_or_fit(asking: Asking, config: dict[str, str]) -> None:
    refused = asking.try_to_create(unique("t"), config=config)
    assert refused.error_code == _INVALID_CONFIG
    (name,) = config
    assert name in refused.error_message


def test_the_records_that_are_to_blame_are_named(asking: Asking) -> None:
    compacted = asking.create_topic(config={"cleanup.policy": "compact"})
    refused = asking.produce(compacted, b"a", b"b", b"c", key=None)
    assert refused.error_code == _INVALID_RECORD
    assert [number for number, _ in refused.record_errors] == [0, 1, 2]
    assert all("without" in (reason or "") and "key" in (reason or "") for _, reason in refused.record_errors)
    assert asking.produce(compacted, b"a").error_code == 0


def test_a_setting_says_where_it_comes_from_and_what_stands_behind_it(asking: Asking) -> None:
    topic = asking.create_topic(config={"retention.ms": "1000000"})
    found = asking.settings(TOPIC, topic, synonyms=True)
    mine = found["retention.ms"]
    assert (mine.value, mine.config_source, mine.read_only, mine.is_sensitive) == ("1000000", 1, False, False)
    assert (mine.synonyms[0].name, mine.synonyms[0].value, mine.synonyms[0].source) == ("retention.ms", "1000000", 1)
    usual = found["cleanup.policy"]
    assert (usual.value, usual.config_source) == ("delete", 5)
    assert [(each.name, each.value, each.source) for each in usual.synonyms] == [("log.cleanup.policy", "delete", 5)]
    assert all(not entry.synonyms for entry in asking.settings(TOPIC, topic).values())


def _apply(asking: Asking, topic: str, name: str, operation: int, value: str) -> int:
    configs = [{"name": name, "value": value, "config_operation": operation}]
    asked = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
    (answer,) = asking.ask(Api.INCREMENTAL_ALTER_CONFIGS, {"resources": [asked]}).responses
    return int(answer.error_code)


def test_values_are_appended_to_lists_only_and_an_unset_list_has_its_default(asking: Asking) -> None:
    topic = asking.create_topic()
    for name in ("retention.ms", "compression.type", "no.such.setting"):
        for operation in (_APPEND, _SUBTRACT):
            assert _apply(asking, topic, name, operation, "1") == _INVALID_CONFIG
    assert _apply(asking, topic, "cleanup.policy", _APPEND, "compact") == 0
    eventually(lambda: asking.settings(TOPIC, topic)["cleanup.policy"].value == "delete,compact")
    assert asking.settings(TOPIC, topic)["retention.ms"].value != "1"


def test_nothing_is_done_with_a_topic_that_a_request_names_twice(asking: Asking) -> None:
    twice, once = unique("t"), unique("t")
    timeout = {"timeout": timedelta(seconds=30)}

    def outcomes(answers: Iterable[Any]) -> list[tuple[str, int]]:
        return sorted((each.name, each.error_code) for each in answers)

    new = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in (twice, once, twice)]
    expected = sorted([(twice, _INVALID_REQUEST), (once, 0)])
    assert outcomes(asking.ask(Api.CREATE_TOPICS, {"topics": new, **timeout}).topics) == expected
    asking.create_topic(twice)
    more = [{"name": name, "count": count} for name, count in ((twice, 2), (once, 2), (twice, 3))]
    assert outcomes(asking.ask(Api.CREATE_PARTITIONS, {"topics": more, **timeout}).results) == expected
    gone = [{"name": name, "topic_id": None} for name in (twice, once, twice)]
    assert outcomes(asking.ask(Api.DELETE_TOPICS, {"topics": gone, **timeout}).responses) == expected
    asking.delete_topic(twice)


def _at(*times_ms: int) -> Sequence[object]:
    """Records with these times, as a batch of bytes."""
    count = len(times_ms)
    columns = {"key": pa.array([b"k"] * count), "value": pa.array([b"v"] * count)}
    table = pa.table({"timestamp": pa.array(times_ms, pa.int64()), **columns})
    return [buffer for batch in encode(RowRecords(table)) for buffer in batch.buffers]


def test_times_too_far_from_now_are_refused_and_the_records_are_named(asking: Asking) -> None:
    topic = asking.create_topic(config={_BEFORE: str(_HOUR_MS), _AFTER: str(2 * _HOUR_MS)})
    now_ms = time.time_ns() // 1_000_000
    fine = (now_ms, now_ms - _HOUR_MS // 2, now_ms + _HOUR_MS, -1)  # -1: without a time
    assert [asking.append(topic, _at(when)).error_code for when in fine] == [0] * len(fine)
    refused = asking.append(topic, _at(now_ms, now_ms - 2 * _HOUR_MS, now_ms, now_ms + 3 * _HOUR_MS))
    assert refused.error_code == _INVALID_TIMESTAMP
    assert [number for number, _ in refused.record_errors] == [1, 3]
    assert asking.append(topic, _at(now_ms)).base_offset == len(fine)  # nothing of the refused batch is there


def test_each_limit_of_times_holds_alone_and_from_when_it_is_set(asking: Asking) -> None:
    long_ago, far_on = 1, (time.time_ns() // 1_000_000) + 1000 * _HOUR_MS
    topic = asking.create_topic(config={_AFTER: str((1 << 63) - 1)})  # the default of Kafka 4 is an hour
    assert [asking.append(topic, _at(when)).error_code for when in (long_ago, far_on)] == [0, 0]
    assert asking.change(TOPIC, topic, {_BEFORE: "0"}).error_code == 0
    eventually(lambda: asking.append(topic, _at(long_ago)).error_code == _INVALID_TIMESTAMP)
    assert asking.append(topic, _at(far_on)).error_code == 0
    assert asking.change(TOPIC, topic, {_BEFORE: None, _AFTER: "0"}).error_code == 0
    eventually(lambda: asking.append(topic, _at(far_on)).error_code == _INVALID_TIMESTAMP)
    assert asking.append(topic, _at(long_ago)).error_code == 0


def test_a_topic_that_gives_its_own_times_takes_any(asking: Asking) -> None:
    topic = asking.create_topic(config={_BEFORE: "0", _AFTER: "0", "message.timestamp.type": "LogAppendTime"})
    assert asking.append(topic, _at(1, 1 << 60)).error_code == 0


def test_limits_of_times_are_described_as_kafkas(asking: Asking) -> None:
    found = asking.settings(TOPIC, asking.create_topic(config={_BEFORE: "1000"}), synonyms=True)
    mine = found[_BEFORE]
    assert (mine.value, mine.config_source, mine.config_type) == ("1000", 1, 5)
    assert [(each.name, each.value, each.source) for each in mine.synonyms] == [
        (_BEFORE, "1000", 1), (f"log.{_BEFORE}", str((1 << 63) - 1), 5),
    ]  # fmt: skip
    usual = found[_AFTER]
    assert usual.config_source == 5
    assert [(each.name, each.value, each.source) for each in usual.synonyms] == [(f"log.{_AFTER}", usual.value, 5)]
