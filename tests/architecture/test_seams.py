"""What goes from one part of the log to another has a type: a closed union of records, or a shape of what is read.

`Any` lets a new kind of message through wherever nobody handles it. Where it stays is listed here, file by file, with
the reason; a number may only fall.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from repository import REPOSITORY, source_files

ROOMS = tuple(f"logcore/{room}/" for room in ("replication", "cluster", "protocol/requests", "cores", "external"))
JSON = "what JSON holds, before it is a record"
WIRE = "one codec for all kinds: a frame is checked to be a message when it is decoded"
CLIENTS = "kio's class for the answer, of whatever version both sides know"
LEFT = {
    "logcore/cluster/alone_again.py": (3, JSON),
    "logcore/cluster/own_node.py": (1, CLIENTS),
    "logcore/cluster/upgrade.py": (5, JSON),
    "logcore/protocol/requests/scram_requests.py": (1, "a certificate's names are not looked at: SCRAM has none"),
    "logcore/replication/controller/metadata_codec.py": (5, JSON),
    "logcore/replication/controller/metadata_image.py": (2, JSON),
    "logcore/replication/disk/disk_folder.py": (1, "an attribute that is missing where the opening failed"),
    "logcore/replication/node/node_codec.py": (6, WIRE),
    "logcore/replication/node/node_directory.py": (4, JSON),
    "logcore/replication/node/node_links.py": (3, JSON),
}


def declared(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns


def names_any(annotation: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(annotation))


def count_in(source: str) -> int:
    return sum(map(names_any, declared(ast.parse(source))))


SOURCES = [name for path in source_files() if (name := path.relative_to(REPOSITORY).as_posix()).startswith(ROOMS)]


@pytest.mark.parametrize("source", SOURCES)
def test_no_more_goes_through_untyped_than_is_listed(source: str) -> None:
    expected = LEFT[source][0] if source in LEFT else 0
    found = count_in((REPOSITORY / source).read_text())
    assert found == expected, "more: give it the union of its kinds; fewer: lower the number in `LEFT`"


def test_all_that_is_listed_is_there() -> None:
    assert [source for source in LEFT if source not in SOURCES] == []


def test_any_is_found_inside_of_other_types() -> None:
    assert count_in("def take(self, message: Any, at: dict[str, Any]) -> list[Any]: ...") == 3
    assert count_in("class A:\n    body: Any = None\n    many: Anything") == 1
