"""How results look: in each format, on a screen and elsewhere, wide or narrow."""

from __future__ import annotations

import csv
import decimal
import io
import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import Span, SqlSyntaxError
from millstream.repl.printer import NotForScreens, Printer
from millstream.repl.settings import OutputFormat, Settings
from millstream.repl.text.keyed_rows import KeyedRows
from millstream.repl.text.tables import render_table, text_width
from millstream.repl.viewer import ViewerPlace
from millstream.server.client import Row, Rows, RowsKind
from millstream.server.client_tables import ResultTables

VALUES = (
    Row((1, "null", decimal.Decimal("2.50"))),
    Row((2, None, None)),
    Row((3, 'a|"b",\n日本', decimal.Decimal("0.00"))),
)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def rows(values: Iterable[Row] = VALUES, kind: RowsKind = "PULL", key: tuple[int, ...] | None = None) -> Rows:
    types = ("INTEGER", "STRING", "DECIMAL(4, 2)")
    return Rows(kind, "q", ("ID", "TEXT", "PRICE"), types, iter(values), lambda: None, lambda: None, key)


def printed(format: OutputFormat, shown: Rows | None = None, out: io.StringIO | None = None) -> str:
    out = out if out is not None else io.StringIO()
    Printer(out, io.StringIO(), Settings(format)).rows(shown or rows())
    return out.getvalue()


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_null_and_the_text_null_look_different_in_every_format() -> None:
    assert [line[6:12] for line in printed("table").splitlines()[2:4]] == ["'null'", "null  "]
    assert printed("csv").splitlines()[1:3] == ["1,null,2.50", "2,,"]
    assert [json.loads(line)["TEXT"] for line in printed("jsonl").splitlines()[:2]] == ["null", None]
    assert "TEXT  | 'null'\n" in printed("vertical") and "TEXT  | null\n" in printed("vertical")
    assert "| 1 | 'null' | 2.50 |\n| 2 | null | null |\n" in printed("markdown")


