"""Lets a connection of psycopg return what its own loaders refuse or round."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from functools import partial
from json import loads
from typing import Any

from psycopg import Connection, DataError
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.types.json import set_json_loads

from .far_times import KINDS, FarTime


def prepare(connection: Connection[Any]) -> None:
    set_json_loads(partial(loads, parse_float=Decimal), connection)
    for kind, oid in KINDS.items():
        connection.adapters.register_loader(oid, _loader(connection, kind, oid))


def _loader(connection: Connection[Any], kind: str, oid: int) -> type[Loader]:
    usual = connection.adapters.get_loader(oid, Format.TEXT)
    assert usual is not None

    class FarTimes(Loader):
        """psycopg's own loader, and a `FarTime` for what it refuses."""

        def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
            super().__init__(oid, context)
            self._usual = usual(oid, context)

        def load(self, data: Buffer) -> Any:
            try:
                return self._usual.load(data)
            except DataError:
                found = FarTime(kind, bytes(data).decode())
                with contextlib.suppress(ValueError):  # another date style
                    found.as_json("micros_long")
                    return found
                raise

    return FarTimes
