"""Live tables and charts, without a page: what they keep, what they tell the page, when they end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running_server import service_in

import millstream
from millstream.connection import Connection
from millstream.errors import InvalidStatement, UnknownColumn
from millstream.notebook import widgets


@pytest.fixture(scope="module")
def totals(ms: Connection) -> str:
    """A table with rows that change and rows that go: who has three clicks is taken out."""
    ms.sql("CREATE TABLE totals AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user HAVING COUNT(*) < 3;")
    ms.table("totals").live_table().wait(lambda rows: len(rows) == 2)
    return "totals"


def clicks_of(ms: Connection, *users: str) -> None:
    ms.insert("clicks", {"user": list(users), "size": [1] * len(users)})


def test_a_row_takes_the_place_of_the_one_before_and_a_tombstone_removes_it(ms: Connection, totals: str) -> None:
    live = ms.table(totals).live_table()
    live.wait(lambda rows: sorted(rows) == [("ada", 2), ("bo", 1)])
    clicks_of(ms, "bo", "cy")
    live.wait(lambda rows: sorted(rows) == [("ada", 2), ("bo", 2), ("cy", 1)])
    clicks_of(ms, "ada")
    live.wait(lambda rows: sorted(rows) == [("bo", 2), ("cy", 1)])
    live.close()


def test_the_page_gets_the_rows_their_numbers_and_their_columns(ms: Connection) -> None:
    live = ms.sql("SELECT size, user FROM clicks EMIT CHANGES LIMIT 2;").live_table()
    live.wait()
    live._feed.join(60)
    assert live._columns == [
        {"name": "SIZE", "type": "INTEGER", "number": True, "key": False},
        {"name": "USER", "type": "STRING", "number": False, "key": False},
    ]
    assert live._rows == {"ids": [0, 1], "cells": [[3, "ada"], [4, "bo"]], "gone": [], "forgotten": 0}
    assert live._status == {"state": "ended", "message": "", "received": 2, "rate": 0.0}
    assert live._keyed is False


def test_a_table_whose_key_is_not_selected_shows_each_change(ms: Connection) -> None:
    live = ms.sql("SELECT COUNT(*) AS n FROM clicks GROUP BY user EMIT CHANGES LIMIT 2;").live_table()
    live.wait()
    assert len(live.rows) == 2
    assert live._keyed is False


def test_the_one_row_of_everything_stays_one_row(ms: Connection) -> None:
    live = ms.sql("SELECT COUNT(*) AS n FROM clicks EMIT CHANGES;").live_table()
    live.wait(1)
    clicks_of(ms, "dora")
    before = live.rows[0][0]
    live.wait(lambda rows: rows[0][0] == ms.sql("SELECT COUNT(*) AS n FROM clicks;").fetchall()[0][0])
    assert len(live.rows) == 1 and live.rows[0][0] >= before
    live.close()


def test_a_window_of_a_key_has_a_row_of_its_own(ms: Connection) -> None:
    windowed = (
        "SELECT user, WINDOWSTART AS began, COUNT(*) AS n FROM shifts WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY user"
    )
    ms.sql(
        "CREATE STREAM shifts (user STRING KEY, n INT) WITH (kafka_topic='shifts', value_format='JSON', partitions=1);"
    )
    ms.insert("shifts", {"user": ["ada", "ada", "ada"], "n": [1, 1, 1], "ROWTIME": [0, 1, 60_000]})
    live = ms.sql(f"{windowed} EMIT CHANGES;").live_table()
    live.wait(lambda rows: rows == [("ada", 0, 2), ("ada", 60_000, 1)])
    live.close()


def test_a_query_that_answers_once_goes_on_when_it_is_shown_live(ms: Connection) -> None:
    live = ms.sql("SELECT user FROM clicks WHERE user = :who;", {"who": "eve"}).live_table()
    clicks_of(ms, "eve", "fay", "eve")
    live.wait(2)
    assert live.rows == [("eve",), ("eve",)]
    live.close()


def test_a_chart_without_x_draws_values_over_the_time_at_which_they_came(ms: Connection) -> None:
    chart = ms.sql("SELECT user, size FROM clicks WHERE user = 'ada' EMIT CHANGES;").live_chart(y="size", by="user")
    chart.wait(lambda series: series and series[0]["y"][:2] == [3, 5])
    assert chart.series[0]["name"] == "ada"
    assert chart.series[0]["x"] == sorted(chart.series[0]["x"])
    assert chart._axes["x"] == "time of arrival"
    chart.close()


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"y": "sise"}, UnknownColumn),
        ({"y": "user"}, InvalidStatement),
        ({"x": "size"}, InvalidStatement),
        ({"y": "size", "kind": "pie"}, InvalidStatement),
        ({"rows_max": 0}, InvalidStatement),
    ],
)
def test_a_chart_that_cannot_be_drawn_is_refused(ms: Connection, asked: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        ms.sql("SELECT user, size FROM clicks EMIT CHANGES;").live_chart(**asked)


def test_the_stop_button_ends_the_query(ms: Connection) -> None:
    live = ms.sql("SELECT * FROM clicks EMIT CHANGES;").live_table()
    live._told(live, {"kind": "opened"}, [])
    live._told(live, {"kind": "stop"}, [])
    assert live.status.state == "stopped"


def test_a_query_ends_some_time_after_its_last_view_was_closed(ms: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widgets, "_UNSEEN_SECONDS", 0.05)
    live = ms.sql("SELECT * FROM clicks EMIT CHANGES;").live_table()
    for kind in ("opened", "opened", "closed"):
        live._told(live, {"kind": kind}, [])
    assert live._unseen is None  # one view is left
    live._told(live, {"kind": "closed"}, [])
    live.wait(lambda rows: False)
    assert (live.status.state, live.status.message) == ("stopped", "its view was closed")


def test_a_view_that_comes_back_in_time_keeps_the_query(ms: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widgets, "_UNSEEN_SECONDS", 30)
    live = ms.sql("SELECT * FROM clicks EMIT CHANGES;").live_table()
    for kind in ("opened", "closed", "opened"):
        live._told(live, {"kind": kind}, [])
    assert live._unseen is not None and live._unseen.finished.is_set()
    assert live.status.state == "running"
    live.close()


def test_what_a_cell_made_ends_when_the_cell_runs_again(shell: Any, ms: Connection) -> None:
    shell.user_ns["ms"] = ms
    source = "live = ms.sql('SELECT * FROM clicks EMIT CHANGES;').live_table()"
    shell.run_cell(source, cell_id="one")
    first = shell.user_ns["live"]
    shell.run_cell("1 + 1", cell_id="two")
    assert first.status.state == "running"
    shell.run_cell(source, cell_id="one")
    assert first.status.state == "stopped"
    second = shell.user_ns["live"]
    assert second.status.state == "running"
    second.close()


def test_waiting_has_an_end(ms: Connection) -> None:
    live = ms.sql("SELECT * FROM clicks EMIT CHANGES;").live_table()
    with pytest.raises(TimeoutError, match=r"not within 0\.01 seconds"):
        live.wait(10**9, seconds=0.01)
    live.close()


def test_a_closed_engine_ends_its_live_tables() -> None:
    with millstream.connect() as short:
        short.sql("CREATE STREAM s (a INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
        live = short.sql("SELECT * FROM s EMIT CHANGES;").live_table()
    live.wait()
    assert live.status.state == "ended"


def test_a_server_tells_which_columns_are_the_key_and_its_end_is_seen(tmp_path: Path) -> None:
    with service_in(tmp_path) as service:
        remote = millstream.connect(f"http://{service.http_address}", {"auto.offset.reset": "earliest"})
        remote.sql(
            "CREATE TABLE t (id INT PRIMARY KEY, a INT) WITH (kafka_topic='t', value_format='JSON', partitions=1);"
        )
        live = remote.table("t").live_table()
        remote.insert("t", {"id": [1, 2, 1], "a": [1, 2, 3]})
        live.wait(lambda rows: sorted(rows) == [(1, 3), (2, 2)])
        stopped = remote.table("t").live_table()
        stopped.stop()
        assert stopped.status.state == "stopped"
    assert live.wait().state in ("ended", "failed")


PROGRAM = """
import tempfile, sys
tempfile.tempdir = sys.argv[1]
import millstream
ms = millstream.connect(properties={"auto.offset.reset": "earliest"})
ms.sql("CREATE STREAM s (a INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
live = ms.sql("SELECT * FROM s EMIT CHANGES;").live_table()
ms.insert("s", {"a": [1]})
live.wait(1)
"""


def test_a_process_ends_while_a_live_table_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert list(tmp_path.glob("millstream-*")) == []


def test_a_chart_draws_twelve_series_and_tells_how_many_more_there_are(ms: Connection) -> None:
    ms.sql("CREATE STREAM many (k INT KEY, v INT) WITH (kafka_topic='many', value_format='JSON', partitions=1);")
    ms.insert("many", {"k": list(range(15)), "v": list(range(15))})
    chart = ms.sql("SELECT k, v FROM many EMIT CHANGES LIMIT 15;").live_chart(y="v", by="k")
    chart.wait()
    chart._feed.join(60)
    assert [series["name"] for series in chart._series] == [str(14 - n) for n in range(12)]
    assert (chart._left_out, len(chart.series)) == (3, 15)
