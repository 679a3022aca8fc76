"""The context of a statement handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from millstream.errors import InvalidStatement, Span

from ...executor.connect.connectors import Connectors
from ...executor.connect.mirrors import Mirrors
from ...executor.executor import Executor
from ...logcore.client import LogClient
from ...planner.catalog import Catalog, PersistentQuery
from ...planner.expressions.user_functions import S, bound
from ...planner.planning import PlanningContext
from ...planner.schemas.registry import Version, topic_of
from ...sql.settings.property_table import EXECUTOR
from ..catalog.catalog_store import CatalogStore
from ..catalog.schema_store import SchemaStore
from ..config.server_settings import ServerSettings
from ..connect.connect_client import ConnectClient
from ..insight.open_pushes import OpenPush, OpenPushes, find_push
from ..security.rights import Need
from .appending import Appender
from .constants import ConstantEvaluator
from .materializations import Materializations
from .session import Session


@dataclass(frozen=True, slots=True)
class Request:
    """`server_properties`: the server's configuration, by canonical name; `server`: the server's settings from it.
    `now_ms`: the clock. `lock`: the engine's lock; statements that first wait for other systems take it themselves.
    `pushes`: the push queries of clients. `connect_cluster`: where connectors run; None: they run here."""

    session: Session
    store: CatalogStore
    log: LogClient
    executor: Executor
    connectors: Connectors
    mirrors: Mirrors
    constants: ConstantEvaluator
    server_properties: Mapping[str, str]
    server: ServerSettings
    now_ms: Callable[[], int]
    schemas: SchemaStore
    appender: Appender
    materializations: Materializations
    lock: AbstractContextManager[object]
    pushes: OpenPushes
    connect_cluster: ConnectClient | None = None

    @property
    def catalog(self) -> Catalog:
        return self.store.catalog

    @property
    def visible(self) -> Catalog:
        """The part of the catalog that the user may read."""
        return self.session.rights.visible(self.store.catalog)

    @property
    def settings(self) -> dict[str, str]:
        """The properties that apply to this statement."""
        return self.session.settings(self.server_properties)

    @property
    def code_allowed(self) -> bool:
        """Whether users may define functions in Python; no session can change that."""
        return self.server.python_functions

    def bound(self, statement: S) -> S:
        """The statement, with calls of users' functions bound to the current versions of these functions. Raises
        `PythonFunctionsOff`."""
        return bound(statement, self.catalog.functions, allowed=self.code_allowed)

    def register(self, versions: Sequence[Version]) -> None:
        """Writes schemas of topics to the registry. Raises `NotPermitted` if the user may not write records to one of
        the topics."""
        self.session.rights.require(Need("insert", topic_of(version.subject)) for version in versions)
        self.schemas.append(versions)

    def query(self, query_id: str, span: Span | None) -> PersistentQuery:
        """The persistent query of this id, which is not case-sensitive. Raises `InvalidStatement`."""
        if (push := self.push(query_id)) is not None:
            raise InvalidStatement(
                f"{push.id} is a push query, and this is for persistent queries.",
                span=span,
                hint="A push query ends with its client, or by TERMINATE; EXPLAIN shows it.",
            )
        return self.catalog.query(query_id, span)

    def push(self, query_id: str) -> OpenPush | None:
        """The client's push query of this id, if the user may end it and no persistent query has the id."""
        if self.catalog.find_query(query_id) is not None:
            return None
        return find_push(query_id, self.pushes, self.session.rights)

    def planning_context(self, query_id: str = "query") -> PlanningContext:
        """A plan names an executor only if its statement or the session does. Otherwise the server chooses one at each
        start."""
        topics = {topic.name: topic.partition_count for topic in self.log.topics().values()}
        settings = self.settings
        if EXECUTOR.name not in self.session.properties:
            settings.pop(EXECUTOR.name, None)
        return PlanningContext(
            self.catalog,
            settings,
            topics,
            query_id,
            self.schemas.registry,
            columnar_topics=self.log.capabilities.columnar,
        )
