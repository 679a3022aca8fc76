"""What fails in a way that nobody foresaw, while requests come that nobody should send."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Generator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog


@contextmanager
def unforeseen_failures() -> Generator[list[str]]:
    """What is logged as an error meanwhile, with its traceback. Everything else that is logged is dropped: it would be
    much."""
    before = structlog.get_config()
    found: list[str] = []

    def keep(_: Any, method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        if method in ("exception", "error"):
            error = sys.exc_info()[1]
            found.append("".join(traceback.format_exception(error)) if error else str(event))
        raise structlog.DropEvent

    structlog.configure(processors=[keep], cache_logger_on_first_use=False)
    yield found
    structlog.configure(**before)
