"""The catalog of this server: the fold of the command topic, and the effects of each command.

A change has three steps: write the command, fold it into the catalog, apply its effects to the log and the executor.
Steps that a crash interrupts are completed at the next start, because effects are idempotent and their progress is
committed. Failed effects are retried (`owed_effects.py`), maybe after later commands: so a retry applies only what the
current catalog still requires.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import assert_never

import structlog

from ...executor.connect.connector_secrets import secrets_of
from ...executor.connect.connectors import Connectors
from ...executor.connect.mirrors import Mirrors
from ...executor.executor import Executor
from ...executor.queries.known_topics import KnownTopics
from ...executor.queries.query_log import begin_anew, empty_topic
from ...logcore.client import LogClient
from ...logcore.errors import InvalidReplicationFactor, LogClosed, LogFull, LogUnavailable, TopicExists
from ...logcore.topic_rules import check_not_reserved, check_topic
from ...planner.catalog import Catalog, PersistentQuery
from ...planner.planning import NewTopic
from ...planner.source_info import SourceInfo
from ...planner.steps.sink import Sink
from .command_topic import CommandTopic
from .commands import (
    Command,
    PauseConnector,
    PauseQuery,
    PutConnector,
    PutFunction,
    PutMirror,
    PutSecret,
    PutSource,
    PutType,
    RemoveConnector,
    RemoveFunction,
    RemoveMirror,
    RemoveSecret,
    RemoveSource,
    RemoveType,
    ResetQuery,
    StartQuery,
    TerminateQuery,
    apply_command,
)
from .owed_effects import OwedEffects

_log = structlog.get_logger("millstream.server")


class CatalogStore:
    """Not thread-safe: the engine holds `lock`."""

    def __init__(
        self,
        log: LogClient,
        executor: Executor,
        connectors: Connectors,
        mirrors: Mirrors,
        lock: AbstractContextManager[object],
    ) -> None:
        self._log = log
        self._executor = executor
        self._connectors = connectors
        self._mirrors = mirrors
        self._commands = CommandTopic(log)
        self._owed = OwedEffects(self._carry_out_late, self._mark_applied, lock)
        self.catalog = Catalog()
        self.last_offset = -1  # of the last command that is applied or owed; -1 if there is none
        self._owed_offset: int | None = None  # the value that was committed last

    @property
    def next_offset(self) -> int:
        """The offset of the next command, which is also the number in a new query's id."""
        return self._commands.next_offset

    def recover(self, *, paused: bool = False) -> None:
        """Folds all commands, completes unfinished effects, and starts the queries and the connectors of the final
        catalog.

        `paused`: each of them waits for a RESUME. The catalog does not store this, so the next start ignores it. Raises
        `CorruptLog` if commands are lost: a catalog from the remaining commands would be wrong."""
        applied = self._commands.check_whole()
        self._owed_offset = self._commands.owed_offset
        first = applied if self._owed_offset is None else min(applied, self._owed_offset)
        unfinished: list[tuple[int, Command]] = []
        for offset, command in self._commands.read_all():
            self.catalog = apply_command(self.catalog, command)
            if offset >= first:
                unfinished.append((offset, command))
            self.last_offset = offset
        for offset, command in unfinished:
            try:
                self._finish(command, tried=offset < applied)
            except (LogClosed, LogUnavailable):
                raise
            except Exception as error:
                self._owed.owe(offset, command, error)
        if unfinished:
            self._mark_applied()
        if not paused:
            self._connectors.take_up_leftovers()
        for query in self.catalog.queries.values():
            self._executor.start(replace(query, paused=True) if paused else query)
        for connector in self.catalog.connectors.values():
            self._connectors.start(replace(connector, paused=True) if paused else connector)
        for mirror in self.catalog.mirrors.values():
            self._mirrors.become(replace(mirror, state="PAUSED") if paused and mirror.state == "RUNNING" else mirror)

    def submit(self, command: Command) -> int:
        """Writes the command, applies it everywhere, and returns its offset. Raises `InvalidTopic` and `TopicExists`
        before anything is written, because a command that cannot be carried out would fail again at each start. Raises
        `EffectsDelayed` if the command is written and in the catalog, but an effect failed."""
        self.check(command)
        offset = self._commands.append(command)
        before = self.catalog
        self.catalog = apply_command(before, command)
        delayed: Exception | None = None
        try:
            self._carry_out(command, before)
        except LogClosed:
            raise
        except Exception as error:
            delayed = self._owed.owe(offset, command, error)
            delayed.__cause__ = error
        self.last_offset = offset
        self._mark_applied()
        if delayed is not None:
            raise delayed
        return offset

    def check(self, command: Command) -> None:
        """Raises `InvalidTopic` or `TopicExists` if the command cannot be carried out."""
        if isinstance(command, PutSource | StartQuery):
            self._check_not_deleted(command.source if isinstance(command, PutSource) else command.sink)
            self._check_topic(command.topic)
        for topic in _changed_topics(command):
            check_not_reserved(topic, self._log.capabilities.reserved)

    def close(self) -> None:
        """In: the caller does not hold the lock."""
        self._owed.close()

    def _mark_applied(self) -> None:
        """Commits the progress. If the disk is full or no broker answers, nothing is lost: the next call commits it,
        too."""
        with contextlib.suppress(LogFull, LogUnavailable):
            if self._owed.first_offset != self._owed_offset:
                self._commands.mark_owed(self._owed.first_offset)
                self._owed_offset = self._owed.first_offset
            self._commands.mark_applied(self.last_offset + 1)

    def _carry_out(self, command: Command, before: Catalog) -> None:
        match command:
            case PutSource():
                self._create_topic(command.topic)
            case StartQuery():
                self._create_sink(command)
                if command.query.id in before.queries:
                    self._replace(command.query)
                else:
                    self._executor.start(command.query)
            case RemoveSource():
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
            case ResetQuery():
                self._reset(command.query_id)
                self._executor.start(self.catalog.queries[command.query_id])
            case PutConnector():
                self._connectors.start(command.connector)
            case RemoveConnector():
                self._connectors.drop(before.connectors[command.name])
            case PauseConnector():
                self._connectors.become(self.catalog.connectors[command.name])
            case PutMirror():
                self._mirrors.become(command.mirror)
            case RemoveMirror():
                self._mirrors.drop(command.name)
            case PutSecret():
                for mirror in self.catalog.mirrors.values():
                    if command.secret.name in secrets_of(mirror.config):
                        self._mirrors.begin_anew(mirror)
                for connector in self.catalog.connectors.values():
                    if command.secret.name in secrets_of(connector.config):
                        self._connectors.start(connector)
            case PutType() | RemoveType() | PutFunction() | RemoveFunction() | RemoveSecret():
                pass
            case _:
                assert_never(command)

    def _replace(self, query: PersistentQuery) -> None:
        """Stops the old query before it starts the new one, maybe on another executor. If the old one waits for a
        RESUME that the catalog does not store, the new one waits, too."""
        waits = self._executor.status(query.id).state == "PAUSED"
        self._executor.stop(query.id)
        self._executor.start(replace(query, paused=query.paused or waits))

    def _reset(self, query_id: str) -> None:
        """Stops the query, deletes its state, and makes it begin with the first records of its sources. Also empties
        its sink, because the query writes the output again, unless other queries write to the sink. On a shared log, a
        topic that no statement here created keeps its records: they may belong to others."""
        query = self.catalog.queries[query_id]
        self._executor.drop(query_id)
        begin_anew(self._log, query.plan)
        topic = self.catalog.sources[query.sink].topic
        if self.catalog.writers_of(query.sink) == (query,) and self._may_empty(topic):
            empty_topic(self._log, topic)

    def _may_empty(self, topic: str) -> bool:
        if not self._log.capabilities.shared:
            return True
        created = (command for _, command in self._commands.read_all() if isinstance(command, PutSource | StartQuery))
        return any(command.topic is not None and command.topic.name == topic for command in created)

    def _carry_out_late(self, command: Command) -> None:
        """Completes a command, maybe after later commands were applied; parts of it may already be done."""
        self._finish(command)
        match command:
            case StartQuery():
                query = self.catalog.queries.get(command.query.id)
                if query is not None:
                    self._executor.stop(query.id)  # the running query may be the one that this command replaces
                    self._executor.start(query)
            case ResetQuery():
                query = self.catalog.queries.get(command.query_id)
                if query is not None:
                    self._executor.start(query)
            case PauseQuery():
                query = self.catalog.queries.get(command.query_id)
                if query is not None:
                    self._carry_out(PauseQuery(query_id=query.id, paused=query.paused), self.catalog)
            case PutSecret():
                self._carry_out(command, self.catalog)
            case PutConnector() | PauseConnector():
                name = command.connector.name if isinstance(command, PutConnector) else command.name
                connector = self.catalog.connectors.get(name)
                if connector is not None:
                    self._connectors.start(connector)
            case _:
                pass

    def _finish(self, command: Command, *, tried: bool = False) -> None:
        """Applies the effects that outlive a process: creates the topics that the catalog requires, and drops what it
        no longer has. In: `tried`: an earlier process tried the command and may have completed it, so a topic that
        exists now may belong to others."""
        match command:
            case PutSource(topic=topic):
                if topic is not None and self._is_asked_for(topic):
                    self._create_topic(topic)
            case StartQuery(topic=topic):
                if topic is not None and self._is_asked_for(topic):
                    self._create_sink(command)
            case RemoveSource():
                self._drop_query(command.terminate)
                if not tried and all(source.topic != command.delete_topic for source in self.catalog.sources.values()):
                    self._delete_topic(command.delete_topic)
            case TerminateQuery():
                self._drop_query(command.query_id)
            case ResetQuery():
                if command.query_id in self.catalog.queries:
                    self._reset(command.query_id)
            case RemoveConnector():
                if command.name not in self.catalog.connectors and command.connector is not None:
                    self._connectors.drop(command.connector)
                elif command.name not in self.catalog.connectors:
                    self._connectors.drop_positions(command.name)
            case RemoveMirror():
                if command.name not in self.catalog.mirrors:
                    self._mirrors.drop(command.name)
            case PauseQuery() | PutType() | RemoveType() | PutFunction() | RemoveFunction() | RemoveSecret():
                pass
            case PutConnector() | PauseConnector() | PutSecret() | PutMirror():
                pass  # they are started from the final catalog
            case _:
                assert_never(command)

    def _is_asked_for(self, topic: NewTopic) -> bool:
        return any(
            (source.topic, source.partition_count) == (topic.name, topic.partition_count)
            for source in self.catalog.sources.values()
        )

    def _drop_query(self, query_id: str | None) -> None:
        if query_id is not None and query_id not in self.catalog.queries:
            self._executor.drop(query_id)

    def _check_not_deleted(self, source: SourceInfo | None) -> None:
        """Raises `TopicExists` for a source on a topic that is still to be deleted."""
        for owed in self._owed.commands:
            if source is not None and isinstance(owed, RemoveSource) and owed.delete_topic == source.topic:
                raise TopicExists(
                    f'topic "{source.topic}" is not deleted yet after DROP {owed.name} DELETE TOPIC',
                    hint="Retry when it is deleted, or use another topic.",
                )

    def _check_topic(self, topic: NewTopic | None) -> None:
        if topic is not None and self._log.topic(topic.name) is None:
            check_topic(topic.name, topic.partition_count, topic.config)

    def _create_sink(self, command: StartQuery) -> None:
        """Accepts a new sink topic for a query that is replaced, in case others deleted the topic that it wrote to."""
        if self._create_topic(command.topic):
            KnownTopics(self._log, command.query.plan).accept_sink()

    def _create_topic(self, topic: NewTopic | None) -> bool:
        """Creates the topic unless it exists, and returns whether it did. If a connector or a client creates the topic
        at the same moment, it counts as existing.

        The same statements work on a laptop and on a cluster: with fewer nodes than REPLICAS, the topic gets the
        default number of replicas."""
        if topic is None or self._log.topic(topic.name) is not None:
            return False
        with contextlib.suppress(TopicExists):
            try:
                self._log.create_topic(topic.name, topic.partition_count, topic.config, topic.replicas)
            except InvalidReplicationFactor as refused:
                _log.warning("default number of replicas", topic=topic.name, replicas=topic.replicas, why=str(refused))
                self._log.create_topic(topic.name, topic.partition_count, topic.config)
            return True
        return False

    def _delete_topic(self, name: str | None) -> None:
        if name is not None and self._log.topic(name) is not None:
            self._log.delete_topic(name)


def _changed_topics(command: Command) -> list[str]:
    """The topics that the command creates, has written by a query, or deletes."""
    found: list[str | None] = []
    if isinstance(command, PutSource | StartQuery) and command.topic is not None:
        found.append(command.topic.name)
    if isinstance(command, StartQuery) and isinstance(command.query.plan.root, Sink):
        found.append(command.query.plan.root.topic)
    if isinstance(command, RemoveSource):
        found.append(command.delete_topic)
    return [topic for topic in found if topic is not None]
