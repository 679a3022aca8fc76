"""What a session answers to a statement. The answers of ksqlDB's statements as tables: SHOW and DESCRIBE return rows,
other statements a command tag."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from ...sql.types import STRING, SqlType
from ..engine.entities import Entity, RowsDeleted, SourceDescribed, Warned
from .pg_copy import CopyFormat
from .pg_copy_in import CopyIn
from .pg_rows import PgColumn, RowSource

_ENVELOPE: Final = ("@type", "statementText", "warnings")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")

ALL_PREPARED: Final = ""


@dataclass(slots=True)
class PgAnswer:
    """`columns`: None if there are no rows. `tag`: for rows, their count is appended to it. `copy`: rows are sent as
    COPY; `copy_in`: rows arrive as COPY, for `append`. `sent`: called with the size in bytes of sent rows.
    `deallocates`: the prepared statements that end: the name of one, or ALL_PREPARED."""

    tag: str
    columns: list[PgColumn] | None = None
    rows: RowSource | None = None
    notices: list[str] = field(default_factory=list)
    statuses: dict[str, str] = field(default_factory=dict)
    copy: CopyFormat | None = None
    copy_in: CopyIn | None = None
    counts: bool = False
    sent: Callable[[int], None] | None = None
    deallocates: str | None = None

    def close(self) -> None:
        if self.rows is not None:
            self.rows.close()


@dataclass(slots=True, eq=False)
class PgCursor:
    answer: PgAnswer
    hold: bool


@dataclass(frozen=True, slots=True)
class DescribedStatement:
    """The parameters and columns of a prepared statement. A parameter's type is None if nothing determines it."""

    parameters: list[SqlType | None]
    columns: list[PgColumn] | None


class PlacedError(Exception):
    """`error`, and a function that maps its positions to the client's text."""

    def __init__(self, error: BaseException, place: Callable[[int], int]) -> None:
        super().__init__(str(error))
        self.error = error
        self.place = place


def entity_rows(entities: Iterable[Entity]) -> tuple[list[PgColumn], list[list[str | None]]]:
    """Columns and rows. All columns are texts; nested values are JSON."""
    names: dict[str, None] = {}
    rows: list[dict[str, str | None]] = []
    for entity in entities:
        for row in _records(entity):
            named = {_snake(name): _text(value) for name, value in row.items()}
            names |= dict.fromkeys(named)
            rows.append(named)
    columns = [PgColumn(name, STRING) for name in names]
    return columns, [[row.get(name) for name in names] for row in rows]


def notices(entities: Iterable[Entity]) -> list[str]:
    found: list[str] = []
    for entity in entities:
        found += entity.warnings
        if isinstance(entity, Warned):
            found.append(entity.message)
    return found


def command_tag(words: Sequence[str], entities: Iterable[Entity], rows_inserted: int | None) -> str:
    """In: `words`: the statement's first two words, in upper case."""
    first, second = words
    if first == "INSERT":
        return f"INSERT 0 {rows_inserted or 0}"
    if first == "DELETE":
        return f"DELETE {sum(entity.count for entity in entities if isinstance(entity, RowsDeleted))}"
    return f"{first} {second}" if first in ("CREATE", "DROP", "ALTER") else first


def _records(entity: Entity) -> list[Mapping[str, Any]]:
    if isinstance(entity, SourceDescribed):
        fields = entity.as_json()["sourceDescription"]["fields"]
        return [
            {"column": field["name"], "type": _type_text(field["schema"]), "key": (field.get("type") or "")}
            for field in fields
        ]
    members = {name: value for name, value in entity.as_json().items() if name not in _ENVELOPE}
    lists = [value for value in members.values() if isinstance(value, list)]
    if lists and all(isinstance(item, dict) for item in lists[0]):
        return lists[0]
    nested = [value for value in members.values() if isinstance(value, dict)]
    plan = next((value["executionPlan"] for value in nested if "executionPlan" in value), None)
    if isinstance(plan, str):
        return [{"QUERY PLAN": line} for line in plan.splitlines()]
    return [nested[0] if len(members) == 1 and nested else members]


def _type_text(schema: Mapping[str, Any]) -> str:
    name = schema["type"]
    if name == "ARRAY":
        return f"ARRAY<{_type_text(schema['memberSchema'])}>"
    if name == "MAP":
        return f"MAP<STRING, {_type_text(schema['memberSchema'])}>"
    if name == "STRUCT":
        return f"STRUCT<{', '.join(map(_field_text, schema['fields'] or ()))}>"
    digits = schema.get("parameters")
    return f"DECIMAL({digits['precision']}, {digits['scale']})" if name == "DECIMAL" and digits else name


def _field_text(field: Mapping[str, Any]) -> str:
    return f"{field['name']} {_type_text(field['schema'])}"


def _snake(name: str) -> str:
    return name if " " in name else _CAMEL.sub(lambda found: "_" + found[1].lower(), name)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
