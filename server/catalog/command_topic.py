"""The command topic: the log of commands from which every server builds the same catalog.

One partition, one record per command, never compacted. The progress of this server's effects (topics created, queries'
state deleted) is the committed offset of the group `APPLIED_GROUP`; that of `OWED_GROUP` is the first command with an
effect that failed and still has to be applied.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from ...logcore.client import FetchedRows, LogClient, RowRecords, TopicPartition
from ...logcore.errors import CorruptLog
from .command_codec import command_from_json, command_to_json
from .commands import Command

COMMAND_TOPIC = "_millstream-command"
COMMAND_CONFIG = {"retention.ms": "-1"}
APPLIED_GROUP = "_millstream-command-applied"
OWED_GROUP = "_millstream-command-owed"

_PARTITION = TopicPartition(COMMAND_TOPIC, 0)
_NOTHING = 2**62  # greater than any offset
_SCHEMA = pa.schema([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])


class CommandTopic:
    """The commands in `log`. The caller ensures that there is only one writer at a time."""

    def __init__(self, log: LogClient) -> None:
        self._log = log
        if COMMAND_TOPIC not in log.topics():
            log.create_topic(COMMAND_TOPIC, 1, COMMAND_CONFIG)

    @property
    def next_offset(self) -> int:
        """The offset that the next command will get."""
        return self._log.offsets(*_PARTITION).log_end_offset

    @property
    def applied_offset(self) -> int:
        """The offset up to which effects of commands were applied, or tried and recorded as owed."""
        return self._log.committed_offsets(APPLIED_GROUP).get(_PARTITION, 0)

    @property
    def owed_offset(self) -> int | None:
        """The offset of the first command that failed and is still owed; None if there is none."""
        owed = self._log.committed_offsets(OWED_GROUP).get(_PARTITION, _NOTHING)
        return None if owed == _NOTHING else owed

    def check_whole(self) -> int:
        """Returns `applied_offset`. Raises `CorruptLog` if the topic ends before a command that was applied."""
        applied, end = self.applied_offset, self.next_offset
        if applied > end:
            raise CorruptLog(
                f'topic "{COMMAND_TOPIC}" ends at offset {end}, but the commands up to {applied} were applied:'
                " statements are lost",
                hint="Restore the data directory from a backup.",
            )
        return applied

    def mark_applied(self, next_offset: int) -> None:
        self._log.commit_offsets(APPLIED_GROUP, {_PARTITION: next_offset})

    def mark_owed(self, offset: int | None) -> None:
        self._log.commit_offsets(OWED_GROUP, {_PARTITION: _NOTHING if offset is None else offset})

    def append(self, command: Command) -> int:
        """Writes the command and returns its offset when it is durable."""
        value = command_to_json(command)
        row = {"timestamp": [int(time.time() * 1000)], "key": [None], "value": [value]}
        return self._log.append(*_PARTITION, RowRecords(pa.table(row, schema=_SCHEMA)))

    def read_all(self) -> Iterator[tuple[int, Command]]:
        """All commands with their offsets, oldest first. Raises `UnreadableCommand`."""
        position = self._log.offsets(*_PARTITION).log_start_offset
        while True:
            commands, next_offset = read_commands(self._log, position)
            yield from commands
            if next_offset <= position:
                return
            position = next_offset


def read_commands(log: LogClient, position: int) -> tuple[list[tuple[int, Command]], int]:
    """Some commands from this offset on, with their offsets, and the offset to continue at. Raises
    `UnreadableCommand`."""
    fetched = log.fetch(*_PARTITION, position)
    commands: list[tuple[int, Command]] = []
    for run in fetched.runs:
        assert isinstance(run, FetchedRows)
        for offset, value in zip(run.table["offset"].to_pylist(), run.table["value"].to_pylist(), strict=True):
            commands.append((offset, command_from_json(value)))
    return commands, fetched.next_offset
