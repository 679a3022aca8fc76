"""The rows that a tool returns: of one SELECT, with limits of rows, time and size."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ...executor.answers.pull_limits import PullClient, serving
from ..engine.engine import Engine
from ..engine.queries import QueryResult
from ..engine.session import Session

CELL_CHARACTERS_MAX: Final = 2_000
CHARACTERS_MAX: Final = 200_000
_NESTED_MAX: Final = 32


class CallStop:
    """Ends one call, from any thread: because its time is over, or because its client has disconnected."""

    def __init__(self) -> None:
        self.client = PullClient()
        self._guard = threading.Lock()
        self._result: QueryResult | None = None
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        with self._guard:
            self._stopped = True
            result = self._result
        self.client.leave()
        if result is not None:
            result.close()

    def ends(self, result: QueryResult) -> None:
        """From now on, `stop` ends this query, too."""
        with self._guard:
            self._result = result
            stopped = self._stopped
        if stopped:
            result.close()


@dataclass(slots=True)
class ToolRows:
    """`ended`: why the rows end: all (no more rows), or the limit that was reached: rows, time or size."""

    columns: list[dict[str, str]]
    rows: list[list[Any]] = field(default_factory=list[list[Any]])
    ended: str = "all"
    cut_texts: int = 0


def rows_of_select(
    engine: Engine, text: str, session: Session, rows_max: int, seconds: float, stop: CallStop,
    opened: Callable[[QueryResult], None],
) -> ToolRows:  # fmt: skip
    """Runs one SELECT in this thread. In: `opened`: called before the rows are taken; it may refuse them.

    Raises `StatementError` and the errors of the query. A pull query that takes longer than `seconds` fails, too,
    because it has no first rows.
    """
    began = time.monotonic()
    timer = threading.Timer(seconds, stop.stop)
    timer.daemon = True
    timer.start()
    try:
        with serving(stop.client):
            result = engine.query(text, session)
            stop.ends(result)
            try:
                opened(result)
                return _taken(result, rows_max, stop)
            finally:
                result.close()
    except Exception as error:
        if stop.stopped and time.monotonic() - began >= seconds:
            raise CallTookTooLong(f"the query took longer than {seconds:g} seconds") from error
        raise
    finally:
        timer.cancel()


class CallTookTooLong(Exception):
    """A pull query exceeded its time."""


def _taken(result: QueryResult, rows_max: int, stop: CallStop) -> ToolRows:
    names = [{"name": column.name, "type": str(column.type)} for column in result.schema]
    found = ToolRows([*names, {"name": "@tombstone", "type": "BOOLEAN"}] if result.keyed else names)
    size = 0
    for row in result:
        if len(found.rows) >= rows_max:
            found.ended = "rows"
            return found
        cutter = TextCutter()
        values = [cutter.cut(value) for value in row.values]
        size += cutter.characters
        if size > CHARACTERS_MAX and found.rows:
            found.ended = "size"
            return found
        found.cut_texts += cutter.count
        found.rows.append([*values, row.tombstone] if result.keyed else values)
    if stop.stopped:
        found.ended = "time"
    return found


class TextCutter:
    """Shortens long texts at any depth of a value; counts the remaining characters and the shortened texts."""

    def __init__(self) -> None:
        self.characters = 0
        self.count = 0

    def cut(self, value: Any, depth: int = 0) -> Any:
        """
        >>> cutter = TextCutter()
        >>> cutter.cut({"a": ["x" * 3000, 1]})["a"][0] == "x" * 2000 + "…", cutter.count
        (True, 1)
        """
        if isinstance(value, str):
            if len(value) > CELL_CHARACTERS_MAX:
                self.count += 1
                value = value[:CELL_CHARACTERS_MAX] + "…"
            self.characters += len(value)
            return value
        self.characters += 8
        if depth > _NESTED_MAX:
            return None
        if isinstance(value, list):
            return [self.cut(item, depth + 1) for item in value]
        if isinstance(value, dict):
            return {self.cut(str(name), depth + 1): self.cut(item, depth + 1) for name, item in value.items()}
        return value
