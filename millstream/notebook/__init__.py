"""Millstream in notebooks: the extension of IPython, live tables and charts, and how results look.

`%load_ext millstream` comes here. What a relation looks like needs no IPython, live widgets need anywidget.
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
