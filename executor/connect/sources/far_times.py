"""Dates and times of PostgreSQL that Python's types do not hold: infinite ones, years BC and after 9999, 24:00."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import event

from ..postgres.pg_values import ValueModes, value_reader

_DATE, _WITH_ZONE = "date", "timestamptz"
KINDS: Final = {_DATE: 1082, "time": 1083, "timestamp": 1114, _WITH_ZONE: 1184}
"""The types of PostgreSQL, with their numbers."""
_OFFSET: Final = re.compile(r"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?(?=$| BC)")


@dataclass(frozen=True, slots=True)
class FarTime:
    """`text`: as PostgreSQL writes it in the date style ISO. `kind`: the name of its type there."""

    kind: str
    text: str

    def as_json(self, times: str) -> int | str:
        """Days, or what `json_value` makes of other times. Raises ValueError."""
        if self.kind == _DATE:
            return int(value_reader(KINDS[_DATE], -1, ValueModes())(self.text))
        if times == "micros_string":
            return self.text.replace(" ", "T", 1)
        micros = self._micros()
        return micros if times == "micros_long" else micros // 1000

    def _micros(self) -> int:
        kind = "timestamp" if self.kind == _WITH_ZONE else self.kind
        read = value_reader(KINDS[kind], -1, ValueModes())
        offset = _OFFSET.search(self.text) if self.kind == _WITH_ZONE else None
        if offset is None:
            return int(read(self.text))
        hours, minutes, seconds = (int(part or 0) for part in offset.group(2, 3, 4))
        ahead = (hours * 3600 + minutes * 60 + seconds) * (1 if offset[1] == "+" else -1)
        return int(read(_OFFSET.sub("", self.text, count=1))) - ahead * 1_000_000


def read_exactly(engine: sa.Engine) -> None:
    """Lets connections of psycopg return `FarTime` where it would fail, and JSON with all digits of its numbers."""
    if engine.dialect.name == "postgresql" and engine.dialect.driver == "psycopg":
        loaders = importlib.import_module(".psycopg_loaders", __package__)  # optional, as each driver
        event.listen(engine, "connect", lambda connection, record: loaders.prepare(connection))
