"""Runs what others have published for ksqlDB: recipes, test-runner fixtures, the statements of documentation pages.

The material lies outside of the repository; this module only knows how it is laid out. A page or recipe runs on a
Sandbox of its own, statement by statement. A statement that needs what only its surroundings have (a connector, a topic
or a schema that a connector writes, a function from a Java archive, a stream of another page) counts as `outside`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.errors import MillstreamError, SourceExists, UnknownFunction, UnknownSource
from millstream.sql.ast import CreateSource, PrintTopic, Query, RunScript, Statement
from millstream.sql.splitting import split_statements
from millstream.testing import Sandbox

ROWS_MAX = 50  # that a push query gives before the next statement
_SESSION_FILE = re.compile(r"^\s*- file: (\S+\.sql)\s*$", re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*```[ ]*(\w*)[^\n]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_PROMPT = re.compile(r"^\s*ksql> ?", re.MULTILINE)
_VERB = re.compile(
    r"(?i)(create|select|insert|drop|show|list|describe|set|unset|print|explain|terminate|pause|resume|alter|define"
    r"|undefine|run|assert|with)\b"
)
_PLACEHOLDER = re.compile(
    r"\.\.\.|…|‘|//|\?|\$\{|\[ ?[A-Z,W]|<\w+[ _-]?[\w-]*>|\(s\)|\| |\|\w|_expression|operator value"
)
_FROM_OUTSIDE = (
    "there is no connector",  # their classes are in Java
    "connector.class is missing",
    "does not exist in the Schema Registry",
    "Could not find topic",
    "ALTER SYSTEM exists in Confluent Cloud only",  # of Confluent's cloud
)


@dataclass(slots=True)
class Tally:
    """`refused`: the statements that should have run, with the error. `outside`: those that nothing here could run."""

    accepted: int = 0
    outside: int = 0
    refused: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.accepted + self.outside + len(self.refused)

    def __str__(self) -> str:
        return f"{self.accepted} of {self.total} statements accepted, {self.outside} need what is not here"


def run_statements(sandbox: Sandbox, text: str, name: str, tally: Tally) -> None:
    for statement in split_statements(text):
        _note(_refusal(sandbox, statement), statement, name, tally)


def run_page(text: str, name: str, tally: Tally) -> None:
    """A page shows several examples with the same names: with a name that exists already the next one begins."""
    with contextlib.ExitStack() as opened:
        sandbox = opened.enter_context(Sandbox())
        for statement in statements_of_page(text):
            error = _refusal(sandbox, statement)
            if isinstance(error, SourceExists):
                opened.close()
                sandbox = opened.enter_context(Sandbox())
                error = _refusal(sandbox, statement)
            _note(error, statement, name, tally)


def _refusal(sandbox: Sandbox, text: str) -> MillstreamError | None:
    try:
        for statement in sandbox.engine.parse(text, sandbox.session):
            _run(sandbox, statement, text)
    except MillstreamError as error:
        return error
    return None


def _note(error: MillstreamError | None, statement: str, name: str, tally: Tally) -> None:
    if error is None:
        tally.accepted += 1
    elif _is_from_outside(error):
        tally.outside += 1
    else:
        tally.refused.append(f"{name}: {' '.join(statement.split())[:160]}\n    {error}")


def recipes(repository: Path) -> Iterator[tuple[str, list[Path]]]:
    """Of a checkout of kafka-tutorials: the files of each recipe and tutorial in the order in which it runs them."""
    tutorials = repository / "_includes" / "tutorials"
    for harness in sorted((repository / "_data" / "harnesses").glob("*/ksql*.yml")):
        code = tutorials / harness.parent.name / harness.stem / "code"
        files = [code / name for name in _SESSION_FILE.findall(harness.read_text(encoding="utf-8"))]
        yield f"{harness.parent.name}/{harness.stem}", [file for file in files if file.exists()]
    for process in sorted(tutorials.glob("*/confluent/code/tutorial-steps/dev/process.sql")):
        names = ("source.sql", "process.sql", "manual.sql", "sink.sql")
        files = [process.with_name(name) for name in names]
        yield f"{process.parts[-6]}/confluent", [file for file in files if file.exists()]


def statements_of_page(text: str) -> list[str]:
    """The statements of a Markdown page that are meant to run: what shows a form (`[WITH …]`) is left out."""
    return [statement for block in _blocks(text) for statement in _complete(block)]


def fixtures(repository: Path) -> Iterator[tuple[Path, Path, Path]]:
    """(statements, input, expected output) of each fixture of ksqlDB's test runner."""
    for given in sorted(repository.glob("_includes/tutorials/**/test/input.json")):
        statements = given.parent.parent / "src" / "statements.sql"
        if statements.exists():
            yield statements, given, given.with_name("output.json")


def differences(statements: Path, given: Path, expected: Path) -> list[str]:
    """What a fixture's statements make of its input, where that is not the expected output."""
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        inputs = json.loads(given.read_text(encoding="utf-8"))["inputs"]
        for text in split_statements(statements.read_text(encoding="utf-8")):
            for statement in sandbox.engine.parse(text, sandbox.session):
                _run(sandbox, statement, text)
        for record in inputs:
            sandbox.produce(record["topic"], record.get("key"), record.get("value"), record.get("timestamp", 0))
        sandbox.drain()
        wanted = json.loads(expected.read_text(encoding="utf-8"))["outputs"]
        topics = dict.fromkeys(record["topic"] for record in wanted)
        return [line for topic in topics for line in _differences(sandbox, topic, wanted)]


def _differences(sandbox: Sandbox, topic: str, wanted: Iterable[dict[str, Any]]) -> Iterator[str]:
    expected = [_comparable(record) for record in wanted if record["topic"] == topic]
    actual = [_comparable(dict(record)) for record in sandbox.consume(topic)]
    for want, got in itertools.zip_longest(expected, actual):
        if want is None or got is None or any(got.get(name) != value for name, value in want.items()):
            yield f"{topic}: expected {want}, got {got}"


def _comparable(record: dict[str, Any]) -> dict[str, Any]:
    """A window's type is written in either case; the topic is known."""
    shown = {name: value for name, value in record.items() if name != "topic"}
    window = shown.get("window")
    if window:
        shown["window"] = {**window, "type": window["type"].upper()}
    return shown


def _run(sandbox: Sandbox, statement: Statement, text: str) -> None:
    match statement:
        case RunScript():
            return
        case Query():
            list(itertools.islice(sandbox.query(text), ROWS_MAX))
        case PrintTopic():
            sandbox.engine.print_topic(statement, sandbox.session)
        case CreateSource():
            topic = str(statement.properties.get("KAFKA_TOPIC", statement.name))
            if topic not in sandbox.log.topics() and "PARTITIONS" not in statement.properties:
                sandbox.create_topic(topic)
            sandbox.execute(text)
        case _:
            sandbox.execute(text)
    sandbox.drain()


def _is_from_outside(error: MillstreamError) -> bool:
    if isinstance(error, UnknownSource | UnknownFunction):
        return True
    return any(text in str(error) for text in _FROM_OUTSIDE)


def _blocks(text: str) -> Iterator[str]:
    for language, block in _FENCE.findall(text):
        bare = _PROMPT.sub("", block)
        if language.lower() in ("sql", "ksql") or (not language and _VERB.match(bare.strip()) and ";" in bare):
            yield bare


def _complete(block: str) -> Iterator[str]:
    for part in split_statements(block):
        if _VERB.match(part) and not _PLACEHOLDER.search(" ".join(part.split())):
            yield part
