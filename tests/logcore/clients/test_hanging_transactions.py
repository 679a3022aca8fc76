"""Transactions as administrators see them, and how one is ended that nobody ends any more."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from waiting import eventually

from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.records.codec import encode

from ..log_records import rows
from .asking import Asking
from .outside import unique, values

_TIMEOUT_MS = 600_000


class Open:
    """A transaction that has written one record, and is left alone."""

    def __init__(self, asking: Asking) -> None:
        self.id, self.topic = unique("tx"), asking.create_topic()
        asking.produce(self.topic, b"before")
        asked = {
            "transactional_id": self.id,
            "transaction_timeout": timedelta(milliseconds=_TIMEOUT_MS),
            "producer_id": -1,
            "producer_epoch": -1,
        }
        given = asking.once_ready(lambda: asking.ask(Api.INIT_PRODUCER_ID, asked))
        assert given.error_code is ErrorCode.none, given
        self.producer, self.epoch = given.producer_id, given.producer_epoch
        added = {
            "v3_and_below_transactional_id": self.id,
            "v3_and_below_producer_id": self.producer,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": self.topic, "partitions": [0]}],
        }
        (topic,) = asking.ask(Api.ADD_PARTITIONS_TO_TXN, added).results_by_topic_v3_and_below
        assert topic.results_by_partition[0].partition_error_code is ErrorCode.none
        producer = BatchProducer(self.producer, self.epoch, 0, transactional=True)
        batches = encode(rows(b"hanging", timestamp=int(time.time() * 1000)), producer)
        buffers = [buffer for batch in batches for buffer in batch.buffers]
        written = asking.append(self.topic, buffers, transactional_id=self.id)
        assert written.error_code == 0, written


@pytest.fixture
def opened(asking: Asking) -> Open:
    return Open(asking)


def listed(asking: Asking, **filters: Any) -> set[str]:
    answer = asking.ask_in(Api.LIST_TRANSACTIONS, 2, filters)
    assert answer.error_code is ErrorCode.none
    return {found.transactional_id for found in answer.transaction_states}


def end(asking: Asking, opened: Open, epoch: int | None = None) -> ErrorCode:
    marker = {
        "producer_id": opened.producer,
        "producer_epoch": opened.epoch if epoch is None else epoch,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": [{"name": opened.topic, "partition_indexes": [0]}],
    }
    (answer,) = asking.ask(Api.WRITE_TXN_MARKERS, {"markers": [marker]}).markers
    return answer.topics[0].partitions[0].error_code


def active(asking: Asking, topic: str) -> list[Any]:
    (found,) = asking.ask(Api.DESCRIBE_PRODUCERS, {"topics": [{"name": topic, "partition_indexes": [0]}]}).topics
    return [each for each in found.partitions[0].active_producers if each.producer_id >= 0]


def test_an_open_transaction_is_found_by_its_age_and_by_a_pattern_of_its_id(asking: Asking, opened: Open) -> None:
    eventually(lambda: opened.id in listed(asking, duration_filter=10))
    assert opened.id not in listed(asking, duration_filter=500_000)
    assert opened.id in listed(asking, transactional_id_pattern=f"{opened.id[:-1]}.*|other")
    assert opened.id not in listed(asking, transactional_id_pattern=opened.id[:-1])
    refused = asking.ask_in(Api.LIST_TRANSACTIONS, 2, {"transactional_id_pattern": "("})
    assert refused.error_code is ErrorCode.invalid_regular_expression


def test_an_open_transaction_says_since_when_and_for_how_long_it_may_be_open(asking: Asking, opened: Open) -> None:
    (found,) = asking.ask(Api.DESCRIBE_TRANSACTIONS, {"transactional_ids": [opened.id]}).transaction_states
    assert found.transaction_state == "Ongoing"
    assert round(found.transaction_timeout.total_seconds() * 1000) == _TIMEOUT_MS
    assert abs(found.transaction_start_time.timestamp() - time.time()) < 60
    (producer,) = active(asking, opened.topic)
    assert producer.current_txn_start_offset == 1
    assert abs(producer.last_timestamp / 1000 - time.time()) < 60


def test_a_transaction_that_hangs_is_ended_in_its_partition(asking: Asking, opened: Open) -> None:
    assert values(asking.address, opened.topic) == [b"before"]
    assert end(asking, opened) is ErrorCode.none
    (producer,) = active(asking, opened.topic)
    assert producer.current_txn_start_offset == -1
    after = asking.produce(opened.topic, b"after")
    assert after.error_code == 0
    assert values(asking.address, opened.topic) == [b"before", b"after"]


def test_it_is_not_ended_with_an_epoch_that_is_over(asking: Asking, opened: Open) -> None:
    raised = {"transactional_id": opened.id, "transaction_timeout": timedelta(seconds=60)}
    asked = {**raised, "producer_id": -1, "producer_epoch": -1}
    given = asking.ask(Api.INIT_PRODUCER_ID, asked)
    while given.error_code is ErrorCode.concurrent_transactions:
        given = asking.ask(Api.INIT_PRODUCER_ID, asked)
    assert given.producer_epoch > opened.epoch
    assert end(asking, opened) is ErrorCode.invalid_producer_epoch


def test_a_partition_that_is_not_there_is_unknown(asking: Asking, opened: Open) -> None:
    opened.topic = unique("missing")
    assert end(asking, opened) is ErrorCode.unknown_topic_or_partition


def test_who_has_begun_no_transaction_has_no_time_of_its_start(asking: Asking) -> None:
    id = unique("tx")
    asked = {"transactional_id": id, "transaction_timeout": timedelta(seconds=60)}
    asking.once_ready(lambda: asking.ask(Api.INIT_PRODUCER_ID, {**asked, "producer_id": -1, "producer_epoch": -1}))
    (found,) = asking.ask(Api.DESCRIBE_TRANSACTIONS, {"transactional_ids": [id]}).transaction_states
    assert found.transaction_state == "Empty"
    assert found.transaction_start_time is None
