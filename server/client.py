"""The client: sends statements to an engine, over HTTP or in this process, with one interface. The shell and notebooks
use it.

    client = connect("http://127.0.0.1:8088")
    client.execute("CREATE STREAM …;")            # entities, as dicts
    with client.query("SELECT * FROM t;") as rows:
        for row in rows: …
"""

from __future__ import annotations

import base64
import contextlib
import decimal
import http.client
import json
import os
import socket
import ssl
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from millstream.errors import MillstreamError, ServerError

from ..sql.settings.property_table import PULL_FULL_SQL
from ..sql.splitting import split_tokens
from ..sql.tokens import ROWS_STATEMENTS, token_span, tokenize
from ..sql.variables import define, substitute_variables, undefine

if TYPE_CHECKING:  # a client of a server needs no engine, which takes a second to import, and most commands no Arrow
    import pyarrow as pa

    from .client_tables import ResultTables
    from .engine.engine import Engine
    from .engine.session import Session

RowsKind = Literal["PULL", "PUSH", "PRINT"]

DEFAULT_PORT: Final = 8088
_CONNECT_SECONDS: Final = 10.0
PRINT_HEAD: Final = 2
"""PRINT begins with so many lines about the formats of the topic."""
_LOG_IN: Final = "Give a name and a password, as in http://NAME:PASSWORD@HOST:PORT, or a token in MILLSTREAM_TOKEN."
_CHECK_PORT: Final = "Check that this is the port of the server's HTTP listener."
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE", "HTTP_REQUEST")
_JSON: Final = {"content-type": "application/json"}
_ROWS_TYPE: Final = "application/vnd.millstream.rows.v1"


class ServerUnreachable(ServerError):
    """No server answers at the URL, or the connection broke."""

    code = "SERVER_UNREACHABLE"


