"""`millstream.connect`: opens an engine in this process, or connects to a server; for programs and notebooks."""

from __future__ import annotations

import atexit
import contextlib
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from millstream.errors import ConnectionClosed, InvalidStatement, did_you_mean
from millstream.repl.text.entity_text import type_text
from millstream.server.client import DataClient, LocalClient, gives_rows
from millstream.server.client import connect as connect_to_server
from millstream.server.client_tables import ResultTables
from millstream.sql.collector import importing
from millstream.sql.settings.property_table import EXECUTOR, PULL_FULL_SQL, SERVICE_ID
from millstream.sql.splitting import split_statements
from millstream.sql.tokens import tokenize

from .frames import arrow_table, sql_type
from .graph import GraphPicture, graph_picture
from .parameters import Parameters, bind, literal
from .relation import Relation, text_of
from .waiting import wait_for_results

if TYPE_CHECKING:
    from millstream.server.engine.embedded import EmbeddedEngine

_ENVELOPE = ("@type", "statementText")  # the members of every entity


def connect(
    target: str | Path | None = None,
    properties: Mapping[str, Any] | None = None,
    *,
    kafka: Mapping[str, str] | None = None,
) -> Connection:
    """Connects to a server by its URL, or opens an engine in this process: in a folder or, without one, in a temporary
    folder that is removed at the end.

    In: `properties` as for SET, such as {"auto.offset.reset": "earliest"}; `millstream.pull.full.sql` is true by
    default. `kafka`: the brokers for the log of an engine in this process, with the properties of [external] in the
    configuration, and `ksql.service.id` (docs/external-kafka.md). Raises `ServerUnreachable`, `LogLocked` if another
    process uses the folder, `InvalidProperty`, `InvalidKafkaProperty`.

    >>> with connect() as ms:
    ...     ms.sql("CREATE STREAM clicks (user STRING KEY, size INT) "
    ...            "WITH (kafka_topic='clicks', value_format='JSON', partitions=1);")
    ...     ms.insert("clicks", {"user": ["ada", "bo", "ada"], "size": [3, 4, 5]})
    ...     ms.sql("SELECT user, size FROM clicks WHERE size > ?;", [3]).fetchall()
    status
    Stream created
    3
    [('bo', 4), ('ada', 5)]
    """
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        client: DataClient = connect_to_server(target)
    else:
        client = own_engine(None if target is None else Path(target), kafka)
    connection = Connection(client)
    try:
        for name, value in {PULL_FULL_SQL.name: True, **(properties or {})}.items():
            connection.set(name, value)
    except BaseException:
        connection.close()
        raise
    return connection


