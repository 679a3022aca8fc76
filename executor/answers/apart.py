"""Computes what the main thread asks for in another thread, so that Ctrl-C ends it.

Python raises KeyboardInterrupt in the main thread, wherever it is. While that thread computes, this may be within a
function that DuckDB calls, which takes it for a failing row, or within a callback of a compiler, which ignores it; and
while DuckDB waits for a function, nobody notices it. Here the main thread only waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .pull_limits import PullClient, serving

_Result = TypeVar("_Result")


def apart(compute: Callable[[], _Result]) -> _Result:
    """What `compute` returns or raises. Other threads than the main one compute it themselves. After Ctrl-C, the pull
    queries in it end as if their client had left, and KeyboardInterrupt is raised."""
    if threading.current_thread() is not threading.main_thread():
        return compute()
    client = PullClient()
    with serving(client):
        computed = _Computed(compute)
        context = copy_context()
    try:
        threading.Thread(target=context.run, args=(computed.run,), name="pull-query", daemon=True).start()
        computed.done.wait()
    except BaseException:  # KeyboardInterrupt, or what another handler of a signal raises
        client.leave()
        computed.done.wait()  # until nothing uses the query's connection any more
        raise
    return computed.result()


@dataclass(slots=True)
class _Computed(Generic[_Result]):
    compute: Callable[[], _Result]
    done: threading.Event = field(default_factory=threading.Event)
    _results: list[_Result] = field(default_factory=list)
    _error: BaseException | None = None

    def run(self) -> None:
        try:
            self._results.append(self.compute())
        except BaseException as error:
            self._error = error
        finally:
            self.done.set()

    def result(self) -> _Result:
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame
        return self._results.pop()
