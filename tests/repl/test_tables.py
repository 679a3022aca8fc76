"""Tables: aligned, and as narrow as they must be."""

from __future__ import annotations

from millstream.repl.text.entity_text import entity_lines
from millstream.repl.text.tables import cut_to, render_table, text_width


def test_a_table_is_cut_to_the_width_of_the_screen() -> None:
    lines = render_table(["A", "LONG"], [[1, "x" * 100], [20, "日本語"]], 30)
    assert lines == [
        "  A | LONG",
        "----+-------------------------",
        "  1 | xxxxxxxxxxxxxxxxxxxxxx…",
        " 20 | 日本語",
    ]
    assert max(map(text_width, lines)) <= 30


def test_a_wide_character_is_never_cut_in_half() -> None:
    assert (cut_to("日本語", 4), cut_to("日本語", 5)) == ("日…", "日本…")


def test_values_look_as_in_json() -> None:
    assert render_table(["V"], [[None], [True], [[1, {"a": None}]]], None)[2:] == [
        " null",
        " true",
        ' [1, {"a": null}]',
    ]


QUERY = {
    "id": "CTAS_T_1",
    "queryType": "PERSISTENT",
    "state": "RUNNING",
    "executor": "duckdb",
    "sinks": ["T"],
    "sinkKafkaTopics": ["T"],
    "queryString": "CREATE TABLE t AS …;",
}


def test_queries_have_a_column_for_details_if_one_has_any() -> None:
    there = {**QUERY, "detail": "restores its state: 12 records left"}
    without, _, *_ = entity_lines({"@type": "queries", "queries": [QUERY, {**QUERY, "detail": None}]}, None)
    assert [title.strip() for title in without.split("|")] == [
        *("Query ID", "Type", "State", "Executor", "Sink", "Topic", "Statement")
    ]
    titles, _, first, second = entity_lines({"@type": "queries", "queries": [there, QUERY]}, None)
    at = [title.strip() for title in titles.split("|")].index("Detail")
    assert [line.split("|")[at].strip() for line in (first, second)] == ["restores its state: 12 records left", ""]
