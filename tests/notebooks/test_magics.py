"""`%millstream` and `%%millstream`, in a shell of this process."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.utils.capture import capture_output

import millstream
from millstream.connection import Connection
from millstream.errors import InvalidStatement, MillstreamError
from millstream.notebook.options import MagicUsage
from millstream.notebook.widgets import LiveTable
from millstream.relation import Relation


@pytest.fixture
def connected(shell: Any, ms: Connection) -> Any:
    shell.user_ns["mine"] = ms
    shell.run_line_magic("millstream", "mine")
    return shell


def cell(shell: Any, text: str, line: str = "") -> tuple[Any, list[dict[str, str]]]:
    """What a cell gives, and what it displays meanwhile."""
    with capture_output() as captured:
        result = shell.run_cell_magic("millstream", line, text)
    return result, [shown.data for shown in captured.outputs]


def failed_lines(shell: Any, source: str) -> list[str]:
    """What a notebook shows of a cell that fails, without colours."""
    with capture_output():
        error = shell.run_cell(source).error_in_exec
    assert isinstance(error, MillstreamError)
    text = "\n".join(error._render_traceback_())  # pyrefly: ignore[missing-attribute]
    return (
        text.translate({27: None})
        .replace("[31m", "")
        .replace("[36m", "")
        .replace("[1m", "")
        .replace("[0m", "")
        .split("\n")
    )


def test_each_statement_of_a_cell_is_answered(connected: Any) -> None:
    _, shown = cell(connected, "SHOW STREAMS;\nSELECT size FROM clicks WHERE user = 'ada';")
    assert "CLICKS" in shown[0]["text/html"]
    assert shown[1]["text/plain"].split() == ["SIZE", "3", "5"]
    assert len(shown) == 2


def test_a_name_with_a_colon_is_a_variables_value_and_never_text_of_the_statement(connected: Any) -> None:
    connected.user_ns["who"] = "ada' OR user <> '"
    _, shown = cell(connected, "SELECT COUNT(*) AS n FROM clicks WHERE user = :who;")
    assert shown[0]["text/plain"].split() == ["N", "0"]


def test_a_name_without_a_value_is_an_error_that_lists_those_there_are(connected: Any) -> None:
    connected.user_ns.update(least=3, _hidden=1, text="x")
    with pytest.raises(InvalidStatement, match="no value for the parameter :most") as refused:
        cell(connected, "SELECT * FROM clicks WHERE size < :most;")
    assert refused.value.hint == "Given are least, text."


@pytest.mark.parametrize("line", ["found <<", "--into found", "found << --as relation"])
def test_a_result_goes_into_a_variable(connected: Any, line: str) -> None:
    result, shown = cell(connected, "SELECT size FROM clicks WHERE size > 3;", line)
    assert result is None and shown == []
    assert isinstance(connected.user_ns["found"], Relation)
    assert connected.user_ns["found"].fetchall() == [(4,), (5,)]


def test_a_result_has_the_form_that_is_asked_for(connected: Any) -> None:
    cell(connected, "SELECT size FROM clicks;", "found << --as arrow")
    assert connected.user_ns["found"].column("SIZE").to_pylist() == [3, 4, 5]
    frame, _ = cell(connected, "SELECT size FROM clicks;", "--as df")
    assert list(frame["SIZE"]) == [3, 4, 5]


def test_a_mistake_is_told_in_its_cell_also_where_the_query_runs_later(connected: Any) -> None:
    assert failed_lines(connected, "%%millstream found <<\nSHOW STREAMS;\nSELECT siz\n  FROM clicks;") == [
        "error: SELECT column 'SIZ' cannot be resolved.",
        "  3 | SELECT siz",
        "    |        ^^^",
        'hint: Did you mean "SIZE"?',
    ]
    assert "found" not in connected.user_ns


def test_what_comes_before_a_mistake_has_happened_and_is_shown(connected: Any) -> None:
    lines = failed_lines(
        connected, "%%millstream\nDEFINE a = 'b';\nCREATE STREAM more AS SELECT * FROM clicks;\nSELEC 1;"
    )
    assert lines[1:3] == ["  4 | SELEC 1;", "    | ^^^^^"]
    assert ("MORE",) in [(line["name"],) for line in connected.user_ns["mine"].execute("SHOW STREAMS;")[0]["streams"]]


def test_a_query_without_an_end_is_a_live_table(connected: Any) -> None:
    live, _ = cell(connected, "SELECT * FROM clicks EMIT CHANGES;")
    assert isinstance(live, LiveTable)
    live.wait(3)
    assert live.rows == [("ada", 3), ("bo", 4), ("ada", 5)]
    live.close()


def test_a_live_table_keeps_as_many_rows_as_it_is_told(connected: Any) -> None:
    cell(connected, "SELECT * FROM clicks EMIT CHANGES;", "live << --live --rows 2")
    live = connected.user_ns["live"]
    live.wait(3)
    assert live.rows == [("bo", 4), ("ada", 5)]
    live.close()


def test_a_chart_draws_the_columns_that_the_line_names(connected: Any) -> None:
    cell(
        connected, "SELECT user, COUNT(*) AS n FROM clicks GROUP BY user EMIT CHANGES;", "chart << --chart -x user -y n"
    )
    chart = connected.user_ns["chart"]
    chart.wait(lambda series: series and sum(series[0]["y"]) == 3)
    assert dict(zip(chart.series[0]["x"], chart.series[0]["y"], strict=True)) == {"ada": 2, "bo": 1}
    chart.close()


@pytest.mark.parametrize("option", ["--live", "--chart"])
def test_only_a_select_is_shown_live(connected: Any, option: str) -> None:
    with pytest.raises(MillstreamError, match="only a SELECT can be shown live"):
        cell(connected, "SHOW STREAMS;", option)


def test_a_chart_of_a_column_that_there_is_not_starts_no_query(connected: Any) -> None:
    with pytest.raises(MillstreamError, match='no column "zise"'):
        cell(connected, "SELECT * FROM clicks EMIT CHANGES;", "--chart -y zise")


def test_without_a_connection_a_cell_says_how_to_connect(shell: Any) -> None:
    assert failed_lines(shell, "%%millstream\nSHOW STREAMS;")[0] == "error: this notebook is not connected"


def test_an_embedded_engine_reads_from_the_beginning_and_ends_with_close(shell: Any) -> None:
    with capture_output():
        shell.run_line_magic("millstream", "embedded")
    connection = shell.user_ns["ms"]
    properties = {line["name"]: line["value"] for line in connection.execute("SHOW PROPERTIES;")[0]["properties"]}
    assert properties["auto.offset.reset"] == "earliest"
    shell.run_line_magic("millstream", "close")
    with pytest.raises(MillstreamError):
        connection.table("clicks").fetchall()


def test_a_connection_of_the_notebooks_own_is_not_closed(connected: Any) -> None:
    connected.run_line_magic("millstream", "close")
    assert connected.user_ns["mine"].table("clicks").fetchall()


@pytest.mark.parametrize("line", ["nothing", "embedded one two", "close now", "it's"])
def test_what_is_no_connection_is_a_mistake_in_usage(shell: Any, line: str) -> None:
    with pytest.raises(MagicUsage):
        shell.run_line_magic("millstream", line)


@pytest.mark.parametrize("line", ["--lively", "--rows many", "--as csv", "--into 9a", "--title 'open"])
def test_what_the_line_does_not_know_is_a_mistake_in_usage(connected: Any, line: str) -> None:
    with pytest.raises(MagicUsage):
        cell(connected, "SHOW STREAMS;", line)


def test_the_magic_says_what_it_knows(shell: Any) -> None:
    with capture_output() as captured:
        shell.run_line_magic("millstream", "--help")
    assert "--chart" in captured.outputs[0].data["text/plain"]
    assert "%%millstream [NAME <<]" in captured.outputs[0].data["text/plain"]


def test_the_sql_magic_is_left_to_who_has_it(shell: Any) -> None:
    shell.run_line_magic("unload_ext", "millstream")
    assert "sql" not in shell.magics_manager.magics["cell"]
    shell.register_magic_function(lambda line, cell: "of somebody else", "cell", "sql")
    shell.run_line_magic("load_ext", "millstream")
    assert shell.run_cell_magic("sql", "", "SELECT 1;") == "of somebody else"


@pytest.mark.filterwarnings("ignore")  # completion is provisional to IPython
def test_names_of_the_catalog_complete_in_cells_of_sql_only(connected: Any) -> None:
    def completions(text: str) -> list[str]:
        return [found.text for found in connected.Completer.completions(text, len(text))]

    assert completions("%%millstream\nSELECT *\nFROM cli") == ["clicks"]
    assert "user" in completions("%%sql x <<\nSELECT us")
    assert "clicks" not in completions("cli")


def test_loading_twice_changes_nothing(connected: Any) -> None:
    before = list(connected.Completer.custom_matchers)
    connected.run_line_magic("reload_ext", "millstream")
    assert len(connected.Completer.custom_matchers) == len(before)
    assert millstream.load_ipython_extension is not None
