"""The catalog as this server has it: the fold of the command topic, and the effects of each command.

A change goes one way: write the command, fold it into the catalog, carry out its effects on the log and the executor.
Whatever a crash interrupts is done at the next start, because effects are repeatable and their progress is committed.
"""

from __future__ import annotations

from typing import assert_never

from ..executor.executor import Executor
from ..logcore.client import LogClient
from ..logcore.topic_rules import check_topic
from ..planner.catalog import Catalog
from ..planner.planning import NewTopic
from .command_topic import CommandTopic
from .commands import (
    Command,
    DropFunction,
    DropSource,
    DropType,
    PauseQuery,
    PutFunction,
    PutSource,
    PutType,
    StartQuery,
    TerminateQuery,
    apply_command,
)


class CatalogStore:
    """Not for several threads at once; the engine holds a lock."""

    def __init__(self, log: LogClient, executor: Executor) -> None:
        self._log = log
        self._executor = executor
        self._commands = CommandTopic(log)
        self.catalog = Catalog()
        self.last_offset = -1  # of the last command whose effects are there; -1 is none

    @property
    def next_offset(self) -> int:
        """What a command's offset will be, and so the number in a new query's id."""
        return self._commands.next_offset

    def recover(self) -> None:
        """Folds all commands, finishes what a crash left undone, and starts the queries of the final catalog."""
        applied = self._commands.applied_offset
        end = 0
        for offset, command in self._commands.read_all():
            self.catalog = apply_command(self.catalog, command)
            if offset >= applied:
                self._repeat_effects(command)
            end = offset + 1
        if end > applied:
            self._commands.mark_applied(end)
        self.last_offset = end - 1
        for query in self.catalog.queries.values():
            self._executor.start(query)

    def submit(self, command: Command) -> int:
        """Makes the command true everywhere and returns its offset. Raises `InvalidTopic` before anything is written: a
        command that cannot be carried out would fail again at each start."""
        if isinstance(command, PutSource | StartQuery):
            self._check_topic(command.topic)
        offset = self._commands.append(command)
        before = self.catalog
        self.catalog = apply_command(before, command)
        self._carry_out(command, before)
        self._commands.mark_applied(offset + 1)
        self.last_offset = offset
        return offset

    def _carry_out(self, command: Command, before: Catalog) -> None:
        match command:
            case PutSource():
                self._create_topic(command.topic)
            case StartQuery():
                self._create_topic(command.topic)
                if command.query.id in before.queries:
                    self._executor.stop(command.query.id)
                self._executor.start(command.query)
            case DropSource():
                if command.terminate is not None:
                    self._executor.drop(command.terminate)
                self._delete_topic(command.delete_topic)
            case TerminateQuery():
                self._executor.drop(command.query_id)
            case PauseQuery():
                if command.paused:
                    self._executor.pause(command.query_id)
                else:
                    self._executor.resume(command.query_id)
            case PutType() | DropType() | PutFunction() | DropFunction():
                pass
            case _:
                assert_never(command)

    def _repeat_effects(self, command: Command) -> None:
        """The effects that outlive a process; queries start only when the whole catalog is known."""
        match command:
            case PutSource() | StartQuery():
                self._create_topic(command.topic)
            case DropSource():
                if command.terminate is not None:
                    self._executor.drop(command.terminate)
                self._delete_topic(command.delete_topic)
            case TerminateQuery():
                self._executor.drop(command.query_id)
            case PauseQuery() | PutType() | DropType() | PutFunction() | DropFunction():
                pass
            case _:
                assert_never(command)

    def _check_topic(self, topic: NewTopic | None) -> None:
        if topic is not None and topic.name not in self._log.topics():
            check_topic(topic.name, topic.partition_count, topic.config)

    def _create_topic(self, topic: NewTopic | None) -> None:
        if topic is not None and topic.name not in self._log.topics():
            self._log.create_topic(topic.name, topic.partition_count, topic.config)

    def _delete_topic(self, name: str | None) -> None:
        if name is not None and name in self._log.topics():
            self._log.delete_topic(name)
