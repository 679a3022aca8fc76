"""Settings are read once, into records. A property's name and default are in `property_table.py` and nowhere else."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator, Mapping

import pytest
from repository import REPOSITORY, source_files

from millstream.sql.settings import property_table
from millstream.sql.settings.property import Property
from millstream.sql.settings.property_table import PROPERTIES

TABLE = "sql/settings/property_table.py"
SOURCES = [path.relative_to(REPOSITORY).as_posix() for path in source_files()]
ENTRIES = {name for name, value in vars(property_table).items() if isinstance(value, Property)}
NAMES = {name for entry in PROPERTIES.values() if entry.effective for name in (entry.name, *entry.aliases)}

FOREIGN_NAMES = {
    "server/config/configuration.py": {"listeners"},  # ksqlDB's name for a setting of the file
    "server/config/configuration_check.py": {"listeners"},
}
CHECKS = {  # WITH (EXECUTOR = …) and SET EXECUTOR = … become a property of the plan
    "planner/select/queries.py": {"EXECUTOR"},
    "server/handlers/alter_query.py": {"EXECUTOR"},
}


Trees = Mapping[str, ast.Module]


@pytest.fixture(scope="module")
def trees() -> Iterator[Trees]:
    """Millions of nodes, none of them garbage: Python does not look for any meanwhile, and they go with these tests."""
    gc.disable()
    found = {
        source: ast.parse((REPOSITORY / source).read_text(encoding="utf-8"), source)
        for source in SOURCES
        if not source.startswith("logcore/")
    }
    yield found
    found.clear()
    gc.enable()


def attribute_calls(tree: ast.AST, *methods: str) -> Iterator[tuple[ast.Call, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
            yield node, node.func.value


def is_name_of_entry(node: ast.expr) -> bool:
    """Whether it is `ENTRY.name`."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "name"
        and isinstance(node.value, ast.Name)
        and node.value.id in ENTRIES
    )


def in_records(tree: ast.AST) -> set[ast.AST]:
    """All nodes within the method `of` of a data class."""
    return {
        inside
        for record in ast.walk(tree)
        if isinstance(record, ast.ClassDef)
        and any("dataclass" in ast.dump(decorator) for decorator in record.decorator_list)
        for method in record.body
        if isinstance(method, ast.FunctionDef) and method.name == "of"
        for inside in ast.walk(method)
    }


def test_names_of_properties_stand_in_their_table(trees: Trees) -> None:
    written = [
        (source, node.lineno, node.value)
        for source, tree in trees.items()
        if source != TABLE
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in NAMES - FOREIGN_NAMES.get(source, set())
    ]
    assert written == [], f"import the entry from {TABLE}; its name is `.name`"


def test_properties_are_read_by_records(trees: Trees) -> None:
    read: list[tuple[str, int, str]] = []
    for source, tree in trees.items():
        allowed = in_records(tree)
        for call, receiver in attribute_calls(tree, "of", "given", "check"):
            entry = receiver.id if isinstance(receiver, ast.Name) else ""
            if entry in ENTRIES - CHECKS.get(source, set()) and call not in allowed:
                read.append((source, call.lineno, entry))
    assert read == [], "a field of the part's settings record, read in its `of`"


def test_nobody_asks_a_mapping_of_properties_for_an_entry(trees: Trees) -> None:
    asked = [
        (source, call.lineno)
        for source, tree in trees.items()
        for call, _ in attribute_calls(tree, "get")
        if any(is_name_of_entry(argument) for argument in call.args)
    ]
    assert asked == [], "ask the record"


def test_no_truth_is_a_text(trees: Trees) -> None:
    compared = [
        (source, node.lineno)
        for source, tree in trees.items()
        if source != "sql/settings/property.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if isinstance(side, ast.Constant) and side.value in ("true", "false")
    ]
    assert compared == [], "`says_true` reads what people write"


def test_every_property_that_does_something_is_read(trees: Trees) -> None:
    read = {
        node.id
        for source, tree in trees.items()
        if source != TABLE
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id in ENTRIES
    }
    entries = {name for name in ENTRIES if vars(property_table)[name].effective}
    assert entries - read == set(), "read it, or say that it changes nothing: effective=False"
