"""What steps are made of: expressions, formats, windows; frozen and serialisable like the steps themselves.

Expressions are DuckDB SQL that the planner generated over the columns of the step's input batch (see
`executor/batch.py` for the columns); no user text is in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from ..sql.types import SqlType
from .answer_times import duration_text

JoinKind = Literal["INNER", "LEFT", "RIGHT", "FULL"]
Kind = Literal["STREAM", "TABLE"]

DEFAULT_GRACE_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """DuckDB SQL over a batch's columns, and the SQL type of its result.

    `udfs` names the Python functions it calls; `sql.functions.udf_by_name` finds them again when a plan is replayed.
    """

    sql: str
    type: SqlType
    udfs: tuple[str, ...] = ()


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
    `schema`: what AVRO, JSON_SR and PROTOBUF records are written with; records that are read name their own.
    `nullable`: how PROTOBUF writes values that may be NULL: OPTIONAL, WRAPPER, or not at all.
    """

    name: str  # see planner/formats.py
    delimiter: str = ","
    wrap_single: bool = True
    schema: RecordSchema | None = None
    nullable: str = ""


@dataclass(frozen=True, slots=True)
class KeyWindow:
    """The window that is part of a record's key. Key bytes end with the window start as 8 bytes big-endian
    (TUMBLING, HOPPING), or with end and start, 8 bytes each (SESSION), as Kafka Streams writes them."""

    kind: Literal["TUMBLING", "HOPPING", "SESSION"]
    size_ms: int | None = None
    timezone: str | None = None  # whose days the windows are, as in `WindowSpec`


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """`retention_ms` matters to `emit` FINAL only: None emits every window when it closes. With it, as in ksqlDB (where
    it is size + grace unless the user gives more), a window that starts more than that before the newest one when the
    record comes that closes it is lost, and only records that reach the aggregate move its stream time."""

    kind: Literal["TUMBLING", "HOPPING", "SESSION"]
    size_ms: int  # the gap of a session
    advance_ms: int | None = None  # HOPPING
    grace_ms: int = DEFAULT_GRACE_MS
    retention_ms: int | None = None
    timezone: str | None = None  # size and advance are whole days, which begin and end there

    @property
    def of_keys(self) -> KeyWindow:
        """How keys hold the window."""
        return KeyWindow(self.kind, None if self.kind == "SESSION" else self.size_ms, self.timezone)

    @property
    def grace_text(self) -> str:
        """The grace period for people, who may not have asked for one."""
        unsaid = ", which is what it has when the statement says nothing"
        return f"grace period {duration_text(self.grace_ms)}{unsaid if self.grace_ms == DEFAULT_GRACE_MS else ''}"

    def __str__(self) -> str:
        zone = "" if self.timezone is None else f" as days of {self.timezone}"
        match self.kind:
            case "TUMBLING":
                return f"TUMBLING {self.size_ms} ms{zone}, grace {self.grace_ms} ms"
            case "HOPPING":
                return f"HOPPING {self.size_ms} ms by {self.advance_ms} ms{zone}, grace {self.grace_ms} ms"
            case "SESSION":
                return f"SESSION gap {self.size_ms} ms, grace {self.grace_ms} ms"
            case _:
                assert_never(self.kind)
