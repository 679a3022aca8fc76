"""Handles records that cannot be converted. They end the task; or, with errors.tolerance=all, they go to the dead
letter topic with the reason in their headers, as in Kafka Connect."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import structlog

from ...logcore.client import HEADERS, LogClient, RowRecords
from ...logcore.errors import TopicExists
from ...logcore.topic_rules import is_reserved
from .connector import TaskInfo
from .connector_errors import ConnectorFailed, InvalidConnector

_TOPIC: Final = "errors.deadletterqueue.topic.name"
_TOLERANCE: Final = "errors.tolerance"
_log = structlog.get_logger("millstream.connect")

Headers = tuple[tuple[str, bytes | None], ...]


def is_tolerant(config: Mapping[str, str]) -> bool:
    """Whether errors.tolerance is "all". Raises `InvalidConnector`."""
    given = config.get(_TOLERANCE, "none")
    if given not in ("none", "all"):
        raise InvalidConnector(f'{_TOLERANCE} is "{given}", but must be one of none, all', setting=_TOLERANCE)
    return given == "all"


class DeadLetters:
    """The dead letters of one task. In: `config`: the settings of its connector."""

    def __init__(self, log: LogClient, task: TaskInfo, config: Mapping[str, str]) -> None:
        """Raises `InvalidConnector`."""
        self._log = log
        self._task = task
        self._tolerant = is_tolerant(config)
        self._topic = config.get(_TOPIC)
        if self._topic is not None and is_reserved(self._topic, log.capabilities.reserved):
            raise InvalidConnector(f'the topic "{self._topic}" is reserved', hint="Name another topic.", setting=_TOPIC)

    def refuse(
        self,
        reason: str,
        hint: str,
        key: bytes | None,
        value: bytes | None,
        time_ms: int | None,
        headers: Headers = (),
        **place: Any,
    ) -> tuple[str, RowRecords] | None:
        """The topic and the record for the dead letter; None if the record is only skipped. In: `reason`: a sentence
        about the record; `hint`: what else a user can do; `headers`: its own, which come first; `place`: what further
        headers say. Raises `ConnectorFailed` if such a
        record ends the task."""
        if not self._tolerant:
            raise ConnectorFailed(reason, hint=f"{hint} Or set {_TOLERANCE}=all and {_TOPIC}.")
        if self._topic is None:
            _log.warning("record left out", connector=self._task.connector, reason=reason)
            return None
        if self._log.topic(self._topic) is None:
            with contextlib.suppress(TopicExists):
                self._log.create_topic(self._topic, 1)
        reasons = {
            **place,
            "connector.name": self._task.connector, "task.id": self._task.number, "exception.message": reason,
        }  # fmt: skip
        said = [(f"__connect.errors.{name}", str(text).encode()) for name, text in reasons.items()]
        written = [{"key": name, "value": text} for name, text in (*headers, *said)]
        columns = {
            "timestamp": pa.array([self._task.clock.now_ms() if time_ms is None else time_ms], pa.int64()),
            "key": pa.array([key], pa.binary()),
            "value": pa.array([value], pa.binary()),
            "headers": pa.array([written], HEADERS),
        }
        return self._topic, RowRecords(pa.table(columns))
