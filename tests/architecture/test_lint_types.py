"""The types are checked under the names that Python uses, and what strict checking is for is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from repository import REPOSITORY, module_name, source_files

from scripts.lint_types import check, module_names, search_path

PYPROJECT = """
[tool.setuptools.package-dir]
"millstream" = "millstream"
"millstream.sql" = "sql"

[tool.pyrefly]
search-path = ["build/import-tree", "."]
project-includes = ["millstream", "sql"]
"""


def test_each_file_of_the_product_has_the_name_under_which_python_imports_it() -> None:
    expected = {path.relative_to(REPOSITORY).as_posix(): module_name(path) for path in source_files()}
    assert module_names() == expected
    assert expected["sql/types.py"] == "millstream.sql.types"


def test_a_mistake_across_packages_is_reported_under_the_files_own_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = {
        "pyproject.toml": PYPROJECT,
        "millstream/__init__.py": "",
        "millstream/errors.py": "class Mistake(Exception): ...\n",
        "millstream/face.py": "from .sql.types import size_of\n\ntext: str = size_of('a')\n",
        "sql/__init__.py": "",
        "sql/types.py": "from millstream.errors import Mistake\n\ndef size_of(name: str) -> int:\n    raise Mistake\n",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert check(["--output-format=min-text"], tmp_path) == 1
    reported = capfd.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in reported] == ["ERROR millstream/face.py"], reported


def test_the_tree_of_links_is_only_for_editors() -> None:
    assert search_path() == [".", "tests/support", "integrations/dbt"]


MISTAKES = '''
"""Each line with a mark is one mistake, of this kind."""

import contextlib
from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple, assert_never, cast

LIMIT = 1
LIMIT = 2  #! bad-assignment


class Shape(ABC):
    _edges = 1
    closed: bool

    def __init__(self, large: bool) -> None:
        if large:
            self.size = 1  #! possibly-uninitialized-attribute

    @abstractmethod
    def area(self) -> int: ...

    def double(self) -> int:
        return 2 * self.size


class Square(Shape):  #! implicit-abstract-class
    def double(self, times: int) -> int:  #! bad-override
        return times


class Point(NamedTuple):
    x: int = 0


Kind = Literal["a", "b"]


def described(kind: Kind, count: int | None, name: str, shape: Shape, point: Point | Square) -> str:
    match kind:  #! non-exhaustive-match
        case "a":
            name += count  #! unsupported-operation
    match point:
        case Point():
            pass
        case _:
            assert_never(point)  #! bad-argument-type
    with contextlib.suppress(OSError):
        shape._edges  #! protected-access
    if name == 3:  #! incompatible-comparison
        return None  #! bad-return
    cast(str, name)  #! redundant-cast
    shape.closed = "yes"  #! bad-assignment
    for letter in described(kind, count, name, shape):  #! missing-argument
        print(letter.missing)  #! missing-attribute
    return name  # pyrefly: ignore[bad-return]  #! unused-ignore


def plain(values: list) -> list[int]:  #! implicit-any-type-argument
    return values


def bare(value, more: Any = None) -> None:  #! implicit-any-parameter
    try:
        int(value)
    except ValueError:
        pass
    except UnicodeDecodeError:  #! unreachable-except-clause
        pass


def open_end(number: int):  #! unannotated-return
    match number:  #! non-exhaustive-match-open-type
        case 1:
            return 2


async def later() -> None:
    later()  #! unused-coroutine
'''


def test_what_strict_checking_is_for_is_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With the settings of pyproject.toml, which would else become lax one by one."""
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    arguments = [f"--config={REPOSITORY / 'pyproject.toml'}", "--output-format=min-text", str(tmp_path / "mistakes.py")]
    assert check(arguments) == 1
    found = re.findall(r"mistakes\.py:(\d+):.*\[([\w-]+)\]$", capfd.readouterr().out, re.MULTILINE)
    marks = [re.search(r"#! (.*)", line) for line in MISTAKES.splitlines()]
    expected = {(number, mark[1]) for number, mark in enumerate(marks, 1) if mark}
    assert {(int(number), kind) for number, kind in found} == expected
