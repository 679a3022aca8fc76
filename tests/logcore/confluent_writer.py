"""A program that writes numbers with confluent-kafka while its server is killed, and prints what it is told.

Run with the server's address, a kind, a name, the first number, and a path: it goes on until there is a file. It prints
`open FIRST COUNT` where numbers are sent that are not to be seen yet, `ask FIRST COUNT` where they are to be stored,
and `done FIRST COUNT` where they are. It is a process of its own: librdkafka may end one with a failed assertion.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, cast

from confluent_kafka import KafkaException, Producer

from millstream.logcore.errors import LogUnavailable

TOPIC, PARTITIONS = "t", 3
_PAUSE_S: Final = 0.01
_COMMITTED_SHARE: Final = 0.7


class _Error(Protocol):
    def fatal(self) -> bool: ...

    def retriable(self) -> bool: ...

    def txn_requires_abort(self) -> bool: ...


def say(what: str, first: int, count: int) -> None:
    os.write(1, f"{what} {first} {count}\n".encode())


def producer_at(address: str, **more: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 1,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 50,
            "message.timeout.ms": 300_000,
            "log_level": 0,
            **more,
        }
    )


def write_sequenced(address: str, name: str, first: int, is_over: Callable[[], bool]) -> None:
    """The library repeats what was not answered until it is: each number is there once, and all of them."""
    producer = producer_at(address)

    def note(error: object, number: int) -> None:
        if error is not None:
            raise LogUnavailable(f"number {number}: {error}")
        say("done", number, 1)

    number = first
    while not is_over():
        for _ in range(20):
            say("ask", number, 1)
            producer.produce(
                TOPIC,
                b"%d" % number,
                key=name.encode(),
                partition=number % PARTITIONS,
                on_delivery=lambda error, _, number=number: note(error, number),
            )
            number += 1
        while len(producer) > 200 and not is_over():
            producer.poll(0.02)
        producer.poll(0.02)
    assert producer.flush(60) == 0, "not everything was delivered"


def write_transactions(address: str, name: str, first: int, is_over: Callable[[], bool]) -> None:
    """After a crash of the server the library's producer is of no use any more, and another one takes its id."""
    chance = random.Random(first)
    numbers = [first]
    while True:
        producer = producer_at(address, **{"transactional.id": name, "transaction.timeout.ms": 300_000})
        try:
            _insist(lambda producer=producer: producer.init_transactions(5))
            while not is_over():
                _write_transaction(producer, name, numbers, chance)
        except KafkaException as error:
            if not cast(_Error, error.args[0]).fatal():
                raise
        else:
            return


def _write_transaction(producer: Producer, name: str, numbers: list[int], chance: random.Random) -> None:
    """In: `numbers`: the next one; that is changed."""
    first, count = numbers[0], chance.randint(1, 5)
    numbers[0] += count
    producer.begin_transaction()
    say("open", first, count)
    for number in range(first, first + count):
        producer.produce(TOPIC, b"%d" % number, key=name.encode(), partition=number % PARTITIONS)
    if chance.random() <= _COMMITTED_SHARE:
        say("ask", first, count)
        if _insist(lambda: producer.commit_transaction(5)):
            say("done", first, count)
            return
        say("open", first, count)  # the library says that it must be aborted
    assert _insist(lambda: producer.abort_transaction(5))


def _insist(act: Callable[[], object]) -> bool:
    """Repeats what may be repeated; False where the transaction has to be aborted."""
    while True:
        try:
            act()
        except KafkaException as error:
            found = cast(_Error, error.args[0])
            if found.txn_requires_abort():
                return False
            if not found.retriable():
                raise
            time.sleep(_PAUSE_S)
        else:
            return True


KINDS: Final = {"sequenced": write_sequenced, "transactions": write_transactions}

if __name__ == "__main__":
    _, where, kind, own_name, first_number, stop = sys.argv
    KINDS[kind](where, own_name, int(first_number), Path(stop).exists)
