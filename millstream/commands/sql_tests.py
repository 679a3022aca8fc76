"""`millstream test`: files of SQL with assertions, as ksqlDB's `run-ksql-test` reads them.

    --@test: clicks are counted per user
    CREATE STREAM clicks (user STRING KEY, url STRING) WITH (kafka_topic='clicks', value_format='JSON');
    CREATE TABLE n AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user;
    INSERT INTO clicks (user, url) VALUES ('ada', '/');
    ASSERT VALUES n (user, n) VALUES ('ada', 1);

    --@test: a stream needs existing columns
    --@expected.error: io.confluent.ksql.util.KsqlException
    --@expected.message: cannot be resolved
    CREATE STREAM nothing AS SELECT missing FROM clicks;

Each test has its own Sandbox, which behaves as a server: every query has processed the records of an INSERT before the
next statement runs, a new query starts at the end of its topics unless `auto.offset.reset` is earliest, and an INSERT
without ROWTIME takes the current time. A missing topic is created, with one partition. RUN SCRIPT reads a file. An
expected error ends the test at the statement that fails; its message is compared, its (Java) class is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.errors import MillstreamError, ServerError
from millstream.server.engine.engine import wall_clock_ms
from millstream.sql.ast import CreateSource, RunScript, Statement
from millstream.sql.splitting import split_statements
from millstream.sql.tokens import TOKEN

from ..testing import Sandbox

_DIRECTIVE: Final = re.compile(r"--@(?P<name>[\w.]+):\s*(?P<value>.*)")
_KNOWN: Final = ("test", "expected.error", "expected.message")
_SCRIPTS_MAX: Final = 16  # one in another

_FRAMES: Final = ("Exception while preparing statement: ", "Failed to prepare statement: ")
"""Prefixes of ksqlDB's error messages; they depend on the class that raised the error."""


class MalformedTests(ServerError):
    """A file of tests that cannot be read."""

    code = "MALFORMED_TESTS"


@dataclass(frozen=True, slots=True)
class SqlTest:
    """`line`: of its start, from 1. `fails`: one of its statements fails, with `expected_message` in the error.
    `folder`: where RUN SCRIPT looks for files, in addition to the current directory."""

    name: str
    line: int
    text: str
    fails: bool = False
    expected_message: str = ""
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class _Directive:
    name: str
    value: str
    start: int
    end: int


def read_tests(text: str, folder: Path | None = None) -> list[SqlTest]:
    """The tests of a file. Raises `MalformedTests`.

    >>> read_tests("--@test: one\\nSHOW STREAMS;")
    [SqlTest(name='one', line=1, text='\\nSHOW STREAMS;', fails=False, expected_message='', folder=None)]
    """
    directives = list(_directives(text))
    for found in directives:
        if found.name not in _KNOWN:
            raise MalformedTests(f"line {_line(text, found.start)}: unknown directive --@{found.name}", hint=_hint())
    starts = [index for index, found in enumerate(directives) if found.name == "test"]
    if not starts or starts[0] != 0:
        raise MalformedTests("a test has no name", hint="Begin each test with a line --@test: NAME.")
    ends = [*starts[1:], len(directives)]
    return [_test(text, directives, start, end, folder) for start, end in zip(starts, ends, strict=True)]


def failure_of(test: SqlTest) -> str | None:
    """Runs the test; returns the reason of its failure, or None."""
    with Sandbox() as sandbox:
        try:
            _run_all(sandbox, test.text, test.folder)
        except MillstreamError as error:
            if not test.fails:
                return str(error)
            return None if _is_expected(error, test) else _other_error(error, test)
    return "a statement should have failed" if test.fails else None


def _run_all(sandbox: Sandbox, text: str, folder: Path | None, depth: int = 0) -> None:
    if depth > _SCRIPTS_MAX:
        raise MalformedTests(f"RUN SCRIPT is nested more than {_SCRIPTS_MAX} levels")
    for part in split_statements(text):
        for statement in sandbox.engine.parse(part, sandbox.session):
            if isinstance(statement, RunScript):
                _run_all(sandbox, _script(statement.path, folder), folder, depth + 1)
            else:
                _run(sandbox, statement, part)


def _run(sandbox: Sandbox, statement: Statement, text: str) -> None:
    """Runs one statement, and the queries until they have no input left."""
    if isinstance(statement, CreateSource):
        topic = str(statement.properties.get("KAFKA_TOPIC", ""))
        partitions = statement.properties.get("PARTITIONS", 1)
        if topic and topic not in sandbox.log.topics():
            sandbox.create_topic(topic, partitions if isinstance(partitions, int) else 1)
    sandbox.now_ms = wall_clock_ms()
    sandbox.execute(text)
    sandbox.drain()


def _script(path: str, folder: Path | None) -> str:
    """The text of the file: at its path, or below the folder of the tests or one of its parents, as ksqlDB searches
    its resources. Raises `MalformedTests`."""
    folders = [] if folder is None else [folder, *folder.resolve().parents]
    for candidate in (Path(path), *(parent / path.lstrip("/") for parent in folders)):
        if candidate.is_file():
            try:
                return candidate.read_text(encoding="utf-8")
            except (OSError, UnicodeError) as error:
                raise MalformedTests(f"RUN SCRIPT: {candidate} cannot be read: {error}") from None
    raise MalformedTests(f"RUN SCRIPT: the file {path} does not exist", hint="Give its path from the test's folder.")


def _is_expected(error: MillstreamError, test: SqlTest) -> bool:
    wanted = test.expected_message
    for frame in _FRAMES:
        wanted = wanted.removeprefix(frame)
    return wanted in str(error)


def _other_error(error: MillstreamError, test: SqlTest) -> str:
    return f'the error does not contain "{test.expected_message}": {error}'


def _directives(text: str) -> Iterator[_Directive]:
    """The comments that begin with --@; text inside strings is not a comment."""
    for token in TOKEN.finditer(text):
        found = _DIRECTIVE.match(token.group()) if token.lastgroup == "SKIP" else None
        if found is not None:
            yield _Directive(found["name"].lower(), found["value"].strip(), token.start(), token.end())


def _test(text: str, directives: list[_Directive], start: int, end: int, folder: Path | None) -> SqlTest:
    own = directives[start:end]
    stop = directives[end].start if end < len(directives) else len(text)
    said = {found.name: found.value for found in own}
    return SqlTest(
        said["test"],
        _line(text, own[0].start),
        text[own[0].end : stop],
        fails=len(said) > 1,
        expected_message=said.get("expected.message", ""),
        folder=folder,
    )


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _hint() -> str:
    return f"Known directives: {', '.join(f'--@{name}' for name in _KNOWN)}."


def report(name: str, text: str) -> Iterator[tuple[str, bool]]:
    """A line for each test of the file `name`, and whether it passed."""
    for test in read_tests(text, Path(name).parent):
        failure = failure_of(test)
        if failure is None:
            yield f"ok      {name}:{test.line}  {test.name}", True
        else:
            inner = failure.replace("\n", "\n        ")
            yield f"FAILED  {name}:{test.line}  {test.name}\n        {inner}", False
