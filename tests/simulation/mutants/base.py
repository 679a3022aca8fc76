"""What a planted bug is."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from unittest.mock import patch


@dataclass(frozen=True)
class Mutant:
    """A rule switched off: methods of classes, or names in a module (its full name), replaced while a run lasts."""

    name: str
    rule: str  # R1 … R20, T-L1 … T-L25: what it breaks; several with commas
    what: str  # what the code then does, in half a sentence; goes into the table of docs/replication.md
    patches: tuple[tuple[Any, str, Any], ...]
    world: str
    found_by: int | str  # a seed of the world with drawn faults, or the name of a scenario (no .json)
    events: int = 20_000  # of the seed's run

    @contextmanager
    def planted(self) -> Generator[None]:
        with ExitStack() as stack:
            for owner, attribute, replacement in self.patches:
                target = import_module(owner) if isinstance(owner, str) else owner
                stack.enter_context(patch.object(target, attribute, replacement))
            yield


def cluster_mutant(name: str, rule: str, what: str, found_by: int | str, *patches: tuple[Any, str, Any]) -> Mutant:
    """One that is run in the world of whole clusters."""
    return Mutant(name, rule, what, patches, "cluster", found_by)
