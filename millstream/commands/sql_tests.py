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

A failure names the line of the statement that failed, in a test the one of its ASSERT.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.errors import MillstreamError, ServerError
from millstream.server.engine.engine import wall_clock_ms
from millstream.sql.ast import CreateSource, RunScript, Statement
from millstream.sql.splitting import statement_spans
from millstream.sql.tokens import TOKEN

from ..testing import Sandbox

_DIRECTIVE: Final = re.compile(r"--@(?P<name>[\w.]+):\s*(?P<value>.*)")
_KNOWN: Final = ("test", "expected.error", "expected.message")
_SCRIPTS_MAX: Final = 16  # nested

_FRAMES: Final = ("Exception while preparing statement: ", "Failed to prepare statement: ")
"""Prefixes of ksqlDB's error messages; they depend on the class that raised the error."""


class MalformedTests(ServerError):
    """A file of tests cannot be parsed."""

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
class SqlTestFailure:
    """`line`: of the statement that failed, from 1; or of the test's start. `statement`: its text."""

    message: str
    line: int
    statement: str = ""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class SqlTestResult:
    """A test that has run. `seconds`: how long it took."""

    test: SqlTest
    failure: SqlTestFailure | None
    seconds: float


class _StatementFailed(Exception):
    """The statement between `start` and `end` of the text has raised its cause. `script`: the file and line, if the
    statement is from RUN SCRIPT."""

    def __init__(self, start: int, end: int, script: str = "") -> None:
        super().__init__()
        self.start = start
        self.end = end
        self.script = script


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


def failure_of(test: SqlTest) -> SqlTestFailure | None:
    """Runs the test; returns the reason of its failure, or None."""
    with Sandbox() as sandbox:
        try:
            _run_all(sandbox, test.text, test.folder)
        except _StatementFailed as failed:
            error = failed.__cause__
            assert isinstance(error, MillstreamError)
            if test.fails and _is_expected(error, test):
                return None
            message = _other_error(error, test) if test.fails else str(error)
            line = test.line + test.text.count("\n", 0, failed.start)
            return SqlTestFailure(failed.script + message, line, test.text[failed.start : failed.end])
    return SqlTestFailure("a statement should have failed", test.line) if test.fails else None


def results_of(tests: Iterable[SqlTest]) -> Iterator[SqlTestResult]:
    """Runs the tests, one after the other."""
    for test in tests:
        began = time.monotonic()
        failure = failure_of(test)
        yield SqlTestResult(test, failure, time.monotonic() - began)


def _run_all(sandbox: Sandbox, text: str, folder: Path | None, depth: int = 0) -> None:
    """Raises `_StatementFailed` with the error as its cause."""
    for span in statement_spans(text):
        part = text[span.start : span.end]
        try:
            for statement in sandbox.engine.parse(part, sandbox.session):
                if isinstance(statement, RunScript):
                    _run_script(sandbox, statement.path, folder, depth + 1)
                else:
                    _run(sandbox, statement, part)
        except _StatementFailed as inner:
            raise _StatementFailed(span.start, span.end, inner.script) from inner.__cause__
        except MillstreamError as error:
            raise _StatementFailed(span.start, span.end) from error


def _run_script(sandbox: Sandbox, path: str, folder: Path | None, depth: int) -> None:
    if depth > _SCRIPTS_MAX:
        raise MalformedTests(f"RUN SCRIPT is nested more than {_SCRIPTS_MAX} levels")
    text = _script(path, folder)
    try:
        _run_all(sandbox, text, folder, depth)
    except _StatementFailed as failed:
        place = failed.script or f"{path}:{_line(text, failed.start)}: "  # of the innermost script
        raise _StatementFailed(failed.start, failed.end, place) from failed.__cause__


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


def report(name: str, result: SqlTestResult) -> str:
    """The report about a test of the file `name`."""
    failure = result.failure
    if failure is None:
        return f"ok      {name}:{result.test.line}  {result.test.name}"
    lines = [f"FAILED  {name}:{failure.line}  {result.test.name}"]
    lines += [f"        {line}" for line in (*failure.statement.splitlines(), *failure.message.splitlines())]
    return "\n".join(lines)
