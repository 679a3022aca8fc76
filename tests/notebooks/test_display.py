"""What a notebook shows of relations, answers, plans and graphs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from millstream.connection import Connection
from millstream.notebook.display import rows_html


def bundle(shown: Any) -> dict[str, str]:
    return shown._repr_mimebundle_()


def test_a_relation_shows_its_columns_types_and_rows(ms: Connection) -> None:
    shown = bundle(ms.sql("SELECT user, size FROM clicks WHERE size > 3;"))
    assert shown["text/plain"].split() == ["USER", "SIZE", "bo", "4", "ada", "5"]
    for part in ("USER", "STRING", "SIZE", "INTEGER", ">bo<", ">5<", "2 rows"):
        assert part in shown["text/html"]


def test_only_the_first_rows_are_shown_and_that_there_are_more_is_told() -> None:
    table = pa.table({"N": list(range(21))})
    html = rows_html(table, ("INTEGER",), 20)
    assert html.count("<tr>") == 1 + 20
    assert "the first 20 rows" in html
    assert "1 row<" in rows_html(table.slice(0, 1), ("INTEGER",), 20)


def test_a_query_without_an_end_is_told_and_not_run(ms: Connection) -> None:
    shown = bundle(ms.sql("SELECT * FROM clicks WHERE size < 3 EMIT CHANGES;"))
    assert "size &lt; 3 EMIT CHANGES" in shown["text/html"] and ".live_table()" in shown["text/html"]
    assert shown["text/plain"].startswith("<live query:")


def test_a_mistake_is_shown_and_not_raised_where_nobody_could_catch_it(ms: Connection) -> None:
    shown = bundle(ms.sql("SELECT siz FROM clicks;"))
    assert "SELECT column 'SIZ' cannot be resolved." in shown["text/plain"]
    assert "Did you mean &quot;SIZE&quot;?" in shown["text/html"]


@pytest.mark.parametrize("value", ["<script>alert(1)</script>", "a&b", '"'])
def test_no_text_of_rows_or_names_becomes_html(value: str) -> None:
    html = rows_html(pa.table({value: [value]}), ("STRING",), 20)
    assert value not in html.replace('style="', "").replace('"', "") or value == '"'
    assert "<script" not in html


def test_describe_is_a_table_of_fields_with_what_else_is_known(ms: Connection) -> None:
    shown = bundle(ms.sql("DESCRIBE clicks;"))["text/html"]
    for part in ("<b>CLICKS</b>", "stream", ">USER<", ">STRING<", ">key<", "topic: clicks (1 partition)", "value JSON"):
        assert part in shown


def test_explain_is_a_plan(ms: Connection) -> None:
    shown = bundle(ms.sql("EXPLAIN SELECT * FROM clicks WHERE size > 3 EMIT CHANGES;"))["text/html"]
    assert "<pre" in shown and "SOURCE STREAM CLICKS" in shown and "v0 &gt; 3" in shown


def test_lists_are_tables_and_other_answers_what_the_shell_prints(ms: Connection) -> None:
    assert "<table" in bundle(ms.sql("SHOW STREAMS;"))["text/html"]
    assert "LPAD" in bundle(ms.sql("DESCRIBE FUNCTION LPAD;"))["text/html"]
    assert "✓ Created" in bundle(ms.sql("CREATE STREAM copies AS SELECT * FROM clicks;"))["text/html"]
    again = bundle(ms.sql("CREATE STREAM IF NOT EXISTS copies AS SELECT * FROM clicks;"))["text/html"]
    assert "already exists" in again and "<pre" not in again


def test_a_graph_is_a_picture(ms: Connection) -> None:
    shown = bundle(ms.sql("SHOW GRAPH AS SVG;"))
    assert shown["image/svg+xml"].lstrip().startswith("<svg")
    assert "text/html" not in shown


def test_results_are_shown_without_what_only_live_ones_need() -> None:
    program = (
        "import sys\n"
        "for name in ('traitlets', 'anywidget', 'IPython'): sys.modules[name] = None\n"
        "import millstream\n"
        "from millstream.notebook.display import rows_html\n"
        "import pyarrow as pa\n"
        "assert '<table' in rows_html(pa.table({'a': [1]}), ('INTEGER',), 20)\n"
        "from millstream.relation import Relation\n"
        "try: Relation(lambda text: None, 'SELECT 1', endless=True).live_table()\n"
        "except ImportError as error: assert 'millstream[notebook]' in str(error)\n"
        "else: raise AssertionError\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
