"""Rules of the house that no linter knows. CONTRIBUTING.md says what to do instead."""

from __future__ import annotations

import ast
import importlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from repository import REPOSITORY, module_name, source_files

from millstream.errors import MillstreamError

LINES_MAX = 600
FILES_MAX = 30
LONG_TABLES = ("sql/functions/", "sql/ast.py")  # read by looking up, so they may be long; grammars are no Python files
PRINTERS = (
    "millstream/cli.py",
    "millstream/commands/command_line.py",
    "millstream/commands/file_commands.py",
    "millstream/__main__.py",
    "repl/",
)  # their output is a screen
BASES = ("StatementError", "QueryError", "LogError", "ServerError")

NAMED_BY_OTHERS = {
    "Connection": "of the Python API, and of the DB-API (PEP 249)",
    "Refused": "by a replica and by the controller; nodes of other versions know both by this name",
}

OF_NAMED_TUPLES = ("_make", "_replace", "_asdict", "_fields", "_field_defaults")  # public in spite of their names
FOREIGN_PRIVATE = {
    "executor/formats/avro.py": ["_read_py"],  # of fastavro: it notices that a record is nested too deeply
    "millstream/cli.py": ["_exit"],
}

SOURCES = [path.relative_to(REPOSITORY).as_posix() for path in source_files()]


def test_no_source_file_is_too_long_to_read() -> None:
    lengths = {source: len(read(source).splitlines()) for source in SOURCES if not source.startswith(LONG_TABLES)}
    assert {source: length for source, length in lengths.items() if length > LINES_MAX} == {}, "split by noun or verb"


def test_no_folder_has_more_files_than_one_takes_in_at_a_glance() -> None:
    counts = Counter(source.rpartition("/")[0] for source in SOURCES)
    assert {folder: count for folder, count in counts.items() if count > FILES_MAX} == {}, "make rooms, and name them"


def test_no_public_class_has_the_name_of_another() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for source in SOURCES:
        for name in facts(source).public_classes:
            homes[name].append(source)
    twice = {name: files for name, files in homes.items() if len(files) > 1 and name not in NAMED_BY_OTHERS}
    assert twice == {}, "say which of its kind it is"


def test_no_file_of_a_package_has_the_name_of_another() -> None:
    names = Counter((source.partition("/")[0], Path(source).name) for source in SOURCES)
    twice = {name: count for name, count in names.items() if count > 1 and not name[1].startswith("__")}
    assert twice == {}, "say which of its kind it is"


def test_no_package_lives_at_the_top() -> None:
    assert not (REPOSITORY / "__init__.py").exists()


def test_only_the_face_and_the_shell_print() -> None:
    printed = {source: facts(source).prints for source in SOURCES if not source.startswith(PRINTERS)}
    assert {source: lines for source, lines in printed.items() if lines} == {}, "log it (structlog), or return it"


def test_every_module_says_what_lives_in_it() -> None:
    silent = [source for source in SOURCES if not facts(source).opens_with_a_docstring]
    assert silent == [], "a file opens with a docstring: what lives here, and what does not"


def test_imports_between_packages_are_relative() -> None:
    absolute = {source: facts(source).absolute for source in SOURCES if not source.startswith("millstream/")}
    found = {source: names for source, names in absolute.items() if names}
    assert found == {}, "write `from ..sql.types import …`; only millstream.errors goes by its full name"


def test_private_names_of_a_module_stay_in_it() -> None:
    """Those of classes are for pyrefly."""
    taken = {source: sorted(set(facts(source).foreign_private)) for source in SOURCES}
    assert {source: names for source, names in taken.items() if names} == FOREIGN_PRIVATE, "make it public"


def test_private_functions_and_classes_are_used() -> None:
    unused = {source: facts(source).unused for source in SOURCES}
    assert {source: names for source, names in unused.items() if names} == {}, "nobody else may use it: delete it"


