"""A text of several statements is rehearsed before the first of them runs, as in ksqlDB: a mistake in the last one must
not leave the others carried out.

The handlers run against copies. A command changes a catalog that is a value, a topic exists on paper, and nothing is
written. So a rehearsal asks the same rules as the statements themselves, and not a second set of rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, cast

import pyarrow as pa

from ...logcore.client import LogClient, Offsets, Topic
from ...planner.catalog import Catalog
from ...planner.planning import NewTopic
from ...planner.schemas.registry import Registry, Version, apply_record, version_record
from ...planner.source_info import SourceInfo
from ...sql import ast
from ..catalog.catalog_store import CatalogStore
from ..catalog.commands import Command, PutSource, RemoveSource, StartQuery, apply_command
from ..catalog.schema_store import SchemaStore
from ..engine.appending import Appender, Arrays
from ..engine.request import Request
from ..engine.session import Session
from . import handle

_CHANGES_NO_CATALOG: Final = (
    ast.AssertValues, ast.DeleteRows, ast.Describe, ast.Explain, ast.Show, ast.ShowGraph, ast.ShowLineage,
)  # fmt: skip
_NEEDS_OTHER_SYSTEMS: Final = (
    ast.AlterConnector, ast.AssertSchema, ast.AssertTopic, ast.ControlConnector, ast.ControlMirror,
    ast.CreateConnector, ast.CreateFromConnector, ast.CreateMirror, ast.CreateSecret, ast.DropConnector,
    ast.DropSecret, ast.Resnapshot,
)  # fmt: skip

_NO_END: Final = 2**63 - 1


class Rehearsal:
    """State: what the catalog, the topics, the registry and the session would be after the statements so far."""

    def __init__(self, request: Request) -> None:
        """In: `request`: what the statements will have when they run."""
        self._topics = _TopicsOnPaper(request.log)
        self.session = _copy_of(request.session)
        self._request = replace(
            request,
            session=self.session,
            store=cast(CatalogStore, _StoreOnPaper(request.store, self._topics)),
            log=cast(LogClient, self._topics),
            schemas=cast(SchemaStore, _RegistryOnPaper(request.schemas.registry)),
            appender=cast(Appender, _AppenderOnPaper(self._topics, request.now_ms)),
        )

    @property
    def catalog(self) -> Catalog:
        return self._request.catalog

    def topics(self) -> Mapping[str, Topic]:
        return self._topics.topics()

    def try_out(self, statement: ast.Statement) -> bool:
        """Raises what the statement would raise. Statements that only read, or wait for rows, are passed over. False:
        what this one does, as with a connector, is not known before it is done, so the rehearsal ends here."""
        if isinstance(statement, _NEEDS_OTHER_SYSTEMS):
            return False
        if not isinstance(statement, _CHANGES_NO_CATALOG) and not self._ends_a_push_query(statement):
            handle(statement, self._request)
        return True

    def _ends_a_push_query(self, statement: ast.Statement) -> bool:
        named = statement.query_id if isinstance(statement, ast.ControlQuery) else None
        return named is not None and self._request.push(named) is not None


def _copy_of(session: Session) -> Session:
    return replace(
        session, properties={**session.properties}, variables={**session.variables}, asserted={**session.asserted}
    )


class _TopicsOnPaper:
    """What handlers ask of a log: its topics, with those that commands would create or delete."""

    def __init__(self, log: LogClient) -> None:
        self._log = log
        self._topics: dict[str, Topic] = dict(log.topics())
        self._new: set[str] = set()
        self._grown: set[str] = set()
        self.capabilities = log.capabilities

    def topics(self) -> Mapping[str, Topic]:
        return self._topics

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def partition_count(self, topic: str) -> int:
        return self._topics[topic].partition_count if topic in self._new else self._log.partition_count(topic)

    def offsets(self, topic: str, partition: int) -> Offsets:
        start = 0 if topic in self._new else self._log.offsets(topic, partition).log_start_offset
        end = _NO_END if topic in self._new | self._grown else self._log.offsets(topic, partition).log_end_offset
        return Offsets(start, end, end, end)

    def note_records(self, topic: str) -> None:
        """It will have further records; how many, the rehearsal does not count."""
        self._grown.add(topic)

    def create(self, topic: NewTopic | None) -> None:
        if topic is not None and topic.name not in self._topics:
            self._topics[topic.name] = Topic(topic.name, topic.partition_count, topic.config)
            self._new.add(topic.name)

    def delete(self, name: str | None) -> None:
        if name is not None:
            self._topics.pop(name, None)


class _StoreOnPaper:
    """A `CatalogStore` that folds commands and writes none."""

    def __init__(self, store: CatalogStore, topics: _TopicsOnPaper) -> None:
        self._store, self._topics = store, topics
        self.catalog = store.catalog
        self.next_offset = store.next_offset

    def submit(self, command: Command) -> int:
        self._store.check(command)
        self.catalog = apply_command(self.catalog, command)
        if isinstance(command, PutSource | StartQuery):
            self._topics.create(command.topic)
        elif isinstance(command, RemoveSource):
            self._topics.delete(command.delete_topic)
        self.next_offset += 1
        return self.next_offset - 1


class _RegistryOnPaper:
    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def append(self, versions: Iterable[Version]) -> None:
        for version in versions:
            self.registry = apply_record(self.registry, *version_record(version))


class _AppenderOnPaper:
    """An `Appender` that encodes rows, which may fail, and writes none."""

    def __init__(self, topics: _TopicsOnPaper, now_ms: Callable[[], int]) -> None:
        self._topics = topics
        self._appender = Appender(cast(LogClient, topics), now_ms)

    def append(self, source: SourceInfo, columns: Arrays, rowtimes: pa.Int64Array) -> None:
        self._appender.records(source, columns, rowtimes)
        self._topics.note_records(source.topic)
