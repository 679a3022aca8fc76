"""What can be typed next: what the grammar takes there, and the names of what is alive."""

from __future__ import annotations

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from millstream.repl.completion import StatementCompleter, candidates_for, matching
from millstream.repl.names import LiveNames, Names
from millstream.server.client import LocalClient
from millstream.server.engine.session import Session
from millstream.testing import Sandbox

NAMES = Names(
    columns={
        "USERS": {"ID": "BIGINT", "NAME": "STRING", "HOME": "STRUCT<ZIP STRING>"},
        "small": {"id": "INTEGER"},
        "COUNTS": {"ID": "BIGINT", "N": "BIGINT"},
    },
    fields={"HOME": ("ZIP", "street")},
    tables=frozenset({"COUNTS"}),
    topics=("users",),
    queries=("CTAS_T_1",),
    functions={"UCASE": "scalar", "COUNT": "aggregate", "MINE": "scalar"},
    properties={"auto.offset.reset": "Where to begin."},
    variables=("wanted",),
    types=("ADDRESS",),
)


def found(before: str, after: str = "") -> list[str]:
    return [candidate.text for candidate in candidates_for(before, before + after, NAMES)]


@pytest.mark.parametrize(
    ("before", "word", "expected"),
    [
        ("ALTER ", "q", "QUERY"),
        ("ALTER QUERY ", "c", "CTAS_T_1"),
        ("ALTER QUERY ctas_t_1 SET ", "e", "EXECUTOR"),
        ("", "sel", "SELECT"),
        ("", "ex", "exit"),
        ("", "\\d", "\\dt"),
        ("SELECT ", "na", "NAME"),
        ("SELECT ", "uc", "UCASE"),
        ("SELECT * FROM ", "us", "USERS"),
        ("SELECT * FROM ", "sma", "`small`"),
        ("SELECT * FROM users EMIT ", "c", "CHANGES"),
        ("SELECT COUNT(*) FROM users GROUP ", "", "BY"),
        ("SELECT COUNT(*) FROM users GROUP BY ", "", "NAME"),
        ("SELECT COUNT(*) FROM users WINDOW TUMBLING (SIZE 5 ", "m", "MINUTES"),
        ("CREATE STREAM s (a ", "str", "STRING"),
        ("CREATE STREAM s (a ", "add", "ADDRESS"),
        ("CREATE STREAM s (a INT) WITH (", "ka", "KAFKA_TOPIC"),
        ("CREATE STREAM s (a INT) WITH (kafka_topic='s', value_format=", "'js", "'JSON'"),
        ("PRINT ", "us", "`users`"),
        ("TERMINATE ", "ct", "CTAS_T_1"),
        ("EXPLAIN ", "ct", "CTAS_T_1"),
        ("SET ", "'auto", "'auto.offset.reset'"),
        ("UNDEFINE ", "W", "wanted"),
        ("DESCRIBE FUNCTION ", "u", "UCASE"),
        ("SELECT 1; DROP ", "ta", "TABLE"),
        ("\\set keys ", "v", "vi"),
        ("output ", "j", "jsonl"),
        ("SHOW STREAMS; OUTPUT ", "V", "vertical"),
        ("SELECT ${", "wa", "wanted"),
        ("PRINT ", "'us", "'users'"),
        ("\\d ", "us", "USERS"),
    ],
)
def test_completion_knows_what_fits(before: str, word: str, expected: str) -> None:
    fitting = [candidate.text for candidate in matching(word, candidates_for(before, f"{before}{word}", NAMES))]
    assert expected in fitting


def test_columns_are_those_of_the_sources_that_the_statement_names() -> None:
    assert {"N", "ID"} <= set(found("SELECT ", " FROM counts"))
    assert "NAME" not in found("SELECT ", " FROM counts")
    assert found("SELECT u.", " FROM users AS u JOIN counts c") == ["ID", "NAME", "HOME"]
    assert found("SELECT c.", " FROM users u JOIN counts c") == ["ID", "N"]
    assert found("SELECT home->", " FROM users") == ["ZIP", "`street`"]


def test_only_what_the_grammar_takes_is_offered() -> None:
    after_source = found("SELECT * FROM users ")
    assert {"WHERE", "EMIT", "WINDOW", "JOIN"} <= set(after_source)
    assert not {"FROM", "SELECT", "NAME", "USERS", "UCASE"} & set(after_source)
    assert found("SELECT * FROM users EMIT ") == ["CHANGES", "FINAL"]
    assert found("DROP TABLE ")[0:1] == ["COUNTS"]
    assert "COUNTS" not in found("DROP STREAM ")


@pytest.mark.parametrize(
    ("before", "word"),
    [
        ("SELECT ", "'na"),
        ("SELECT * FROM users WHERE name = ", "'na"),
        ("SELECT 'a ", "na"),
        ("SELECT 1 -- a ", "na"),
        ("SELECT /* a ", "na"),
        ("SELECT ${", "na"),
    ],
)
def test_nothing_is_offered_inside_of_a_text_or_a_comment(before: str, word: str) -> None:
    assert not list(matching(word, candidates_for(before, f"{before}{word}", NAMES)))


def test_functions_come_with_their_signatures() -> None:
    about = {candidate.text: candidate.about for candidate in candidates_for("SELECT ", "SELECT ", NAMES)}
    assert about["UCASE"] == "UCASE(STRING text)"
    assert about["COUNT"] == "COUNT(*)  (+1)"
    assert about["MINE"] == "scalar"  # of the server only
    assert about["NAME"] == "STRING"


def test_as_one_types_so_one_is_answered_and_words_go_to_their_end() -> None:
    with Sandbox() as sandbox:
        client = LocalClient(sandbox.engine, Session(), address="a sandbox", close=lambda: None)
        client.execute("CREATE STREAM clicks (url STRING, who STRUCT<name STRING>) "
                       "WITH (kafka_topic='clicks', value_format='JSON', partitions=1);")  # fmt: skip
        completer = StatementCompleter(LiveNames(lambda: client))

        def completed(text: str) -> list[str]:
            document = Document(text, len(text))
            asked = CompleteEvent(completion_requested=True)
            return [text[: len(text) + c.start_position] + c.text for c in completer.get_completions(document, asked)]

        assert completed("select * from cl") == ["select * from clicks"]
        assert completed("SELECT * FROM CL") == ["SELECT * FROM CLICKS"]
        assert completed("select * from clicks c where c.u") == ["select * from clicks c where c.url"]
        assert completed("select who->") == ["select who->NAME"]
        assert completed("select nothing_like_this") == []