@pytest.mark.parametrize(
    "wrong", ["print(1)", "def f():\n    return print", "from millstream.sql import types", "x = 1"]
)
def test_the_rules_see_what_is_wrong(wrong: str) -> None:
    found = facts_of(ast.parse(wrong))
    assert bool(found.prints) == (wrong == "print(1)")
    assert bool(found.absolute) == wrong.startswith("from")
    assert not found.opens_with_a_docstring


def test_the_rules_see_private_names() -> None:
    found = facts_of(
        ast.parse(
            "from .rows import _cut, Row\nfrom . import sizes\nsizes._SMALL\nRow._make(Row())._owner\n"
            "def _used(): ...\n_used()\nclass _Unused: ...\n@register\ndef _registered(): ...\n"
        )
    )
    assert (found.foreign_private, found.unused) == (["_cut", "_SMALL"], ["_Unused"])


def test_each_error_class_has_a_code_of_its_own() -> None:
    by_code: dict[str, list[str]] = {}
    for error in error_classes():
        by_code.setdefault(error.code, []).append(f"{error.__module__}.{error.__name__}")
    assert {code: names for code, names in by_code.items() if len(names) > 1} == {}


def test_each_error_class_stands_under_one_of_the_four_bases() -> None:
    stray = [
        error.__name__
        for error in error_classes()
        if error is not MillstreamError and not any(base.__name__ in BASES for base in error.__mro__)
    ]
    assert stray == []


@cache
def error_classes() -> list[type[MillstreamError]]:
    """Every subclass in the product, found by loading the files that define one."""
    for source in SOURCES:
        if facts(source).defines_errors:
            importlib.import_module(module_name(REPOSITORY / source))
    found: list[type[MillstreamError]] = []
    left: list[type[MillstreamError]] = [MillstreamError]
    while left:
        error = left.pop()
        found.append(error)
        left += error.__subclasses__()
    return [error for error in found if error.__module__.startswith("millstream.")]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules ask of a file. `prints`: lines; `absolute`: imports that have to be relative; `foreign_private`:
    private names of other modules, imported or taken of what is imported; `unused`: private functions and classes."""

    opens_with_a_docstring: bool
    public_classes: list[str]
    prints: list[int]
    absolute: list[str]
    defines_errors: bool
    foreign_private: list[str]
    unused: list[str]


@cache
def facts(source: str) -> Facts:
    return facts_of(ast.parse(read(source), source))


def facts_of(module: ast.Module) -> Facts:
    """Each file is parsed and walked once for all rules: there are a thousand."""
    nodes = list(ast.walk(module))
    imported = [name for node in nodes for name in imported_names(node)]
    return Facts(
        opens_with_a_docstring=bool(ast.get_docstring(module)),
        public_classes=[
            node.name for node in module.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        ],
        prints=[node.lineno for node in nodes if isinstance(node, ast.Call) and is_print(node)],
        absolute=[name for name in imported if name.startswith("millstream.") and name != "millstream.errors"],
        defines_errors=defines_errors(nodes),
        foreign_private=foreign_private(nodes),
        unused=unused(module, nodes),
    )


def defines_errors(nodes: Sequence[ast.AST]) -> bool:
    """True when the file has a class with a base that comes from a module of errors."""
    imported = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith(("errors", "error"))
        for alias in node.names
    }
    bases = {
        base.id for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases if isinstance(base, ast.Name)
    }
    return bool(imported & bases)


def foreign_private(nodes: Sequence[ast.AST]) -> list[str]:
    aliases = [alias for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]
    imported = {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
    taken = [
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported
    ]
    return [name for name in (*(alias.name for alias in aliases), *taken) if is_private(name)]


def unused(module: ast.Module, nodes: Sequence[ast.AST]) -> list[str]:
    """What is decorated is used by its decorator."""
    defined = [
        node.name
        for node in module.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.decorator_list
    ]
    named = {node.id for node in nodes if isinstance(node, ast.Name)}
    return [name for name in defined if is_private(name) and name not in named]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_NAMED_TUPLES


def is_print(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "print"


def imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module]
    return []


def read(source: str) -> str:
    return Path(REPOSITORY, source).read_text(encoding="utf-8")
