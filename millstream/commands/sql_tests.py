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

Each test has a Sandbox of its own and sees what a server would do: every query has processed the records of an INSERT
before the next statement runs, a new query begins at the end of its topics unless `auto.offset.reset` is earliest, and
an INSERT without ROWTIME takes the time of the clock. A topic that does not exist is created, with one partition. RUN
SCRIPT reads a file. An expected error ends the test at whichever statement fails; its class is a Java class and is not
compared, only its message.
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
"""What ksqlDB puts before the message of an error, depending on which of its classes found it."""


class MalformedTests(ServerError):
    """A file of tests that cannot be read."""

    code = "MALFORMED_TESTS"


@dataclass(frozen=True, slots=True)
class SqlTest:
    """`line`: where it begins, from 1. `fails`: one of its statements does, with `expected_message` in the error.
    `folder`: where RUN SCRIPT looks for files beside the current directory."""

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
            raise MalformedTests(f"line {_line(text, found.start)}: there is no --@{found.name}", hint=_hint())
    starts = [index for index, found in enumerate(directives) if found.name == "test"]
    if not starts or starts[0] != 0:
        raise MalformedTests("the tests do not begin with a name", hint="Begin each one with a line --@test: NAME.")
    ends = [*starts[1:], len(directives)]
    return [_test(text, directives, start, end, folder) for start, end in zip(starts, ends, strict=True)]


def failure_of(test: SqlTest) -> str | None:
    """Runs the test; why it failed, or None."""
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
        raise MalformedTests(f"more than {_SCRIPTS_MAX} scripts run each other")
    for part in split_statements(text):
        for statement in sandbox.engine.parse(part, sandbox.session):
            if isinstance(statement, RunScript):
                _run_all(sandbox, _script(statement.path, folder), folder, depth + 1)
            else:
                _run(sandbox, statement, part)


def _run(sandbox: Sandbox, statement: Statement, text: str) -> None:
    """One statement, and whatever it gives the queries to do."""
    if isinstance(statement, CreateSource):
        topic = str(statement.properties.get("KAFKA_TOPIC", ""))
        partitions = statement.properties.get("PARTITIONS", 1)
        if topic and topic not in sandbox.log.topics():
            sandbox.create_topic(topic, partitions if isinstance(partitions, int) else 1)
    sandbox.now_ms = wall_clock_ms()
    sandbox.execute(text)
    sandbox.drain()


def _script(path: str, folder: Path | None) -> str:
    """The text of the file: as written, else below the folder of the tests or one that holds it, as ksqlDB looks among
    its resources. Raises `MalformedTests`."""
    folders = [] if folder is None else [folder, *folder.resolve().parents]
    for candidate in (Path(path), *(parent / path.lstrip("/") for parent in folders)):
        if candidate.is_file():
            try:
                return candidate.read_text(encoding="utf-8")
            except (OSError, UnicodeError) as error:
                raise MalformedTests(f"RUN SCRIPT: {candidate} cannot be read: {error}") from None
    raise MalformedTests(f"RUN SCRIPT: there is no file {path}", hint="Name it from the folder of the tests.")


def _is_expected(error: MillstreamError, test: SqlTest) -> bool:
    wanted = test.expected_message
    for frame in _FRAMES:
        wanted = wanted.removeprefix(frame)
    return wanted in str(error)


def _other_error(error: MillstreamError, test: SqlTest) -> str:
    return f'the error does not contain "{test.expected_message}": {error}'


def _directives(text: str) -> Iterator[_Directive]:
    """The comments that begin with --@, and not what looks like one inside of a string."""
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
    return f"There are {', '.join(f'--@{name}' for name in _KNOWN)}."


def report(name: str, text: str) -> Iterator[tuple[str, bool]]:
    """A line per test of the file `name`, and whether it passed."""
    for test in read_tests(text, Path(name).parent):
        failure = failure_of(test)
        if failure is None:
            yield f"ok      {name}:{test.line}  {test.name}", True
        else:
            inner = failure.replace("\n", "\n        ")
            yield f"FAILED  {name}:{test.line}  {test.name}\n        {inner}", False
