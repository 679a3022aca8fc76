"""The levels of this process's loggers, which Kafka Connect's `/admin/loggers` shows and changes until the process
ends."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, TextIO

import structlog

from millstream.errors import ServerError

ROOT: Final = "root"
LOGGERS: Final = (
    "millstream", "millstream.cluster", "millstream.connect", "millstream.http",
    "millstream.logcore", "millstream.mcp", "millstream.pg", "millstream.queries", "millstream.server",
)  # fmt: skip
"""The names that the modules give to their loggers, and their common beginning."""
LEVELS: Final = {"TRACE": 10, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50, "OFF": 100}
_OF_METHODS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "exception": 40, "critical": 50}


class UnknownLogger(ServerError):
    """No logger has this name."""

    code = "UNKNOWN_LOGGER"


class UnknownLevel(ServerError):
    """No level has this name."""

    code = "UNKNOWN_LEVEL"


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    """`changed_ms`: when it was changed; None: as it was configured."""

    level: str
    changed_ms: int | None = None


class LogLevels:
    """Thread-safe. Reading is without a lock: levels are replaced, never changed."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._levels = _together((ROOT, *LOGGERS), LoggerLevel("INFO"))
        self._configures = False

    def configure(self, level: str, format: str) -> None:
        """Writes lines from this level on to standard error."""
        start = LoggerLevel("WARN" if level == "warning" else level.upper())
        self._levels, self._configures = _together((ROOT, *LOGGERS), start), True
        structlog.configure(
            processors=[
                self._drop_lower,
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                *_rendered(format),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(LEVELS[start.level]),
            logger_factory=lambda *names: NamedLogger(sys.stderr, *names[:1]),
        )

    def all(self) -> dict[str, LoggerLevel]:
        return dict(sorted(self._levels.items()))

    def of(self, name: str) -> LoggerLevel:
        """Raises `UnknownLogger`."""
        found = self._levels.get(name)
        if found is None:
            raise UnknownLogger(f"Logger {name} not found.", hint=f"The loggers are {', '.join(self._levels)}.")
        return found

    def change(self, name: str, level: str) -> list[str]:
        """Of the logger and all below it; returns the names of those that had another level. Raises `UnknownLogger`,
        `UnknownLevel`."""
        self.of(name)
        if level.upper() not in LEVELS:
            raise UnknownLevel(f"invalid log level '{level}'.", hint=f"The levels are {', '.join(LEVELS)}.")
        with self._guard:
            new = LoggerLevel(level.upper(), int(time.time() * 1000))
            changed = [
                each
                for each, old in self._levels.items()
                if (name in (ROOT, each) or each.startswith(f"{name}.")) and old.level != new.level
            ]
            self._levels = {**self._levels, **_together(changed, new)}
            if self._configures:
                lowest = min(LEVELS[each.level] for each in self._levels.values())
                structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(min(lowest, LEVELS["FATAL"])))
        return sorted(changed)

    def _drop_lower(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        level = self._levels.get(logger.name) or self._levels[ROOT]
        if _OF_METHODS.get(method, 50) < LEVELS[level.level]:
            raise structlog.DropEvent
        return event


class NamedLogger(structlog.PrintLogger):
    """Prints lines, and knows its name."""

    def __init__(self, file: TextIO, name: str = "millstream") -> None:
        super().__init__(file)
        self.name = name


def _together(names: Iterable[str], level: LoggerLevel) -> dict[str, LoggerLevel]:
    return dict.fromkeys(names, level)


def _rendered(format: str) -> tuple[Any, ...]:
    if format == "json":
        return (structlog.processors.format_exc_info, structlog.processors.JSONRenderer())
    plain = structlog.dev.plain_traceback
    return (structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain),)


LOG_LEVELS: Final = LogLevels()
"""Those of this process."""
