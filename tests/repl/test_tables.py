"""Tables: aligned, and as narrow as they must be."""

from __future__ import annotations

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
