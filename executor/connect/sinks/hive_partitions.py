"""Divides rows into folders by their columns, as Hive does: `country=de/at_day=2026-11-26/`.

A column whose whole value is in the name of the folder is not in the files, because readers take it from the folder. A
time column stays in the files if the name has only a part of it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ..connector_errors import ConnectorFailed
from ..json_times import moment_of
from .lake_values import SpelledNames

_TIME_FORMATS: Final = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
_PARTITION: Final = re.compile(rf"(?:(?P<part>{'|'.join(_TIME_FORMATS)})\((?P<time>[^()]+)\)|(?P<column>[^()]+))")
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_SPECIAL: Final = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^]""")
"""The characters that Hive and Spark write as %XX. No others are escaped, because they do not decode letters."""


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """`part`: the part of a time (in milliseconds, ISO 8601 or as a timestamp); None: the whole value."""

    column: str
    part: str | None

    @staticmethod
    def of(text: str) -> PartitionColumn:
        """Parses `country` or `day(at)`. Raises ValueError."""
        found = _PARTITION.fullmatch(text)
        if found is None:
            parts = ", ".join(f"{name}(column)" for name in _TIME_FORMATS)
            raise ValueError(f'"{text}" is no partition: it must be a column, or one of {parts}')
        return PartitionColumn(found["time"] or found["column"], found["part"])

    @property
    def name(self) -> str:
        return self.column if self.part is None else f"{self.column}_{self.part}"

    def folder(self, value: Any) -> str:
        """The name of the folder. Raises ValueError for a value that is not a time."""
        return f"{_escaped(self.name)}={_NULL if value is None else _escaped(self._text(value))}"

    def _text(self, value: Any) -> str:
        if self.part is None:
            if isinstance(value, float) and value.is_integer():
                return str(int(value))
            return str(value).lower() if isinstance(value, bool) else str(value) or _NULL
        whole = int(value) if isinstance(value, float) else value
        return f"{moment_of(whole, zoned=False):{_TIME_FORMATS[self.part]}}"


def divided(rows: pa.Table, partitions: Sequence[PartitionColumn]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each folder. A folder ends with a slash; it is "" without partitions. Column names match in any case.
    Raises `ConnectorFailed`."""
    if not partitions:
        yield "", rows
        return
    names = SpelledNames(rows.column_names)
    partitions = [PartitionColumn(names.of(partition.column), partition.part) for partition in partitions]
    places: dict[str, list[int]] = defaultdict(list)
    folders = [_folders(rows, partition) for partition in partitions]
    for index, parts in enumerate(zip(*folders, strict=True)):
        places["/".join(parts)].append(index)
    left = rows.drop_columns([partition.column for partition in partitions if partition.part is None])
    if not left.column_names:
        raise ConnectorFailed(
            "all columns of the table are in partition.by, and a file needs one", hint="Take one out of partition.by."
        )
    for folder, indices in sorted(places.items()):
        yield f"{folder}/", left.take(pa.array(indices))


def _folders(rows: pa.Table, partition: PartitionColumn) -> list[str]:
    if partition.column not in rows.column_names:
        raise ConnectorFailed(
            f"the table has no column {partition.column} to divide it by", hint="Change partition.by."
        )
    column = rows.column(partition.column)
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        raise ConnectorFailed(
            f"the column {partition.column} of type {column.type} cannot be the name of a folder",
            hint="Change partition.by.",
        )
    try:
        return [partition.folder(value) for value in column.to_pylist()]
    except (ValueError, TypeError, OverflowError) as error:
        raise ConnectorFailed(
            f"a value of the column {partition.column} is no time: {error}", hint="Change partition.by or the records."
        ) from None


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", text)
