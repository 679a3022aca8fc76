"""Which cell created which widget: live widgets end when their cell runs again."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

_made_by: dict[str, weakref.WeakSet[Any]] = {}
_running: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  # the current cell of each watched shell


class Stoppable(Protocol):
    def stop(self) -> None: ...


def watch(shell: Any) -> None:
    """Records from now on which cell a shell runs. May be called twice."""
    if shell not in _running:
        _running[shell] = _asked_of_kernel(shell)

        def before_cell(info: Any) -> None:
            cell = _running[shell] = info.cell_id or info.raw_cell or ""
            for made in list(_made_by.pop(cell, ())):
                made.stop()

        shell.events.register("pre_run_cell", before_cell)


def belongs_to_this_cell(made: Stoppable) -> None:
    """Stops `made` when the current cell runs again. Outside notebooks it does nothing."""
    shell = _shell()
    if shell is not None:
        watch(shell)
        _made_by.setdefault(_running[shell], weakref.WeakSet()).add(made)


def _shell() -> Any:
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return None
    return get_ipython()


def _asked_of_kernel(shell: Any) -> str:
    """The running cell's id; its text if the notebook application sends no ids."""
    parent: dict[str, Any] = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return parent.get("metadata", {}).get("cellId") or parent.get("content", {}).get("code", "")
