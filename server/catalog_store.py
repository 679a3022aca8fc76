"""The catalog as this server has it: the fold of the command topic, and the effects of each command.

A change goes one way: write the command, fold it into the catalog, carry out its effects on the log and the executor.
Whatever a crash interrupts is done at the next start, because effects are repeatable and their progress is committed.
Effects that fail are tried again (`owed_effects.py`), maybe after later commands: so what is done late is what the
catalog of that time still asks for.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import assert_never

from ..executor.executor import Executor
from ..logcore.client import LogClient
from ..logcore.errors import LogClosed, LogFull
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
from .owed_effects import OwedEffects


class CatalogStore:
    """Not for several threads at once: the engine holds `lock`."""

    def __init__(self, log: LogClient, executor: Executor, lock: AbstractContextManager[object]) -> None:
        self._log = log
        self._executor = executor
        self._commands = CommandTopic(log)
        self._owed = OwedEffects(self._carry_out_late, lock)
        self.catalog = Catalog()
        self.last_offset = -1  # of the last command that is in the catalog; -1 is none

    @property
    def next_offset(self) -> int:
        """What a command's offset will be, and so the number in a new query's id."""
        return self._commands.next_offset

    def recover(self) -> None:
        """Folds all commands, finishes what a crash left undone, and starts the queries of the final catalog."""
        applied = self._commands.applied_offset
        unfinished: list[tuple[int, Command]] = []
        for offset, command in self._commands.read_all():
            self.catalog = apply_command(self.catalog, command)
            if offset >= applied:
                unfinished.append((offset, command))
            self.last_offset = offset
        for offset, command in unfinished:
            try:
                self._carry_out_late(command)
            except LogFull as error:
                self._owed.owe(offset, command, error)
        if unfinished:
            self._mark_applied()
        for query in self.catalog.queries.values():
            self._executor.start(query)

    def submit(self, command: Command) -> int:
        """Makes the command true everywhere and returns its offset. Raises `InvalidTopic` before anything is written: a
        command that cannot be carried out would fail again at each start. Raises `EffectsDelayed` where it is written
        and in the catalog, and something else failed."""
        if isinstance(command, PutSource | StartQuery):
            self._check_topic(command.topic)
        offset = self._commands.append(command)
        before = self.catalog
        self.catalog = apply_command(before, command)
        self.last_offset = offset
        self._owed.try_all()
        try:
            self._carry_out(command, before)
        except LogClosed:
            raise
        except Exception as error:
            raise self._owed.owe(offset, command, error) from error
        self._mark_applied()
        return offset

    def close(self) -> None:
        self._owed.close()

    def _mark_applied(self) -> None:
        """Where there is no room for that either, the next start repeats some effects."""
        owed = self._owed.first_offset
        with contextlib.suppress(LogFull):
            self._commands.mark_applied(self.last_offset + 1 if owed is None else owed)

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

    def _carry_out_late(self, command: Command) -> None:
        """What is left to do of a command, maybe behind later ones; it may have been done already, in whole or in
        part."""
        match command:
            case PutSource():
                if command.source.name in self.catalog.sources:
                    self._create_topic(command.topic)
            case StartQuery():
                query = self.catalog.queries.get(command.query.id)
                if query is not None:
                    self._create_topic(command.topic)
                    self._executor.start(query)
            case DropSource():
                if command.terminate is not None:
                    self._executor.drop(command.terminate)
                if all(source.topic != command.delete_topic for source in self.catalog.sources.values()):
                    self._delete_topic(command.delete_topic)
            case TerminateQuery():
                self._executor.drop(command.query_id)
            case PauseQuery():
                query = self.catalog.queries.get(command.query_id)
                if query is not None:
                    self._carry_out(PauseQuery(query_id=query.id, paused=query.paused), self.catalog)
            case PutType() | DropType() | PutFunction() | DropFunction():
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
