"""A format knows itself: adding one touches its module in `planner/formats/` and the one in `executor/formats/`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from repository import REPOSITORY

from millstream.executor.formats import registry
from millstream.executor.formats.coding import coded_formats
from millstream.planner.formats import FORMATS

FOLDERS = ("planner", "executor", "server")
ROOMS = ("planner/formats/", "executor/formats/")
KINDS = {"AVRO", "JSON", "PROTOBUF"}  # of schemas in the registry, too
BY_KIND = {  # what is about schemas and not about formats
    "planner/schemas/compatibility.py", "planner/declarations/inference.py", "planner/declarations/record_schemas.py",
    "planner/schemas/registry.py", "planner/schemas/schema_forms.py",
    "planner/specs.py", "server/registry/registry_app.py", "server/registry/bodies.py",
    "server/rest_proxy/embedded_formats.py", "server/rest_proxy/proxy_paths.py",  # as requests call them
}  # fmt: skip
CHOSEN = {  # where somebody who named no format gets one
    "planner/schemas/compatibility.py": {"NONE"},  # a level of compatibility
    "planner/schemas/registry.py": {"NONE"},
    "planner/select/queries.py": {"JSON", "NONE"},
    "planner/declarations/sources.py": {"KAFKA", "NONE"},
    "planner/steps/repartition.py": {"JSON"},
    "executor/columnar.py": {"ARROW"},  # no coding of records: whole batches
    "executor/partitioning.py": {"JSON", "NONE"},
    "executor/sources/source_decoder.py": {"NONE"},
    "server/foreign_rows.py": {"JSON"},
}


def named(folder: str) -> Iterator[tuple[str, str]]:
    """(file, format) of all texts in a package that are the name of a format."""
    for path in sorted((REPOSITORY / folder).rglob("*.py")):
        file, text = path.relative_to(REPOSITORY).as_posix(), path.read_text()
        for node in ast.walk(ast.parse(text)) if any(name in text for name in FORMATS) else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in FORMATS:
                yield file, node.value


@pytest.mark.parametrize("folder", FOLDERS)
def test_nobody_names_a_format_but_its_modules(folder: str) -> None:
    found = {(file, name) for file, name in named(folder) if not file.startswith(ROOMS)}
    found -= {(file, kind) for file in BY_KIND for kind in KINDS}
    found -= {(file, name) for file, names in CHOSEN.items() for name in names}
    assert found == set()


def test_every_format_of_records_is_coded() -> None:
    assert callable(registry.decoder)
    assert coded_formats() == FORMATS.keys() - {"ARROW"}, "batches of columns are in executor/columnar.py"