class RemoteError(ServerError):
    """The server refused a request. `message` includes the position and the hint; `error_code` is ksqlDB's."""

    code = "REMOTE"

    def __init__(
        self, message: str, error_code: int, entities: Sequence[dict[str, Any]] = (), *, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.error_code = error_code
        self.entities = list(entities)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a push query is: records that it has still to read, and the largest rowtime so far."""

    lag: int
    stream_time_ms: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """JSON values, DECIMAL as `decimal.Decimal`. A `tombstone` says that a table's row is gone: only keys are set."""

    values: tuple[Any, ...]
    tombstone: bool = False


class Rows:
    """Iterate once. `close`, from any thread or signal handler, ends the iteration early; a context manager closes.

    The rows of PRINT have one text column. `final_message`: the engine's last message, such as `Limit Reached`. `key`:
    if rows update earlier rows, the positions of the columns that identify a row; None if each row is independent.
    `progress`: the progress of a push query, if it is known.
    """

    def __init__(
        self,
        kind: RowsKind,
        query_id: str | None,
        column_names: Sequence[str],
        column_types: Sequence[str],
        rows: Iterator[Row],
        close: Callable[[], None],
        final_message: Callable[[], str | None],
        key: Sequence[int] | None = None,
        progress: Callable[[], Progress | None] = lambda: None,
    ) -> None:
        self.progress = progress
        self.key = None if key is None else tuple(key)
        self.kind: RowsKind = kind
        self.query_id = query_id
        self.column_names = tuple(column_names)
        self.column_types = tuple(column_types)
        self._rows = rows
        self._close = close
        self._final_message = final_message
        self.count = 0  # rows taken so far; records, if this is PRINT

    @property
    def final_message(self) -> str | None:
        return self._final_message()

    def __iter__(self) -> Iterator[Row]:
        try:
            for index, row in enumerate(self._rows):
                self.count += self.kind != "PRINT" or index >= PRINT_HEAD
                yield row
        finally:
            self.close()

    def close(self) -> None:
        self._close()

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client(Protocol):
    """One session: SET and DEFINE apply to later statements. `address` is for display."""

    @property
    def address(self) -> str: ...

    def execute(self, text: str) -> list[dict[str, Any]]:
        """Runs statements that answer at once. Raises `MillstreamError`."""
        ...

    def query(self, text: str) -> Rows:
        """Starts one SELECT or PRINT. Raises `MillstreamError` before the first row or between rows."""
        ...

    def define(self, name: str, value: str) -> None:
        """Sets a variable."""
        ...

    def info(self) -> dict[str, Any]:
        """The server's information: `version`, `kafkaClusterId`, …"""
        ...

    def close(self) -> None: ...


class DataClient(Client, Protocol):
    """A client for programs: results and inserted rows are Arrow tables."""

    def tables(self, text: str) -> ResultTables:
        """Starts one SELECT whose rows come as Arrow tables. Raises as `query`."""
        ...

    def insert(self, name: str, rows: pa.Table) -> int:
        """Appends rows to a stream or table, and returns how many. Over HTTP, large tables take several requests.

        Columns are found by name, also by name in upper case; ROWTIME, in ms, is the records' time. Raises
        `MillstreamError`.
        """
        ...


def gives_rows(statement: str) -> bool:
    """Whether the statement is for `query`, not for `execute`.

    >>> gives_rows("-- all\\nselect * from s;"), gives_rows("SHOW STREAMS;")
    (True, False)
    """
    first = tokenize(statement, limit=1)
    return bool(first) and first[0].type in ROWS_STATEMENTS


def connect(url: str) -> HttpClient:
    """A client of the server at `http://HOST:PORT`. Raises `ServerUnreachable` if no server answers there.

    Its pull queries accept all of SQL, unless a SET changes that: only programs written for ksqlDB rely on refusals.
    """
    client = HttpClient(url)
    client.info()
    client.properties[PULL_FULL_SQL.name] = "true"
    return client


def log_in(url: str) -> HttpClient:
    """Like `connect`, and raises `RemoteError` if the server does not accept the user of the URL."""
    client = connect(url)
    client.get(f"/is_valid_property/{PULL_FULL_SQL.name}")  # `connect` asks what everybody may ask
    return client


class HttpClient:
    """Implements `DataClient`. Each request has its own connection, so queries may run concurrently.

    The server keeps no sessions: the client stores what was SET and DEFINEd, and sends it with each request.
    """

    def __init__(self, url: str, token: str | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        """In: `token`: authenticates the user, unless the URL has a name and password. `tls`: the certificates to trust
        and to show, instead of the system's."""
        self._url = _parsed(url)
        self._tls = tls
        self._headers = _identity(self._url, token)
        self.properties: dict[str, str] = {}
        self.variables: dict[str, str] = {}

    @property
    def address(self) -> str:
        return f"{self._url.scheme}://{self._url.netloc.rpartition('@')[2]}"  # without the password

    def execute(self, text: str) -> list[dict[str, Any]]:
        body = {
            "ksql": text,
            "streamsProperties": self.properties,
            "sessionVariables": self.variables,
        }
        with self._send("POST", "/ksql", json.dumps(body).encode(), _JSON) as exchange:
            entities = json.loads(self._read(exchange))
        self._remember(text)
        return entities

    def query(self, text: str) -> Rows:
        return _RemoteRows(self._query(text, f"{_ROWS_TYPE};progress=1"), self.address).rows()

    def tables(self, text: str) -> ResultTables:
        from .client_tables import ARROW_TYPE, remote_tables

        exchange = self._query(text, ARROW_TYPE)
        return remote_tables(exchange.response, exchange.cut, self.address)

    def insert(self, name: str, rows: pa.Table) -> int:
        from .client_tables import ARROW_TYPE, insert_bodies

        path = f"/v1/sources/{urllib.parse.quote(name, safe='')}/rows"
        for body in insert_bodies(rows):
            with self._send("POST", path, body, {"content-type": ARROW_TYPE}) as exchange:
                self._read(exchange)
        return rows.num_rows

    def define(self, name: str, value: str) -> None:
        define(self.variables, name, value)

    def info(self) -> dict[str, Any]:
        with self._send("GET", "/info", None, {}) as exchange:
            try:
                return json.loads(self._read(exchange))["KsqlServerInfo"]
            except (ValueError, LookupError, TypeError):
                raise ServerUnreachable(f"what answers at {self.address} is not a Millstream server") from None

    def cluster(self, action: str | None = None, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The state of the cluster; with `action`, the answer to that action below /cluster. Raises `RemoteError`,
        `ServerUnreachable`."""
        return json.loads(self.get("/cluster")) if action is None else self.post(f"/cluster/{action}", body or {})

    def get(self, path: str) -> bytes:
        """The body of the answer to GET. In: `path` with its query. Raises `RemoteError`, `ServerUnreachable`."""
        with self._send("GET", path, None, {}) as exchange:
            return self._read(exchange)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to POST; both bodies are JSON. Raises as `get` does."""
        with self._send("POST", path, json.dumps(body).encode(), _JSON) as exchange:
            return json.loads(self._read(exchange))

    def close(self) -> None:
        """Does nothing: no connection is open between requests."""

    def _query(self, text: str, media_type: str) -> _Exchange:
        body = {"sql": text, "properties": self.properties, "sessionVariables": self.variables}
        return self._send("POST", "/query-stream", json.dumps(body).encode(), {**_JSON, "accept": media_type})

    def _send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> _Exchange:
        """A successful response. Raises `RemoteError`, `ServerUnreachable`."""
        connection = self._connection()
        try:
            connection.connect()
            connected = connection.sock
            connected.settimeout(None)  # a statement may take long, and a push query does not end
            target = self._url.path.rstrip("/") + path
            connection.request(method, target, body, {"accept": "application/json", **self._headers, **headers})
            exchange = _Exchange(connection, connected, connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error
        except BaseException:
            connection.close()
            raise
        if exchange.response.status >= 400:
            with exchange:
                raise _refusal(self._read(exchange), exchange.response.status)
        return exchange

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port or DEFAULT_PORT
        if self._url.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=_CONNECT_SECONDS, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=_CONNECT_SECONDS)

    def _read(self, exchange: _Exchange) -> bytes:
        try:
            return exchange.response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> ServerUnreachable:
        if isinstance(error, ConnectionRefusedError | socket.gaierror | TimeoutError):
            hint = "Start one with `millstream server --data DIR`, or check the URL."
            return ServerUnreachable(f"no server answers at {self.address}", hint=hint)
        if isinstance(error, ssl.SSLCertVerificationError):
            hint = "The variable SSL_CERT_FILE names a file with the certificates to trust."
            message = f"the certificate of {self.address} is not trusted: {error.verify_message}"
            return ServerUnreachable(message, hint=hint)
        if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
            hint = f"Write http:// if the server has no TLS. {_CHECK_PORT}"
            return ServerUnreachable(f"what answers at {self.address} does not speak TLS", hint=hint)
        if isinstance(error, http.client.RemoteDisconnected):
            scheme = "http" if self._url.scheme == "https" else "https"
            hint = f"If the server runs, write {scheme}://, or check that this is the port of its HTTP listener."
            return ServerUnreachable(f"{self.address} closed the connection without an answer", hint=hint)
        if isinstance(error, http.client.BadStatusLine):
            return ServerUnreachable(f"what answers at {self.address} does not speak HTTP", hint=_CHECK_PORT)
        return ServerUnreachable(f"the connection to {self.address} broke: {error}")

    def _remember(self, text: str) -> None:
        """Stores the effect of SET, UNSET, DEFINE and UNDEFINE statements that the server has just accepted."""
        for group in split_tokens(tokenize(text)):
            verb = str(group[0]).upper()
            if verb not in ("SET", "UNSET", "DEFINE", "UNDEFINE") or len(group) < 2:
                continue
            statement = text[token_span(group[0]).start : token_span(group[-1]).end]
            words = [str(token) for token in tokenize(substitute_variables(statement, self.variables))]
            match verb:
                case "SET":
                    self.properties[_string(words[1])] = _string(words[3])
                case "UNSET":
                    self.properties.pop(_string(words[1]), None)
                case "DEFINE":
                    self.define(words[1], _string(words[3]))
                case _:
                    undefine(self.variables, words[1])


class LocalClient:
    """Implements `DataClient` on an engine in this process. In: `close`: also closes the engine, if the client owns
    it."""

    def __init__(self, engine: Engine, session: Session, *, address: str, close: Callable[[], None]) -> None:
        self._engine = engine
        self._session = session
        self._address = address
        self._close = close

    @property
    def address(self) -> str:
        return self._address

    def execute(self, text: str) -> list[dict[str, Any]]:
        return [entity.as_json() for entity in self._engine.execute(text, self._session)]

    def query(self, text: str) -> Rows:
        first = tokenize(text, limit=1)
        if first and first[0].type == "PRINT":
            return self._print(text)
        result = self._engine.query(text, self._session)
        names = [column.name for column in result.schema]
        types = [str(column.type) for column in result.schema]
        rows = (Row(row.values, row.tombstone) for row in result)
        return Rows(
            result.kind, result.query_id, names, types, rows, result.close, lambda: result.final_message, result.key,
            lambda: _progress(result.progress()),
        )  # fmt: skip

    def tables(self, text: str) -> ResultTables:
        from .client_tables import local_tables

        return local_tables(self._engine.query(text, self._session))

    def insert(self, name: str, rows: pa.Table) -> int:
        return self._engine.insert(name, rows, self._session)

    def define(self, name: str, value: str) -> None:
        self._session.define(name, value)

    def info(self) -> dict[str, Any]:
        return {"serverStatus": "RUNNING"}

    def close(self) -> None:
        self._close()

    def _print(self, text: str) -> Rows:
        statements: list[Any] = self._engine.parse(text, self._session)
        feed = self._engine.print_topic(statements[0], self._session)
        lines = (Row((line,)) for line in feed)
        return Rows("PRINT", None, ("LINE",), ("STRING",), lines, feed.close, lambda: None)


class _Exchange:
    """One request's connection and response."""

    def __init__(
        self, connection: http.client.HTTPConnection, connected: socket.socket, response: http.client.HTTPResponse
    ) -> None:
        self.response = response
        self._connection = connection
        self._socket = connected

    def cut(self) -> None:
        """Unblocks a read in another thread, or one that a signal interrupted in this thread; the read finds the
        end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> _Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        self.response.close()
        self._connection.close()


class _RemoteRows:
    """The lines of one response."""

    def __init__(self, exchange: _Exchange, address: str) -> None:
        self._exchange = exchange
        self._address = address
        self._final_message: str | None = None
        self._progress: Progress | None = None
        self._closed = False
        self._loads: Callable[[bytes], Any] = json.loads

    def rows(self) -> Rows:
        header = self._line()
        if not isinstance(header, dict) or "columnNames" not in header:
            self.close()
            raise ServerUnreachable(f"what answers at {self._address} is not a Millstream server")
        self._loads = _decoder(header["columnTypes"])
        return Rows(
            header["kind"], header["queryId"], header["columnNames"], header["columnTypes"],
            self._rows(), self.close, lambda: self._final_message, header.get("keyColumns"), lambda: self._progress,
        )  # fmt: skip

    def close(self) -> None:
        """Cuts the connection; the server notices and ends the query."""
        self._closed = True
        self._exchange.cut()

    def _rows(self) -> Iterator[Row]:
        with self._exchange:
            while True:
                value = self._line()
                if value is None:
                    return
                if isinstance(value, list):
                    yield Row(tuple(value))
                elif "tombstone" in value:
                    yield Row(tuple(value["tombstone"]), tombstone=True)
                elif "progress" in value:
                    self._progress = Progress(value["progress"]["lag"], value["progress"]["streamTimeMs"])
                elif "errorMessage" in value:
                    raise _error(value["errorMessage"])
                else:
                    self._final_message = value.get("finalMessage")
                    return

    def _line(self) -> Any:
        """The next value; None if the response ended because this client closed it."""
        try:
            line = self._exchange.response.readline()
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            if self._closed:
                return None
            raise ServerUnreachable(f"the connection to {self._address} broke: {error}") from error
        if self._closed:
            return None
        if not line:
            raise ServerUnreachable(f"the connection to {self._address} broke before the last row")
        return self._loads(line)


def _parsed(url: str) -> urllib.parse.SplitResult:
    parsed = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
    try:
        usable = parsed.scheme in ("http", "https") and parsed.hostname and (parsed.port or True)
    except ValueError:
        usable = False
    if not usable:
        raise ServerUnreachable(
            f'"{url}" is not the URL of a server', hint=f"Write it like http://127.0.0.1:{DEFAULT_PORT}."
        )
    return parsed


def _identity(url: urllib.parse.SplitResult, token: str | None) -> dict[str, str]:
    """The header that authenticates the user: from `http://NAME:PASSWORD@HOST`, or a token, also from the variable
    MILLSTREAM_TOKEN."""
    if url.username is not None:
        pair = f"{urllib.parse.unquote(url.username)}:{urllib.parse.unquote(url.password or '')}"
        return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    token = token or os.environ.get("MILLSTREAM_TOKEN")
    return {"authorization": f"Bearer {token}"} if token else {}


def _refusal(body: bytes, status: int) -> MillstreamError:
    try:
        error = _error(json.loads(body))
    except (ValueError, LookupError, TypeError):
        return ServerUnreachable(f"the server answered with HTTP status {status}")
    if status == http.HTTPStatus.UNAUTHORIZED and "\nhint: " in error.message:  # the server's is about headers
        return RemoteError(error.message.partition("\nhint: ")[0], error.error_code, hint=_LOG_IN)
    return error


def _error(body: Mapping[str, Any]) -> RemoteError:
    return RemoteError(str(body["message"]), int(body["error_code"]), body.get("entities", ()))


def _decoder(column_types: Sequence[str]) -> Callable[[bytes], Any]:
    """A function that parses a row. It keeps all digits of DECIMAL values, which a server writes without an exponent: a
    number with one is a DOUBLE, wherever it stands."""
    if not any("DECIMAL" in type_ for type_ in column_types):
        return json.loads
    doubles = [index for index, type_ in enumerate(column_types) if type_ == "DOUBLE"]

    def loads(line: bytes) -> Any:
        value = json.loads(line, parse_float=_number)
        if isinstance(value, list):
            for index in doubles:
                if isinstance(value[index], decimal.Decimal):
                    value[index] = float(value[index])
        return value

    return loads


def _number(text: str) -> decimal.Decimal | float:
    return float(text) if "e" in text.lower() else decimal.Decimal(text)


def _progress(told: Any) -> Progress | None:
    return None if told is None else Progress(told.lag, told.stream_time_ms)


def _string(literal: str) -> str:
    """The text of a quoted string."""
    quote = literal[0]
    return literal[1:-1].replace(quote * 2, quote)
