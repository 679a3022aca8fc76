"""Scenarios that somebody thought out: what random faults meet too seldom. Each raises where a promise is broken.

They run as tests on the code as it is, and with the planted bugs that name them, which they must find.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def all_directed() -> dict[str, Callable[[], None]]:
    """By name: the lists `CASES` of all `*_cases.py` here."""
    found: dict[str, Callable[[], None]] = {}
    for path in sorted(Path(__file__).parent.glob("*_cases.py")):
        for case in import_module(f"{__name__}.{path.stem}").CASES:
            found[case.__name__] = case
    return found
