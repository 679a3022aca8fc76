"""Results of `make mutants` that hold as long as what they rest on is the same text: a run that was cut off goes on
where it was, and a new test has to run only for those that survived the others.

A kill rests on the module and on the test that killed, with what it uses of its file. A survival, and which test
runs which line, rest on the module and all its tests. That other modules changed is not seen: `--anew` forgets all.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Kill:
    """What killed a mutant, and how: `outcome` is "killed" or "timed out"."""

    outcome: str
    test: str  # its pytest name; "": no test began


class Results:
    """Those of one module, in a file of its own, written after each result."""

    def __init__(self, folder: Path, repository: Path, module: str, tests: Sequence[str]) -> None:
        self._path = folder / f"{module.replace('/', '.')}.json"
        self._repository, self._tests = repository, tests
        self._module = (repository / module).read_text(encoding="utf-8")
        self._told: dict[str, Any] = {}
        if self._path.exists():
            self._told = json.loads(self._path.read_text(encoding="utf-8"))

    def reach(self) -> Any:
        """As `keep_reach` was given it, or None."""
        return self._told.get(f"reach {self._all()}")

    def keep_reach(self, told: Any) -> None:
        self._told = {key: value for key, value in self._told.items() if not key.startswith("reach ")}
        self._keep(f"reach {self._all()}", told)

    def outcome(self, mutant: str) -> str | None:
        """Of the mutant with this key; None: it has to run."""
        kill = self._told.get(f"kill {self._digest(self._module, mutant)}")
        if kill is not None and kill["basis"] == self._basis(kill["test"]):
            return kill["outcome"]
        return self._told.get(f"survival {self._digest(self._all(), mutant)}")

    def keep_kill(self, mutant: str, kill: Kill) -> None:
        told = {"outcome": kill.outcome, "test": kill.test, "basis": self._basis(kill.test)}
        self._keep(f"kill {self._digest(self._module, mutant)}", told)

    def keep_survival(self, mutant: str, outcome: str) -> None:
        self._keep(f"survival {self._digest(self._all(), mutant)}", outcome)

    def _keep(self, key: str, value: Any) -> None:
        self._told[key] = value
        self._path.parent.mkdir(parents=True, exist_ok=True)
        written = self._path.with_suffix(".new")
        written.write_text(json.dumps(self._told), encoding="utf-8")
        os.replace(written, self._path)

    def _all(self) -> str:
        texts = ((self._repository / test).read_text(encoding="utf-8") for test in self._tests)
        return self._digest(self._module, *self._tests, *texts)

    def _basis(self, test: str) -> str:
        """The text of a test; where none began, or it is gone, of all of them."""
        path, _, name = test.partition("::")
        name = name.partition("[")[0]
        if path not in self._tests:
            return self._all()
        return self._digest(name, text_of((self._repository / path).read_text(encoding="utf-8"), name))

    @staticmethod
    def _digest(*texts: str) -> str:
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def text_of(source: str, test: str) -> str:
    """A test of a file, and all that it uses of the file: statements that bind no name, and the definitions and imports
    of each name in what is used."""
    used = {test}
    kept: set[ast.stmt] = set()
    body = ast.parse(source).body
    while more := [each for each in body if each not in kept and _matters(each, used)]:
        for statement in more:
            kept.add(statement)
            for node in ast.walk(statement):
                used |= {node.id} if isinstance(node, ast.Name) else {node.arg} if isinstance(node, ast.arg) else set()
                # What stands in a text is a fixture's name, or what an annotation says.
                used |= {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()
    return "\n".join(_without_unused(each, used) for each in body if each in kept)


def _matters(statement: ast.stmt, used: set[str]) -> bool:
    bound = _bound(statement)
    return not bound or not used.isdisjoint(bound) or "autouse" in ast.unparse(statement)


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement gives a meaning in its file."""
    match statement:
        case ast.Import(names) | ast.ImportFrom(names=names):
            return {(each.asname or each.name).partition(".")[0] for each in names}
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case _:
            return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and _is_stored(node)}


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _without_unused(statement: ast.stmt, used: set[str]) -> str:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        statement.names = [each for each in statement.names if (each.asname or each.name).partition(".")[0] in used]
    return ast.unparse(statement)
