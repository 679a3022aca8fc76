"""Consumers that we did not write change their group's protocol while they read, and back (KIP-848)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest
from confluent_kafka.admin import AdminClient

from . import with_aiokafka, with_confluent, with_kafka_python
from .brokers import Broker, KafkaBroker
from .driver import TIMEOUT_S, Member, Members, Record, closing_all
from .outside import committed, create_topic, unique

PARTITIONS = 6
_Make = Callable[[str, str, str], Member]
CLASSIC = {
    "confluent_kafka, cooperative": with_confluent.member,
    "confluent_kafka, eager": with_confluent.eager_member,
    "kafka-python": with_kafka_python.member,
    "aiokafka": with_aiokafka.member,
}


def kind_and_state(address: str, group: str) -> str:
    admin = AdminClient({"bootstrap.servers": address})  # the library forgets what an admin asked when that is gone
    listed = {found.group_id: found for found in admin.list_consumer_groups().result(TIMEOUT_S).valid}
    return f"{listed[group].type.name} {listed[group].state.name}".lower() if group in listed else "none"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("classic", CLASSIC.values(), ids=CLASSIC)
def test_members_are_replaced_one_after_the_other_and_back(broker: Broker, group: str, classic: _Make) -> None:
    """Each reads to the end and commits before the next change: all records are read, and none twice."""
    if isinstance(broker, KafkaBroker) and classic is with_confluent.member:
        pytest.skip("Kafka takes over no group whose assignments have user data, as librdkafka's cooperative ones do")
    address, topic = broker.address, create_topic(broker.address, unique("moving"), PARTITIONS)
    numbers = count()
    with closing_all(Members([classic(address, group, topic) for _ in range(3)])) as readers:

        def reads_on(kind: str) -> None:
            readers.poll_until(
                lambda: readers.share(PARTITIONS) and kind_and_state(address, group) == f"{kind} stable",
                f"three share all partitions of a {kind} group",
            )
            first = len(readers.got)
            sent = [replace(Record(str(next(numbers)).encode()), partition=each % PARTITIONS) for each in range(60)]
            with_confluent.produce(address, topic, sent)
            readers.poll_until(lambda: len(readers.got) >= first + len(sent), "the new records are read")
            assert Counter(got.record.value for got in readers.got[first:]) == Counter(each.value for each in sent)
            for member in readers.members:
                member.commit()

        reads_on("classic")
        for _ in range(3):
            readers.members.pop(0).close()
            readers.members.append(with_confluent.member_of_assigning_group(address, group, topic))
            reads_on("consumer")
        for number in range(3):
            readers.members.pop(0).close()
            readers.members.append(classic(address, group, topic))
            reads_on("consumer" if number < 2 else "classic")
    assert len(readers.got) == next(numbers)
    assert committed(address, group) == {(topic, number): 70 for number in range(PARTITIONS)}
