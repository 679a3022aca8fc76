"""Millstream in notebooks: the IPython extension, live tables and charts, and the display of results.

`%load_ext millstream` loads this package. The display of a relation does not need IPython; live widgets need anywidget.
"""

from __future__ import annotations

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """In: IPython's shell."""
    from .magics import register

    register(shell)


def unload_ipython_extension(shell: Any) -> None:
    from .magics import unregister

    unregister(shell)
