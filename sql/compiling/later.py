"""Modules that take long to import and are rarely needed."""

from __future__ import annotations

import importlib
import threading
from typing import Any, Final

_importing: Final = threading.RLock()


class LaterModule:
    """A module that is imported when one of its attributes is first used.

    >>> LaterModule("fractions").Fraction(1, 2) + 1
    Fraction(3, 2)
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name == "_name" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)  # copy and pickle look these up before there is a state
        with _importing:  # two threads that import parts of one package concurrently may see an incomplete package
            module = importlib.import_module(self._name)
        return getattr(module, name)
