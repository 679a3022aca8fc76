"""Planted bugs: the tests of the tests. Each must be found, by the seed or the scenario that it names."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from .base import Mutant


def all_mutants() -> dict[str, Mutant]:
    """By name: the lists `MUTANTS` of all modules in this folder."""
    found: dict[str, Mutant] = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem not in ("__init__", "base"):
            for mutant in import_module(f"{__name__}.{path.stem}").MUTANTS:
                assert mutant.name not in found, f"two mutants are called {mutant.name}"
                found[mutant.name] = mutant
    return found
