"""Topics by their ids: one that was deleted and made anew is another topic."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from waiting import eventually

from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.records.codec import encode

from ..log_records import rows
from .asking import Asking
from .outside import unique

_FETCH_VERSIONS = (13, 15, 16, 17, 18)


def batch(*values: bytes) -> bytes:
    return b"".join(bytes(buffer) for encoded in encode(rows(*values)) for buffer in encoded.buffers)


def produce(asking: Asking, id: UUID, *values: bytes) -> Any:
    data = {"topic_id": id, "partition_data": [{"index": 0, "records": batch(*values)}]}
    asked = {"transactional_id": None, "acks": -1, "timeout": timedelta(seconds=10), "topic_data": [data]}
    (topic,) = asking.ask_in(Api.PRODUCE, 13, asked).responses
    assert topic.topic_id == id
    return topic.partition_responses[0]


def fetched(asking: Asking, *ids: UUID, version: int = 13, session: tuple[int, int] = (0, -1)) -> Any:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    asked = {
        "max_wait": timedelta(0),
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [{"topic_id": id, "partitions": [partition]} for id in ids],
    }
    return asking.ask_in(Api.FETCH, version, asked)


def codes(answer: Any) -> dict[UUID, ErrorCode]:
    return {topic.topic_id: topic.partitions[0].error_code for topic in answer.responses}


def remade(asking: Asking, topic: str) -> UUID:
    asking.delete_topic(topic)
    eventually(lambda: asking.try_to_create(topic).error_code == 0)
    eventually(lambda: asking.produce(topic, b"second").error_code == 0)
    return asking.topic_id(topic)


@pytest.mark.parametrize("version", _FETCH_VERSIONS)
def test_records_are_written_and_read_by_id(asking: Asking, version: int) -> None:
    topic = asking.create_topic()
    asking.produce(topic, b"first")
    id = asking.topic_id(topic)
    assert produce(asking, id, b"a").error_code is ErrorCode.none
    answer = fetched(asking, id, version=version)
    assert codes(answer) == {id: ErrorCode.none}
    assert bytes(answer.responses[0].partitions[0].records).endswith(batch(b"a")[-10:])


def test_an_id_that_was_never_given_is_unknown(asking: Asking) -> None:
    id = uuid4()
    assert produce(asking, id, b"a").error_code is ErrorCode.unknown_topic_id
    assert codes(fetched(asking, id)) == {id: ErrorCode.unknown_topic_id}
    (found,) = asking.ask_in(Api.METADATA, 13, {"topics": [{"topic_id": id, "name": None}]}).topics
    assert (found.error_code, found.topic_id) == (ErrorCode.unknown_topic_id, id)


def test_a_topic_that_was_deleted_and_made_anew_is_told_apart(asking: Asking) -> None:
    topic = asking.create_topic()
    asking.produce(topic, b"first")
    old = asking.topic_id(topic)
    new = remade(asking, topic)
    assert old != new
    eventually(lambda: produce(asking, old, b"late").error_code is ErrorCode.unknown_topic_id)
    eventually(lambda: codes(fetched(asking, old, new)) == {old: ErrorCode.unknown_topic_id, new: ErrorCode.none})
    (found,) = asking.ask_in(Api.METADATA, 13, {"topics": [{"topic_id": new, "name": None}]}).topics
    assert found.name == topic
    before = batch(b"late")[-10:]
    assert before not in bytes(fetched(asking, new).responses[0].partitions[0].records)


def test_a_session_says_that_another_topic_has_the_name_now(asking: Asking) -> None:
    topic = asking.create_topic()
    asking.produce(topic, b"first")
    old = asking.topic_id(topic)
    begun = fetched(asking, old, session=(0, 0))
    assert begun.session_id != 0 and codes(begun) == {old: ErrorCode.none}
    remade(asking, topic)
    eventually(lambda: codes(fetched(asking, old)) == {old: ErrorCode.unknown_topic_id})
    answer = fetched(asking, session=(begun.session_id, 1))
    assert codes(answer) == {old: ErrorCode.inconsistent_topic_id}


def test_a_session_says_that_its_topic_is_gone(asking: Asking) -> None:
    topic = asking.create_topic()
    asking.produce(topic, b"first")
    id = asking.topic_id(topic)
    begun = fetched(asking, id, session=(0, 0))
    asking.delete_topic(topic)
    eventually(lambda: codes(fetched(asking, id)) == {id: ErrorCode.unknown_topic_id})
    assert codes(fetched(asking, session=(begun.session_id, 1))) == {id: ErrorCode.unknown_topic_or_partition}


def test_a_session_goes_by_names_or_by_ids_and_not_by_both(asking: Asking) -> None:
    topic = asking.create_topic()
    asking.produce(topic, b"first")
    begun = fetched(asking, asking.topic_id(topic), session=(0, 0))
    asked = {"max_wait": timedelta(0), "session_id": begun.session_id, "session_epoch": 1, "topics": []}
    assert asking.ask_in(Api.FETCH, 12, asked).error_code is ErrorCode.fetch_session_topic_id_error


class Reader:
    """A member of a group whose coordinator assigns. State: its epoch, and what it reads, by topic id."""

    def __init__(self, asking: Asking, topic: str) -> None:
        self._asking, self._group, self._topic = asking, unique("g"), topic
        self.epoch, self.reads = 0, {}

    def beat(self) -> Reader:
        """Whatever it is told it does at once, and the next heartbeat says so."""
        asked = {
            "group_id": self._group,
            "member_id": "m",
            "member_epoch": self.epoch,
            "rebalance_timeout": timedelta(seconds=60),
            "subscribed_topic_names": [self._topic],
            "topic_partitions": [{"topic_id": id, "partitions": places} for id, places in self.reads.items()],
        }
        answer = self._asking.once_ready(lambda: self._asking.ask(Api.CONSUMER_GROUP_HEARTBEAT, asked))
        assert answer.error_code is ErrorCode.none, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.reads = {each.topic_id: list(each.partitions) for each in answer.assignment.topic_partitions}
        return self


def test_a_group_is_told_of_a_topic_that_was_made_anew_between_two_heartbeats(asking: Asking) -> None:
    """It has as many partitions as before, so that its id alone tells. The old one is given up first: who knows topics
    by their names would keep its position otherwise."""
    topic = asking.create_topic()
    old, reader = asking.topic_id(topic), Reader(asking, topic)
    eventually(lambda: reader.beat().reads == {old: [0]})
    epoch, new = reader.epoch, remade(asking, topic)
    eventually(lambda: reader.beat().reads == {})
    eventually(lambda: reader.beat().reads == {new: [0]})
    assert reader.epoch > epoch
