"""Consume, transform, produce: copies records in transactions that commit the group's offsets with the copies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaException, Message

from .group_member import NotingConsumer
from .producers import Lost, TransactionSender
from .recording import COPIES_TOPIC, PARTITIONS, SENT_TOPIC, TRANSACTIONS_TOPIC, Work, place

_AGAIN_S: Final = 0.2


def copy_in_transactions(work: Work) -> None:
    while not work.ending.is_set():
        sender = TransactionSender(work)
        try:
            sender.begin_life()
        except (Lost, KafkaException) as error:
            work.say(error)
            time.sleep(_AGAIN_S)
            continue
        consumer = NotingConsumer(work, (SENT_TOPIC, TRANSACTIONS_TOPIC))
        try:
            while not work.ending.is_set():
                if records := consumer.poll():
                    _copy(work, sender, consumer, records)
        except (Lost, KafkaException) as error:
            work.say(error)
        consumer.close()


def _copy(work: Work, sender: TransactionSender, consumer: NotingConsumer, records: Sequence[Message]) -> None:
    transaction = sender.begin()
    try:
        sender.send(
            (work.unique(), COPIES_TOPIC, work.draw.randrange(PARTITIONS), (message.value() or b"").decode())
            for message in records
        )
        positions = consumer.offsets()
        offsets = {place(each.topic, each.partition): each.offset for each in positions}
        sender.store(work.group, offsets, positions, consumer.consumer.consumer_group_metadata())
        sender.commit(transaction)
    except KafkaException as error:
        sender.recover(transaction, error)
        consumer.restart()
