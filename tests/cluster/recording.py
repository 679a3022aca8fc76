"""What the clients of a run have in common: who they are, where they note, the topics, the library's settings."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException

from .events import Recorder

PARTITIONS: Final = 3
SENT_TOPIC: Final = "sent"
TRANSACTIONS_TOPIC: Final = "transactions"
COPIES_TOPIC: Final = "copies"
TOPICS: Final = (SENT_TOPIC, TRANSACTIONS_TOPIC, COPIES_TOPIC)
TRANSACTION_TIMEOUT_MS: Final = 10_000
GROUP_SESSION_MS: Final = 6_000
_DEBUG: Final[Mapping[str, Any]] = (
    {"debug": os.environ["MILLSTREAM_TEST_DEBUG"], "log_level": 7}
    if "MILLSTREAM_TEST_DEBUG" in os.environ
    else {"log_level": 3}
)
"""What the library is to say of its inner life, such as "eos,cgrp"."""


class Work:
    """State: the file with notes, and the numbers of what it sends. No value is ever used twice."""

    def __init__(
        self, name: str, life: int, brokers: str, folder: Path, group: str, protocol: str, draw: random.Random
    ) -> None:
        self.name = name
        self.group = group
        self.protocol = protocol
        self.draw = draw
        self.ending = threading.Event()
        self.recorder = Recorder(folder / f"{name}.{life}.jsonl")
        self._brokers = brokers
        self._life = f"{name}.{life}"
        self._numbers = count()
        self._parts = count(1)

    def unique(self) -> str:
        return f"{self._life}-{next(self._numbers)}"

    def part(self) -> str:
        """A name for the next producer or consumer of this life."""
        return f"{self._life}/{next(self._parts)}"

    def settings(self, **more: Any) -> dict[str, Any]:
        """Short timeouts: a node may be paused or cut off, and others take over meanwhile."""
        return {
            "bootstrap.servers": self._brokers,
            "client.id": self._life,
            "socket.timeout.ms": 8_000,
            "socket.connection.setup.timeout.ms": 3_000,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 50,
            **_DEBUG,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def say(self, error: Exception) -> None:
        """To standard error, which the run keeps: errors are what the library cannot hide from its users."""
        sys.stderr.write(f"{time.monotonic():.3f} {self._life}: {type(error).__name__} {error}\n")
        sys.stderr.flush()


def place(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"


def is_fatal(error: KafkaException) -> bool:
    return bool(error.args[0].fatal())


def is_retriable(error: KafkaException) -> bool:
    return bool(error.args[0].retriable())


def requires_abort(error: KafkaException) -> bool:
    return bool(error.args[0].txn_requires_abort())
