"""Answers pull queries by key with a single response: most of them wait for nothing and need no thread."""

from __future__ import annotations

import asyncio
import uuid
from typing import Protocol
from weakref import WeakKeyDictionary

from starlette.responses import Response

from ...executor.answers.keyed_rows import KeyedTable
from ..engine.engine import Engine
from ..engine.pull_lookups import Lookup
from ..engine.queries import QueryResult, QueryRow
from ..engine.query_limits import PullGate
from .context import Workers
from .requests import StatementRequest
from .row_formats import RowFormat


class LookupContext(Protocol):
    """The part of the server that look-ups need."""

    @property
    def engine(self) -> Engine: ...

    @property
    def workers(self) -> Workers: ...

    @property
    def pulls(self) -> PullGate: ...


class LookedUp:
    """Answers look-ups. Only for the event loop."""

    def __init__(self, context: LookupContext) -> None:
        self._context = context
        self._catching_up: WeakKeyDictionary[KeyedTable, asyncio.Task[bool]] = WeakKeyDictionary()

    async def answer(self, asked: StatementRequest, format: RowFormat | None) -> Response | None:
        """None if the query is not a look-up, or no similar query was planned before. In: `format`: None is Arrow.
        Raises `NotPermitted`."""
        found = None if format is None else self._context.engine.lookup(asked.text, asked.session)
        if found is None or format is None or not await self.is_current(found):
            return None
        with self._context.pulls.admitted():
            return self._response(found, format)

    def _response(self, found: Lookup, format: RowFormat) -> Response:
        query_id = f"transient_{found.known.source.name}_{uuid.uuid4().int % 10**19}"
        result = QueryResult("PULL", query_id, found.schema, (), lambda: None, lambda _: None)
        body = format.head(result)
        body += b"".join(format.row(QueryRow(values)) for values in found.answer())
        body += format.end(result, None)
        self._context.pulls.sent(len(body))
        return Response(body, media_type=format.media_type)

    async def is_current(self, found: Lookup) -> bool:
        """Waits until the table has read all records that are committed now. It joins a read that is running, and
        starts another one if that is not enough. False if the table is too large for this."""
        bounds = found.rows.bounds()
        while not found.rows.has_read(bounds):
            task = self._catching_up.get(found.rows)
            if task is None or task.done():
                update = self._context.workers.run(lambda: self._context.engine.update_lookup(found))
                task = self._catching_up[found.rows] = asyncio.create_task(update)
            if not await asyncio.shield(task):
                return False
        return True
