"""What the tests of one folder share, a broker or a cluster: made when it is asked for first, ended with the last of
these tests, not with the session. An idle broker of Apache Kafka takes 4 % of a core: two minutes in all.

Pytest's fixtures live as long as a class, a file, a package or the session, and a folder without an `__init__.py` is no
package.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TypeVar

_Part = TypeVar("_Part")
_parts: dict[tuple[Path, str], Any] = {}
_ends: dict[Path, ExitStack] = {}


def of_folder(folder: Path, name: str, make: Callable[[], AbstractContextManager[_Part]]) -> _Part:
    """The folder's part of this name. What `make` raises, a skip too, is raised at each call."""
    if (folder, name) not in _parts:
        _parts[folder, name] = _ends.setdefault(folder, ExitStack()).enter_context(make())
    return _parts[folder, name]


def end_others(following: Path | None) -> None:
    """In: the folder of the test that comes next; None where none does."""
    for folder in [each for each in _ends if each != following]:
        for key in [each for each in _parts if each[0] == folder]:
            del _parts[key]
        _ends.pop(folder).close()
