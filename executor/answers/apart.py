"""Computes what the main thread asks for in another thread, so that Ctrl-C ends it.

Python raises KeyboardInterrupt in the main thread, wherever it is. While that thread computes, this may be within a
function that DuckDB calls, which takes it for a failing row, or within a callback of a compiler, which ignores it; and
while DuckDB waits for a function, nobody notices it. Here the main thread only waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import TypeVar

from .pull_limits import PullClient, serving

_Result = TypeVar("_Result")


def apart(compute: Callable[[], _Result]) -> _Result:
    """What `compute` returns or raises. Other threads than the main one compute it themselves. After Ctrl-C, the pull
    queries in it end as if their client had left, and KeyboardInterrupt is raised."""
    if threading.current_thread() is not threading.main_thread():
        return compute()
    client = PullClient()
    with serving(client):
        context = copy_context()
    answer: Future[_Result] = Future()
    threading.Thread(target=context.run, args=(_settle, answer, compute), name="pull-query", daemon=True).start()
    try:
        wait([answer])
    except BaseException:  # KeyboardInterrupt, or what another handler of a signal raises
        client.leave()
        wait([answer])  # until nothing uses the query's connection any more
        raise
    return answer.result()


def _settle(answer: Future[_Result], compute: Callable[[], _Result]) -> None:
    try:
        answer.set_result(compute())
    except BaseException as error:
        answer.set_exception(error)
