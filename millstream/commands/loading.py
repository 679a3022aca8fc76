"""`millstream load`: appends files of records to a stream or table, which it creates if it does not exist."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.dataset as pads

from millstream.errors import ServerError
from millstream.sql.identifiers import normalise_identifier, quote_identifier
from millstream.sql.tokens import tokenize

from ..connection import Connection
from ..frames import sql_type

FileFormat = Literal["csv", "json", "parquet", "arrow"]

_BY_SUFFIX: Final[dict[str, FileFormat]] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_ROWS: Final = 50_000  # at a time
_NOT_OF_TOPICS: Final = re.compile(r"[^a-z0-9._-]")
_ABOUT_FILES: Final = re.compile(
    r"^Error creating dataset\. .*?: Could not open \w+ input source '.*?': (?:Invalid: )?"
)
"""What Arrow says before what is wrong in a file."""


class CannotLoad(ServerError):
    """A file cannot be read, or its rows do not fit."""

    code = "CANNOT_LOAD"


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """`name`: of the stream or table. `key`: its key column. `time`: the column with the rows' time. The other fields
    are for a new stream or table; `value_format` as in WITH."""

    name: str
    key: str | None = None
    time: str | None = None
    is_table: bool = False
    value_format: str = "JSON"
    partitions: int = 1


def load(path: Path, target: LoadTarget, connection: Connection, tell: Callable[[int, int | None], None]) -> int:
    """Appends the file's rows in order, and returns their number. `tell` is called with the number done and, if the
    file has it, the total.

    Rows are inserted in batches: after an error the batches before it are in the stream, and the message has their
    number of rows. Raises `CannotLoad`, and the errors of the statements.
    """
    _check_name(target)
    batches, schema, total = _open(path)
    _check_columns(schema, target, path)
    if not _exists(target, connection):
        connection.execute(_declaration(schema, target))
    done = 0
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        if target.time is not None and target.time.upper() != "ROWTIME":
            rows = rows.append_column("ROWTIME", rows[target.time])
        try:
            done += connection.insert(target.name, rows)
        except Exception as error:
            if done:
                raise CannotLoad(f"{done} rows of {path} are in {target.name}, then: {error}") from error
            raise
        tell(done, total)
    return done


def _open(path: Path) -> tuple[Iterator[pa.RecordBatch], pa.Schema, int | None]:
    """The file's rows, their columns, and the number of rows, if the file has it."""
    format = _BY_SUFFIX.get(path.suffix.lower())
    if format is None:
        known = ", ".join(_BY_SUFFIX)
        raise CannotLoad(f"{path} has an unknown extension: expected one of {known}", hint="Rename the file.")
    if not path.is_file():
        raise CannotLoad(f"the file {path} does not exist")
    try:
        dataset = pads.dataset(path, format=format)
        scanner = dataset.scanner(batch_size=_ROWS)
        total = dataset.count_rows() if format in ("parquet", "arrow") else None
        _ = dataset.schema.names
    except UnicodeDecodeError:
        raise CannotLoad(f"{path} cannot be read as {format}: the names of its columns are not UTF-8") from None
    except (pa.ArrowException, OSError) as error:
        raise CannotLoad(f"{path} cannot be read as {format}: {_ABOUT_FILES.sub('', str(error))}") from None
    return _read(scanner, path, format), dataset.schema, total


def _read(scanner: Any, path: Path, format: str) -> Iterator[pa.RecordBatch]:
    try:
        for batch in scanner.to_batches():
            yield from (batch.slice(start, _ROWS) for start in range(0, batch.num_rows, _ROWS))
    except (pa.ArrowException, OSError) as error:
        raise CannotLoad(f"{path} cannot be read as {format}: {_ABOUT_FILES.sub('', str(error))}") from None


def _check_name(target: LoadTarget) -> None:
    if [token.type for token in tokenize(target.name)] not in (["NAME"], ["QUOTED_NAME"]):
        hint = "Names with other signs than letters, digits and underscores are in backticks: --into '`a name`'."
        raise CannotLoad(f"{target.name} is not a name of a stream or table", hint=hint)


def _check_columns(schema: pa.Schema, target: LoadTarget, path: Path) -> None:
    for what, name in (("key", target.key), ("time", target.time)):
        if name is not None and name not in schema.names:
            listed = ", ".join(schema.names)
            raise CannotLoad(f"{path} has no {what} column {name}", hint=f"It has {listed}.")


def _exists(target: LoadTarget, connection: Connection) -> bool:
    listed = connection.execute("SHOW STREAMS; SHOW TABLES;")
    names = {line["name"] for entity in listed for line in (*entity.get("streams", ()), *entity.get("tables", ()))}
    return normalise_identifier(target.name) in names


def _declaration(schema: pa.Schema, target: LoadTarget) -> str:
    role = " PRIMARY KEY" if target.is_table else " KEY"
    columns = [
        quote_identifier(field.name.upper())
        + f" {sql_type(field.type, field.name)}{role if field.name == target.key else ''}"
        for field in schema
    ]
    kind = "TABLE" if target.is_table else "STREAM"
    topic = _NOT_OF_TOPICS.sub("_", normalise_identifier(target.name).lower())
    return (
        f"CREATE {kind} {target.name} ({', '.join(columns)}) WITH (kafka_topic='{topic}', key_format='JSON', "
        f"value_format={_text(target.value_format)}, partitions={target.partitions:d});"
    )


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
