"""The names that a statement can use now, for completion. They come from the server and are kept for a short time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.errors import MillstreamError

from ..server.client import Client
from .text.entity_text import type_text

_FRESH_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Names:
    """`columns`: the columns and their types, by the name of the stream or table. `fields`: the fields of STRUCTs, by
    the name of the column or field that contains them. `tables`: the sources that are tables. `functions`: the
    functions and their kinds."""

    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tables: frozenset[str] = frozenset()
    topics: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    functions: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class LiveNames:
    """Asks the server again if the names are old or `forget` was called. Any thread may call any method."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._guard = threading.Lock()
        self._known = Names()
        self._asked_at: float | None = None

    def get(self) -> Names:
        """The current names; the previous ones if the server does not answer."""
        with self._guard:
            now = time.monotonic()
            if self._asked_at is None or now - self._asked_at > _FRESH_SECONDS:
                try:
                    self._known = _ask(self._client())
                except (MillstreamError, LookupError, ValueError, TypeError):
                    pass
                self._asked_at = time.monotonic()
            return self._known

    def forget(self) -> None:
        """Call it when the names may have changed."""
        with self._guard:
            self._asked_at = None


def _ask(client: Client) -> Names:
    words = ("TOPICS", "QUERIES", "FUNCTIONS", "PROPERTIES", "VARIABLES", "TYPES")
    text = "DESCRIBE STREAMS; DESCRIBE TABLES; " + " ".join(f"SHOW {word};" for word in words)
    streams, tables, topics, queries, functions, properties, variables, types = client.execute(text)
    sources = [*streams["sourceDescriptions"], *tables["sourceDescriptions"]]
    return Names(
        columns={s["name"]: {c["name"]: type_text(c["schema"]) for c in s["fields"]} for s in sources},
        fields=dict(_structs(column for source in sources for column in source["fields"])),
        tables=frozenset(source["name"] for source in tables["sourceDescriptions"]),
        topics=_named(topics["topics"], "name"),
        queries=_named(queries["queries"], "id"),
        functions={item["name"]: str(item.get("type", "")).lower() for item in functions["functions"]},
        properties={item["name"]: str(item.get("description") or "") for item in properties["properties"]},
        variables=_named(variables["variables"], "name"),
        types=tuple(types["types"]),
    )


def _named(items: list[dict[str, Any]], member: str) -> tuple[str, ...]:
    return tuple(str(item[member]) for item in items)


def _structs(fields: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for holder in fields:
        schema = holder["schema"]
        while schema.get("memberSchema"):  # the elements of an array or a map
            schema = schema["memberSchema"]
        inner = schema.get("fields") or ()
        if inner:
            yield holder["name"], tuple(item["name"] for item in inner)
            yield from _structs(inner)
