"""The names that a statement can use right now, for completion: asked of the server, kept for a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.errors import MillstreamError

from ..server.client import Client

_FRESH_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Names:
    """`columns` by the name of the stream or table."""

    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()


class LiveNames:
    """Asks again when what it knows is old or `forget` was called. Any thread may call any method."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._guard = threading.Lock()
        self._known = Names()
        self._asked_at: float | None = None

    def get(self) -> Names:
        """What is known; where the server does not answer, what was known before."""
        with self._guard:
            now = time.monotonic()
            if self._asked_at is None or now - self._asked_at > _FRESH_SECONDS:
                self._asked_at = now
                try:
                    self._known = _ask(self._client())
                except MillstreamError:
                    pass
            return self._known

    def forget(self) -> None:
        """Something may have changed."""
        with self._guard:
            self._asked_at = None


def _ask(client: Client) -> Names:
    text = "DESCRIBE STREAMS; DESCRIBE TABLES; SHOW TOPICS; SHOW QUERIES; SHOW FUNCTIONS; SHOW PROPERTIES;"
    streams, tables, topics, queries, functions, properties = client.execute(text)
    return Names(
        columns={
            source["name"]: tuple(column["name"] for column in source["fields"])
            for source in (*streams["sourceDescriptions"], *tables["sourceDescriptions"])
        },
        topics=_named(topics["topics"], "name"),
        queries=_named(queries["queries"], "id"),
        functions=_named(functions["functions"], "name"),
        properties=_named(properties["properties"], "name"),
    )


def _named(items: list[dict[str, Any]], member: str) -> tuple[str, ...]:
    return tuple(str(item[member]) for item in items)
