"""A type of window knows itself: adding one touches its module in `sql/windows/` and the one in `executor/windows/`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from repository import REPOSITORY

from millstream.executor import windows
from millstream.executor.windows.placing import placed_types
from millstream.sql.windows import WINDOW_TYPES

PRODUCT = ("sql", "planner", "logcore", "executor", "server", "repl", "millstream")
ROOMS = ("sql/windows/", "executor/windows/")
OTHER_MEANINGS = {
    "SESSION": {  # the level at which a property is set, and a word of PostgreSQL's SET
        "server/handlers/show.py", "server/config/properties.py", "sql/settings/property.py",
        "server/pg/pg_statements.py",
    },
}  # fmt: skip


def named(folder: str) -> Iterator[tuple[str, str]]:
    """(file, type) of all texts in a package that are the name of a type of window."""
    for path in sorted((REPOSITORY / folder).rglob("*.py")):
        file, text = path.relative_to(REPOSITORY).as_posix(), path.read_text()
        for node in ast.walk(ast.parse(text)) if any(kind in text for kind in WINDOW_TYPES) else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in WINDOW_TYPES:
                yield file, node.value


@pytest.mark.parametrize("folder", PRODUCT)
def test_nobody_names_a_type_of_window_but_its_modules(folder: str) -> None:
    found = [(file, kind) for file, kind in named(folder) if file not in OTHER_MEANINGS.get(kind, ())]
    assert [f"{file}: {kind}" for file, kind in found if not file.startswith(ROOMS)] == []


def test_every_type_has_a_placing_unless_its_windows_grow() -> None:
    assert Path(windows.__file__).is_file()
    assert placed_types() == {name for name, each in WINDOW_TYPES.items() if not each.grows}


@pytest.mark.parametrize("name", WINDOW_TYPES)
def test_a_type_needs_only_options_that_it_has(name: str) -> None:
    window = WINDOW_TYPES[name]
    assert set(window.required) <= set(window.options)
    assert window.example.startswith(name)
