"""The parts of steps: expressions, formats, windows. They are frozen and serializable, like the steps themselves.

Expressions are DuckDB SQL that the planner generated over the columns of the step's input batch (see
`executor/batch.py` for the columns); no user text is in them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from ..sql.types import SqlType
from ..sql.windows import WINDOW_TYPES
from ..sql.windows.window_type import WindowType
from .insight.answer_times import duration_text

JoinKind = Literal["INNER", "LEFT", "RIGHT", "FULL"]
Kind = Literal["STREAM", "TABLE"]

DEFAULT_GRACE_MS = 86_400_000
ADDED: Final = {"added": True}
"""The metadata of a step's field that the last release does not have (see `serde.py`)."""
VOLATILE: Final = ("random", "uuid", "gen_random_uuid", "uuidv4")
"""DuckDB's functions whose result may differ from call to call."""
_VOLATILE_CALL: Final = re.compile(rf"\b(?:{'|'.join(VOLATILE)})\(", re.IGNORECASE)


def is_volatile(sql: str) -> bool:
    """Whether DuckDB's text may give something else each time, whatever Python's functions do."""
    return _VOLATILE_CALL.search(sql) is not None


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """DuckDB SQL over a batch's columns, and the SQL type of its result.

    `udfs` names the Python functions it calls; `udf_by_name` of `sql/functions/catalog.py` finds them again when a plan
    is replayed.
    """

    sql: str
    type: SqlType
    udfs: tuple[str, ...] = ()

    @property
    def may_differ(self) -> bool:
        """Whether two evaluations may have different results: Python functions, including users' functions, need not be
        deterministic."""
        return bool(self.udfs) or is_volatile(self.sql)


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """A schema of the registry, with everything that is needed to write records by it.

    `references`: (name, text) of all schemas that it imports, those first that others import. `message`: the full
    name of the PROTOBUF message; empty is the first one. `given`: the statement named the schema by its id.
    """

    id: int
    kind: Literal["AVRO", "JSON", "PROTOBUF"]
    text: str
    references: tuple[tuple[str, str], ...] = ()
    message: str = ""
    given: bool = False


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """How one part (key or value) of a record becomes bytes.

    `wrap_single`: a single column is written as an object {"COLUMN": value} (True) or as the bare value (False).
    `schema`: for writing AVRO, JSON_SR and PROTOBUF records; records that are read name their own schema.
    `nullable`: how PROTOBUF writes values that may be NULL: OPTIONAL, WRAPPER, or not at all.
    """

    name: str  # see planner/formats/
    delimiter: str = ","
    wrap_single: bool = True
    schema: RecordSchema | None = None
    nullable: str = ""


@dataclass(frozen=True, slots=True)
class KeyWindow:
    """The window that is part of a record's key. Key bytes end with the window's start as 8 bytes big-endian, or
    (`holds_end`) with end and start, 8 bytes each, as Kafka Streams writes them.

    `size_ms`: None if it is unknown, or if the key contains the end. `timezone`: as in `WindowSpec`.
    """

    kind: str
    size_ms: int | None = None
    timezone: str | None = None

    @property
    def holds_end(self) -> bool:
        return WINDOW_TYPES[self.kind].holds_end


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """`retention_ms` matters only to EMIT FINAL. None: every window is emitted when it closes. Otherwise it behaves as
    in ksqlDB (where it is size + grace unless the user gives more): a window is lost if, when the record comes that
    closes it, it starts more than `retention_ms` before the newest window; and only records that reach the aggregate
    advance its stream time."""

    kind: str  # see sql/windows/, whose types define what size and advance mean
    size_ms: int
    advance_ms: int | None = None
    grace_ms: int = DEFAULT_GRACE_MS
    retention_ms: int | None = None
    timezone: str | None = None  # size and advance are then whole days of this time zone

    @property
    def type(self) -> WindowType:
        return WINDOW_TYPES[self.kind]

    @property
    def of_keys(self) -> KeyWindow:
        """How keys contain the window."""
        return KeyWindow(self.kind) if self.type.holds_end else KeyWindow(self.kind, self.size_ms, self.timezone)

    @property
    def grace_text(self) -> str:
        """The grace period for messages; it notes if the statement specified none."""
        unsaid = ", which is what it has when the statement says nothing"
        return f"grace period {duration_text(self.grace_ms)}{unsaid if self.grace_ms == DEFAULT_GRACE_MS else ''}"

    def __str__(self) -> str:
        return self.type.describe(self)