class Connection:
    """One session: SET and DEFINE apply to later statements. A context manager; `close` also ends the connection's own
    engine."""

    def __init__(self, client: DataClient) -> None:
        self._client = client
        self._closed = False
        self._registered: dict[str, str] = {}  # the kinds of registered data frames, by name

    @property
    def client(self) -> DataClient:
        """The client beneath. Raises `ConnectionClosed`."""
        if self._closed:
            raise ConnectionClosed("the connection is closed", hint="Connect anew with millstream.connect.")
        return self._client

    def sql(self, text: str, parameters: Parameters | None = None, **frames: Any) -> Relation:
        """Runs statements. A SELECT at the end becomes a `Relation`, which runs when its rows are requested; any other
        last statement returns an `Answer`, which a notebook displays.

        In: `parameters`: values for `?`, or by name for `:name`. `frames`: data frames that the statements may use as
        streams. Raises `MillstreamError`.
        """
        for name, frame in frames.items():
            self.register(name, frame)
        *before, last = split_statements(bind(text, parameters)) or [""]
        for statement in before:
            self._run(statement)
        return self._run(last)

    def table(self, name: str) -> Relation:
        """All rows of a table, or all current rows of a stream. In: `name` in SQL's notation."""
        return self._relation(f"SELECT * FROM {name};")

    stream = table

    def execute(self, text: str, parameters: Parameters | None = None) -> list[dict[str, Any]]:
        """Runs statements without rows, and returns ksqlDB's entities. Raises `MillstreamError`."""
        text = bind(text, parameters)
        _refuse_rows(text)
        return self.client.execute(text)

    def graph(self, of: str | None = None) -> GraphPicture:
        """The graph of all streams, tables and queries; the neighbours of a stream, a table or a topic; or the plan of
        a query. A notebook draws it. In: `of`: its name. Raises `MillstreamError`."""
        return graph_picture(self.client, of)

    def set(self, name: str, value: Any) -> None:
        """Sets a property for this session."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        self.client.execute(f"SET {literal(name)}={literal(text)};")

    def insert(self, name: str, frame: Any) -> int:
        """Appends the rows of a data frame to a stream or table, all or none, and returns how many.

        Columns are found by name, in any case; ROWTIME (ms or timestamps) is the rows' time. Values are cast if nothing
        is lost. Over HTTP, a large frame takes several requests. Raises `MillstreamError`, `TypeError`.
        """
        return self.client.insert(_read_name(name), arrow_table(frame))

    def wait(self, timeout: float = 30.0) -> None:
        """Returns when all rows inserted before are in the results of all running queries, and of queries that read
        those results. Open windows and paused queries do not count.

        In: `timeout` in seconds. Raises `ResultsBehind`, which names the query that is behind.
        """
        wait_for_results(self.client, timeout)

    def register(
        self, name: str, frame: Any, *, key: str | None = None, kind: Literal["STREAM", "TABLE"] = "STREAM"
    ) -> None:
        """Creates a stream (or a TABLE, which needs a `key`) from a data frame. It replaces one that this connection
        registered under the same name. For any other stream, table or topic of that name, it raises `MillstreamError`.

        The rows are written to a columnar topic of that name with one partition, in the frame's order.
        """
        rows = arrow_table(frame)
        columns = [column for column in rows.column_names if column.upper() != "ROWTIME"]
        sql_names = [_read_name(column) for column in columns]
        if len(set(sql_names)) < len(sql_names):
            raise InvalidStatement("two columns of the frame differ in case only", hint="Rename one of them.")
        if key is not None and _read_name(key) not in sql_names:
            raise InvalidStatement(f"the frame has no column {key}, the key", hint=did_you_mean(key, columns))
        role = "KEY" if kind == "STREAM" else "PRIMARY KEY"
        written = [
            f"{_quoted(sql_name)} {sql_type(rows.schema.field(column).type, column)}"
            + (f" {role}" if key is not None and sql_name == _read_name(key) else "")
            for sql_name, column in zip(sql_names, columns, strict=True)
        ]
        source = _read_name(name)
        topic = source.lower()
        if (known := self._registered.pop(source, None)) is not None:
            self.client.execute(f"DROP {known} IF EXISTS {name} DELETE TOPIC;")
        elif any(found["name"] == topic for found in self.client.execute("SHOW ALL TOPICS;")[0]["topics"]):
            raise InvalidStatement(f'there is a topic "{topic}" already', hint="Register the frame under another name.")
        self.client.execute(
            f"CREATE {kind} {name} ({', '.join(written)}) "
            f"WITH (kafka_topic={literal(topic)}, key_format='JSON', value_format='ARROW', partitions=1);"
        )
        self._registered[source] = kind
        self.insert(name, rows)

    def close(self) -> None:
        self._closed = True
        self._client.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<millstream connection to {self._client.address}>"

    def _run(self, statement: str) -> Relation:
        if gives_rows(statement):
            return self._relation(statement)
        return Answer(self.client.execute(statement))

    def _relation(self, statement: str) -> Relation:
        words = [str(token).upper() for token in tokenize(statement)]
        if words[0] == "PRINT":
            hint = "Make a stream of the topic, and SELECT from that."
            raise InvalidStatement("PRINT gives lines of text, which the shell shows, and no rows", hint=hint)
        return Relation(
            lambda text: self.client.tables(text), statement, endless="EMIT" in words and "LIMIT" not in words
        )


class Answer(Relation):
    """The answer to a statement other than SELECT, as rows of text and numbers: the lines of SHOW, DESCRIBE and
    EXPLAIN, or one with the status of a change. `entities` are ksqlDB's."""

    def __init__(self, entities: list[dict[str, Any]]) -> None:
        super().__init__(self._tables, "", endless=False)
        self.entities = entities

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The lines of the last entity."""
        if not self.entities:
            return []
        last = self.entities[-1]
        if "commandStatus" in last:
            return [{"status": last["commandStatus"]["message"]}]
        if "lineage" in last:
            return last["lineage"]
        inner = next((value for value in last.values() if isinstance(value, dict) and "fields" in value), last)
        if "executionPlan" in inner:
            return [{"plan": line} for line in inner["executionPlan"].splitlines()]
        lists = [v for v in inner.values() if isinstance(v, list) and v and all(isinstance(line, dict) for line in v)]
        facts = {name: value for name, value in inner.items() if name not in _ENVELOPE and isinstance(value, int | str)}
        return max(lists, key=len, default=[facts] if facts else [])

    def __repr__(self) -> str:
        table = self.arrow()
        return text_of(table, table.num_rows) if table.num_columns else ""

    def bundle(self) -> dict[str, str]:
        from .notebook.display import answer_bundle

        return answer_bundle(self)

    def _over(self, text: str) -> Relation:
        raise InvalidStatement("only a SELECT can be built upon", hint="Take its .df() or .arrow().")

    def _emitting(self) -> str:
        raise InvalidStatement("only a SELECT can be shown live", hint="Leave --live and --chart out.")

    def _tables(self, text: str) -> ResultTables:
        table = pa.Table.from_pylist([{name: _plain(value) for name, value in row.items()} for row in self.rows])
        types = tuple(str(sql_type(field.type)) for field in table.schema if not pa.types.is_null(field.type))
        return ResultTables("PULL", "", table.schema, types, iter([table]), lambda: None)


def _plain(value: Any) -> int | str | None:
    """A cell: nested values become text, types are in SQL notation."""
    match value:
        case int() | str() | None:
            return value
        case {"type": _, "memberSchema": _}:
            return type_text(value)
        case list():
            return ", ".join(map(str, value))
        case _:
            return str(value)


def _refuse_rows(text: str) -> None:
    """Raises `InvalidStatement` if the text contains a SELECT or a PRINT."""
    for statement in split_statements(text):
        if gives_rows(statement):
            first = str(tokenize(statement, limit=1)[0]).upper()
            hint = "Give it to `sql`: ms.sql(…).fetchall()."
            raise InvalidStatement(f"{first} answers with rows, which `execute` does not give", hint=hint)


def _read_name(name: str) -> str:
    """The name as SQL reads it: upper case, unless it is quoted."""
    if name[:1] in ("`", '"') and name[-1:] == name[:1] and len(name) > 1:
        return name[1:-1].replace(name[0] * 2, name[0])
    return name.upper()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def own_engine(folder: Path | None, kafka: Mapping[str, str] | None = None) -> LocalClient:
    """A client of an engine in this process. The engine ends with the client, at the latest with the process; without a
    folder, nothing is stored. In: `kafka`: brokers for its log.

    Queries run on DuckDB: there is no listener for Spark's processes.
    """
    with importing():
        from millstream.server.engine.embedded import open_engine
        from millstream.server.engine.session import Session

    _quiet_logs()
    parts = contextlib.ExitStack()
    data = folder or Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="millstream-")))
    try:
        if kafka is not None:
            engine = _engine_on_brokers(data, kafka)
        else:
            engine = open_engine(data, {EXECUTOR.name: "duckdb"}, sync="always" if folder else "never")
    except BaseException:
        parts.close()
        raise
    parts.callback(engine.close)
    atexit.register(parts.close)  # otherwise threads that still compute end the process with a signal
    parts.callback(atexit.unregister, parts.close)
    address = f"an engine in this process ({folder or 'nothing is kept'})"
    return LocalClient(engine, Session(), address=address, close=parts.close)


def _engine_on_brokers(data: Path, kafka: Mapping[str, str]) -> EmbeddedEngine:
    from millstream.server.external_engine import open_engine_on_brokers

    external = {name: value for name, value in kafka.items() if name != SERVICE_ID.name}
    service = {SERVICE_ID.name: kafka[SERVICE_ID.name]} if SERVICE_ID.name in kafka else {}
    return open_engine_on_brokers(external, data, {EXECUTOR.name: "duckdb", **service})


def _quiet_logs() -> None:
    """Logs only warnings, to standard error, unless the program has configured structlog. Each line looks up standard
    error again, because notebooks and tests replace it and close the old file. Errors are logged without the values of
    variables: these may include rows and passwords, and with rich installed, formatting them takes a second."""
    import structlog

    if not structlog.is_configured():
        structlog.configure(
            processors=[
                *structlog.get_config()["processors"][:-1],
                structlog.dev.ConsoleRenderer(
                    colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
                ),
            ],
            wrapper_class=structlog.make_filtering_bound_logger("warning"),
            logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        )
