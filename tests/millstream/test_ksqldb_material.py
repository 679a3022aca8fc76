"""What others have published for ksqlDB, from folders outside of the repository.

MILLSTREAM_KSQL names a checkout of ksqlDB: its SQL tests, and the statements of its documentation. MILLSTREAM_TUTORIALS
and MILLSTREAM_KAFKA_TUTORIALS name checkouts of Confluent's tutorials.
"""

from __future__ import annotations

import os
from pathlib import Path

import ksqldb_material as material
import pytest

from millstream.commands import sql_tests
from millstream.testing import Sandbox

SQL_TESTS = "ksqldb-functional-tests/src/test/resources/sql-tests"
LIFTED = {
    ("filters.sql", "Upgrades not yet supported for StreamTableJoin"),
    ("filters.sql", "Upgrades not yet supported for StreamWindowedAggregate"),
    ("filters.sql", "StreamAggregate must have matching columns not part of aggregate."),
}
"""File and message of the tests that expect what Millstream does not do: docs/sql-tests.md says why."""

MISTAKES_IN_DOCS = 34
"""Statements of ksqlDB's pages that ksqlDB refuses as well: slips, former versions, SQL of other databases, names that
the page never declares."""


def _folder(variable: str, inside: str = "") -> Path:
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"{variable} names no folder")
    folder = Path(named) / inside
    if not folder.is_dir():
        pytest.skip(f"{folder} is no folder")
    return folder


def _is_lifted(file: Path, test: sql_tests.SqlTest) -> bool:
    return any(file.name == name and test.expected_message.startswith(message) for name, message in LIFTED)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ksqldbs_sql_tests_pass_but_for_those_that_a_page_names() -> None:
    failed: list[str] = []
    lifted = passed = 0
    for file in sorted(_folder("MILLSTREAM_KSQL", SQL_TESTS).rglob("*.sql")):
        for test in sql_tests.read_tests(file.read_text(encoding="utf-8"), file.parent):
            failure = sql_tests.failure_of(test)
            if failure is None:
                passed += 1
            elif _is_lifted(file, test):
                lifted += 1
            else:
                failed.append(f"{file.name}:{test.line} {test.name}: {failure}")
    print(f"{passed} passed, {lifted} lifted, {len(failed)} failed")
    assert not failed, "\n".join(failed)
    assert passed > 0


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_statements_of_recipes_and_tutorials_are_accepted() -> None:
    tally = material.Tally()
    for name, files in material.recipes(_folder("MILLSTREAM_KAFKA_TUTORIALS")):
        with Sandbox() as sandbox:
            for file in files:
                material.run_statements(sandbox, file.read_text(encoding="utf-8"), f"{name}/{file.name}", tally)
    print(tally)
    assert not tally.refused, "\n".join(tally.refused)
    assert tally.accepted > 0


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_fixtures_of_tutorials_give_their_output() -> None:
    wrong: list[str] = []
    count = 0
    for statements, given, expected in material.fixtures(_folder("MILLSTREAM_KAFKA_TUTORIALS")):
        count += 1
        wrong += [f"{given}: {line}" for line in material.differences(statements, given, expected)]
    print(f"{count} fixtures")
    assert not wrong, "\n".join(wrong)
    assert count > 0


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("variable", "pages", "mistakes"),
    [("MILLSTREAM_KSQL", "docs/**/*.md", MISTAKES_IN_DOCS), ("MILLSTREAM_TUTORIALS", "*/ksql/README.md", 1)],
)
def test_the_statements_of_pages_are_accepted(variable: str, pages: str, mistakes: int) -> None:
    tally = material.Tally()
    for page in sorted(_folder(variable).glob(pages)):
        material.run_page(page.read_text(encoding="utf-8"), f"{page.parent.name}/{page.name}", tally)
    print(tally, len(tally.refused), "refused")
    assert len(tally.refused) <= mistakes, "\n".join(tally.refused)
    assert tally.accepted > 0
