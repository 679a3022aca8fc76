"""`millstream test`: files of SQL with assertions, as ksqlDB's `run-ksql-test` reads them.

    --@test: clicks are counted per user
    CREATE STREAM clicks (user STRING KEY, url STRING) WITH (kafka_topic='clicks', value_format='JSON');
    CREATE TABLE n AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user;
    INSERT INTO clicks (user, url) VALUES ('ada', '/');
    ASSERT VALUES n (user, n) VALUES ('ada', 1);

    --@test: a stream needs columns that there are
    --@expected.error: io.confluent.ksql.util.KsqlException
    --@expected.message: cannot be resolved
    CREATE STREAM nothing AS SELECT missing FROM clicks;

Each test has a Sandbox of its own. A topic that does not exist is made, with one partition. Classes of errors are
Java's and mean nothing here: any of our errors will do, whose message contains the expected one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from millstream.errors import MillstreamError, ServerError
from millstream.sql.ast import CreateSource
from millstream.sql.splitting import split_statements

from .testing import Sandbox

_DIRECTIVE: Final = re.compile(r"^--@(?P<name>[\w.]+):(?P<value>.*)$", re.MULTILINE)
_KNOWN: Final = ("test", "expected.error", "expected.message")


class MalformedTests(ServerError):
    """A file of tests that cannot be read."""

    code = "MALFORMED_TESTS"


@dataclass(frozen=True, slots=True)
class SqlTest:
    """`line`: where it begins, from 1. `expected_message`: part of the last statement's error; `fails`: it has one."""

    name: str
    line: int
    text: str
    fails: bool = False
    expected_message: str = ""


def read_tests(text: str) -> list[SqlTest]:
    """The tests of a file. Raises `MalformedTests`.

    >>> read_tests("--@test: one\\nSHOW STREAMS;")
    [SqlTest(name='one', line=1, text='\\nSHOW STREAMS;', fails=False, expected_message='')]
    """
    directives = list(_DIRECTIVE.finditer(text))
    for found in directives:
        if found["name"] not in _KNOWN:
            raise MalformedTests(f"line {_line(text, found.start())}: there is no --@{found['name']}", hint=_hint())
    starts = [index for index, found in enumerate(directives) if found["name"] == "test"]
    if not starts or starts[0] != 0:
        raise MalformedTests("the tests do not begin with a name", hint="Begin each one with a line --@test: NAME.")
    ends = [*starts[1:], len(directives)]
    return [_test(text, directives, start, end) for start, end in zip(starts, ends, strict=True)]


def failure_of(test: SqlTest) -> str | None:
    """Runs the test; why it failed, or None."""
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        statements = split_statements(test.text)
        for index, statement in enumerate(statements):
            try:
                _run(sandbox, statement)
            except MillstreamError as error:
                if not test.fails:
                    return str(error)
                if index < len(statements) - 1:
                    return f"an earlier statement than the last one failed: {error}"
                if test.expected_message not in str(error):
                    return f'the error does not contain "{test.expected_message}": {error}'
                return None
    return "the last statement should have failed" if test.fails else None


def _run(sandbox: Sandbox, statement: str) -> None:
    for parsed in sandbox.engine.parse(statement, sandbox.session):
        if isinstance(parsed, CreateSource):
            topic = str(parsed.properties.get("KAFKA_TOPIC", ""))
            if topic and topic not in sandbox.log.topics():
                sandbox.create_topic(topic)
    sandbox.execute(statement)


def _test(text: str, directives: list[re.Match[str]], start: int, end: int) -> SqlTest:
    own = directives[start:end]
    stop = directives[end].start() if end < len(directives) else len(text)
    said = {found["name"]: found["value"].strip() for found in own}
    return SqlTest(
        said["test"],
        _line(text, own[0].start()),
        text[own[-1].end() : stop],
        fails=len(said) > 1,
        expected_message=said.get("expected.message", ""),
    )


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _hint() -> str:
    return f"There are {', '.join(f'--@{name}' for name in _KNOWN)}."


def report(name: str, text: str) -> Iterator[tuple[str, bool]]:
    """A line per test of the file `name`, and whether it passed."""
    for test in read_tests(text):
        failure = failure_of(test)
        if failure is None:
            yield f"ok      {name}:{test.line}  {test.name}", True
        else:
            inner = failure.replace("\n", "\n        ")
            yield f"FAILED  {name}:{test.line}  {test.name}\n        {inner}", False
