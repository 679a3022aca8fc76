"""`millstream top`: rates from two readings, what needs attention first, and no name that moves the cursor."""

from __future__ import annotations

from pathlib import Path

import pytest
from running_server import millstream, service_in

from millstream.repl.text.top_text import GROUPS_MAX, TOPICS_MAX, read_figures, top_lines
from millstream.server.client import connect


def shown(before: str, now: str, seconds: float = 2.0) -> list[str]:
    lines = top_lines(read_figures(before), read_figures(now), seconds)
    return [" ".join(line.replace("|", " ").split()) for line in lines if line]


def query(name: str, *, state: str = "RUNNING", lag: int = 0, rows: int = 0) -> str:
    states = "".join(
        f'millstream_query_state{{query="{name}",state="{each}"}} {int(each == state)}\n'
        for each in ("RUNNING", "PAUSED", "ERROR")
    )
    lags = "".join(f'millstream_query_lag{{query="{name}",topic="t",partition="{n}"}} {lag}\n' for n in range(2))
    return f'{states}{lags}millstream_query_rows_in_total{{query="{name}"}} {rows}\n'


def test_counters_become_rates_and_partitions_are_added_up() -> None:
    lines = shown(query("Q", lag=5, rows=100), query("Q", lag=600, rows=3100))
    assert lines[0] == "1 of 1 queries running, 0 queries of clients, 0 HTTP requests/s"
    assert "Q RUNNING 1.2 k 1.5 k 0 0 0 0" in lines


def test_a_server_that_was_restarted_in_between_shows_no_negative_rates() -> None:
    assert "Q RUNNING 0 0 0 0 0 0" in shown(query("Q", rows=100), query("Q", rows=3))


def test_stopped_queries_come_first_and_then_those_that_are_behind() -> None:
    now = query("A") + query("B", lag=7) + query("C", state="ERROR") + query("D", lag=70) + query("E", state="PAUSED")
    order = [line[0] for line in shown("", now) if len(line) > 1 and line[1] == " " and line[0] in "ABCDE"]
    assert order == ["C", "E", "D", "B", "A"]


def test_the_busiest_topics_are_shown_and_none_of_our_own() -> None:
    before = "".join(f'millstream_topic_appended_records_total{{topic="t{n}",partition="0"}} 0\n' for n in range(40))
    now = "".join(f'millstream_topic_appended_records_total{{topic="t{n}",partition="0"}} {n}\n' for n in range(40))
    now += 'millstream_topic_appended_records_total{topic="_millstream-command",partition="0"} 1000\n'
    topics = [line.split()[0] for line in shown(before, now) if line.startswith(("t", "_"))]
    assert topics == [f"t{n}" for n in range(39, 39 - TOPICS_MAX, -1)]


def test_the_groups_of_queries_are_not_shown_twice() -> None:
    groups = [*(f"g{n:02}" for n in range(20)), "Q", "_millstream-command-applied"]
    now = query("Q") + "".join(
        f'millstream_group_lag{{group="{name}",topic="t",partition="0"}} {n}\n' for n, name in enumerate(groups)
    )
    names = [line.split()[0] for line in shown("", now)]
    assert [name for name in names if name.startswith("g")] == [f"g{n:02}" for n in range(19, 19 - GROUPS_MAX, -1)]
    assert names.count("Q") == 1


def test_a_name_cannot_command_the_terminal() -> None:
    assert "\x1b" not in "".join(shown("", query("\x1b[2J")))


def test_a_running_server_is_watched(tmp_path: Path) -> None:
    with service_in(tmp_path) as service:
        url = f"http://{service.http_address}"
        connect(url).execute(
            "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
            "CREATE STREAM q AS SELECT * FROM s;"
        )
        found = millstream("top", "--server", url, "--interval", "0.2", "--count", "2")
        assert found.returncode == 0, found.stderr
        assert found.stdout.count("1 of 1 queries running") == 2
        assert "CSAS_Q" in found.stdout
        by_variable = millstream("top", "--count", "1", "--interval", "0.2", env={"MILLSTREAM_SERVER": url})
        assert "CSAS_Q" in by_variable.stdout
        shell = millstream("sql", "-e", "SHOW STREAMS;", env={"MILLSTREAM_SERVER": url})
        assert " Q " in shell.stdout
        own = millstream("sql", "--data", str(tmp_path / "own"), "-e", "SHOW STREAMS;", env={"MILLSTREAM_SERVER": url})
        assert " Q " not in own.stdout
        assert own.returncode == 0
        both = millstream("sql", "--data", str(tmp_path / "own"), "--server", url, "-e", "SHOW STREAMS;")
        assert both.returncode == 2


@pytest.mark.parametrize("arguments", [("--interval", "0"), ("--count", "0")])
def test_wrong_figures_are_refused(arguments: tuple[str, str]) -> None:
    assert millstream("top", *arguments).returncode == 2


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    found = millstream("top", "--server", "http://127.0.0.1:1")
    assert (found.returncode, found.stderr.count("\n")) == (1, 1)
    assert "no server answers" in found.stderr