@pytest.mark.parametrize("format", ["table", "vertical", "markdown", "csv", "jsonl"])
def test_numbers_inside_of_a_value_are_numbers_in_every_format(
    format: OutputFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    nested = {"d": decimal.Decimal("1.10"), "é": [decimal.Decimal("0.00"), None, 1e300, "1.5"], "t": True}
    shown = printed(format, rows([Row((1, nested, None))])).replace('""', '"').replace(" ", "")
    assert '{"d":1.10,"é":[0.00,null,1e' in shown.replace("e+", "e")
    assert '"1.5"],"t":true}' in shown


def test_json_is_one_value_and_jsonl_one_per_line() -> None:
    expected = [{"ID": 1, "TEXT": "null", "PRICE": 2.5}, {"ID": 2, "TEXT": None, "PRICE": None}]
    assert json.loads(printed("json"))[:2] == expected
    assert [json.loads(line) for line in printed("jsonl").splitlines()][:2] == expected
    assert json.loads(printed("json", rows([]))) == []
    assert '"PRICE":2.50' in printed("json")  # with the digits of its scale


def test_csv_is_read_back_by_any_reader() -> None:
    read = list(csv.reader(io.StringIO(printed("csv"))))
    assert read == [["ID", "TEXT", "PRICE"], ["1", "null", "2.50"], ["2", "", ""], ["3", 'a|"b",\n日本', "0.00"]]
    changes = rows([Row((1, "x", None)), Row((1, None, None), tombstone=True)], "PUSH", (0,))
    assert printed("csv", changes).splitlines() == ["ID,TEXT,PRICE,@tombstone", "1,x,,0", "1,,,1"]


def test_a_markdown_cell_ends_where_it_should() -> None:
    assert printed("markdown").splitlines()[-1] == '| 3 | a\\|"b",\\\\n日本 | 0.00 |'


def test_arrow_is_a_stream_for_files_and_refused_on_a_screen() -> None:
    def tables() -> ResultTables:
        table = pa.table({"A": pa.array([1, 2])})
        return ResultTables("PULL", "q", table.schema, ("BIGINT",), iter([table]), lambda: None)

    binary = io.BytesIO()
    out = io.TextIOWrapper(binary)  # which closes it at its end
    Printer(out, io.StringIO(), Settings("arrow")).arrow(tables())
    assert pa.ipc.open_stream(binary.getvalue()).read_all().to_pydict() == {"A": [1, 2]}
    with pytest.raises(NotForScreens):
        Printer(Screen(), io.StringIO(), Settings("arrow")).arrow(tables())


def test_answers_that_are_no_data_stay_out_of_data() -> None:
    status = {"@type": "currentStatus", "commandStatus": {"message": "Stream created"}}
    variables = {"@type": "variables", "variables": [{"name": "A", "value": "1,2"}], "warnings": [{"message": "w"}]}
    out, err = io.StringIO(), io.StringIO()
    printer = Printer(out, err, Settings("csv"))
    printer.entity(status)
    printer.entity(variables)
    assert out.getvalue() == 'Variable,Value\nA,"1,2"\n'
    assert err.getvalue() == "Stream created\nwarning: w\n"


def test_colours_are_for_screens_and_no_color_turns_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in printed("table")
    assert "\x1b[2mnull\x1b[0m" in printed("table", out=Screen())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in printed("table", out=Screen())


def test_on_a_screen_no_format_lets_data_command_it() -> None:
    hostile = [Row((1, "\x1b[2J\x9b5n\x07\x7f", None))]
    for format in ("table", "csv", "json", "jsonl", "markdown", "vertical"):
        shown = printed(format, rows(hostile), out=Screen())
        for own in ("\x1b[1m", "\x1b[2m", "\x1b[0m"):
            shown = shown.replace(own, "")
        assert shown.replace("\n", "").isprintable(), format


@pytest.mark.parametrize("columns", [10, 20, 30, 40])
def test_a_table_is_never_wider_than_the_screen(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    for shown in (rows(), rows(kind="PUSH")):
        assert max(map(text_width, printed("table", shown, out=Screen()).splitlines())) <= columns


def test_columns_without_room_are_left_out_with_a_sign() -> None:
    lines = render_table([f"COLUMN{n}" for n in range(9)], [list(range(9))], 20)
    assert lines == [" CO… | CO… | CO… | …", "-----+-----+-----+--", "   0 |   1 |   2 | …"]


def test_characters_are_as_wide_as_a_terminal_shows_them() -> None:
    assert [text_width(text) for text in ("日本", "e\u0301", "각", "👍", "a\u200db")] == [4, 1, 2, 2, 2]


def test_the_carets_of_an_error_stand_below_what_they_mean() -> None:
    text = "SELECT '日本', x FROM s"
    err = io.StringIO()
    error: Any = SqlSyntaxError("no", span=Span(text.index("x"), text.index("x") + 1), text=text)
    Printer(io.StringIO(), err).error(error)
    excerpt, carets = err.getvalue().splitlines()[1:3]
    assert text_width(excerpt[: excerpt.index("x")]) == carets.index("^")


# ------------------------------------------------------------------ rows that change where they stand


def changing(*changes: Row) -> KeyedRows:
    kept = KeyedRows(rows(changes, "PUSH", (0,)), colour=False)
    for _ in kept.take():
        pass
    return kept


def change(key: int, text: str | None, *, tombstone: bool = False) -> Row:
    return Row((key, text, None), tombstone=tombstone)


def lines(kept: KeyedRows, **place: Any) -> list[str]:
    page = kept.page(ViewerPlace(**{"columns": 30, "rows": 10, "top": 0, "left": 0, **place}))
    return [*page.head, *page.lines]


def test_a_change_takes_the_place_of_the_row_with_its_key_and_a_tombstone_removes_it() -> None:
    kept = changing(change(1, "a"), change(2, "b"), change(1, "c"), change(3, "d"), change(2, None, tombstone=True))
    assert lines(kept) == [" ID | TEXT | PRICE", "----+------+-------", "  1 | c    |  null", "  3 | d    |  null"]


def test_only_the_rows_that_fit_are_drawn_and_one_can_move() -> None:
    kept = changing(*(change(n, "x") for n in range(100)))
    assert [line[:4].strip() for line in lines(kept, rows=5)[2:]] == ["0", "1", "2"]
    assert [line[:4].strip() for line in lines(kept, rows=5, top=50)[2:]] == ["50", "51", "52"]
    assert kept.page(ViewerPlace(30, 5, 10_000, 0)).top == 97


def test_columns_do_not_become_narrower_while_one_looks() -> None:
    changes = iter([change(1, "a long text"), change(1, "b")])
    kept = KeyedRows(rows(changes, "PUSH", (0,)), colour=False)
    widths = [len(lines(kept)[1]) for _ in kept.take()]
    assert widths[0] == widths[1]
