"""Constants of the product that tests change are what they were when the file is over.

A test that patches a constant inside of another patch of it, and takes its own back later, leaves the other's value:
then all files after it in this process run with blocks of one row, or without patience. Nothing fails, it only takes
ten times as long.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Final

_CONSTANT: Final = re.compile(r"_?[A-Z][A-Z0-9_]*")


class KeptConstants:
    """State: the constants of all modules below a package, as they were when this was made."""

    def __init__(self, package: str = "millstream") -> None:
        self._constants = [
            (module, name, value)
            for module in list(_modules(package))
            for name, value in vars(module).items()
            if _CONSTANT.fullmatch(name)
        ]

    def changed(self) -> list[str]:
        """The names of those that are something else now; they are put back."""
        found = [each for each in self._constants if not _is_same(vars(each[0]).get(each[1]), each[2])]
        for module, name, value in found:
            setattr(module, name, value)
        return [f"{module.__name__}.{name}" for module, name, _ in found]


def _is_same(found: object, value: object) -> bool:
    """A module that was loaded again has equal constants, which are not the same objects."""
    return found is value or repr(found) == repr(value)


def _modules(package: str) -> Iterator[ModuleType]:
    for name, module in sys.modules.items():
        if name == package or name.startswith(f"{package}."):
            yield module
