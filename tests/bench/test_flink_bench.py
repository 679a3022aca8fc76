"""Nexmark beside Flink: what is made of what the peer's script says. Flink itself is not needed here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import bench.nexmark.flink as beside
from bench.measuring import Measured
from bench.nexmark.events import Events
from bench.nexmark.flink import FlinkPeer, flink_lines
from bench.nexmark.measure import NexmarkOptions
from bench.nexmark.queries import nexmark_queries

SMALL, LARGE = Events(Path("small"), 2, {"bid": 1_000}), Events(Path("large"), 2, {"bid": 5_000})
Q0 = nexmark_queries()[0]


def peer(folder: Path, body: str) -> FlinkPeer:
    """Its script has one query, q0, and writes what `body` makes of the arguments."""
    (folder / "queries_flink.py").write_text('QUERIES = {\n    "q0": (),\n}\n')
    script = folder / "run_flink.py"
    script.write_text(f"import json, sys\nout = sys.argv[sys.argv.index('--json') + 1]\n{body}\n")
    return FlinkPeer(Path(sys.executable), script, folder)


def test_a_rate_is_of_the_rows_that_the_large_size_has_more(tmp_path: Path) -> None:
    run = '{"runs": {"q0": {"rates": [2000], "cpu_rates": [1000]}}}'
    found = peer(tmp_path, f"open(out, 'w').write('{run}')").rate(Q0, SMALL, LARGE, writes=False)
    assert found == Measured(4_000, 2.0, 4.0)


def test_a_query_that_failed_says_why(tmp_path: Path) -> None:
    run = '{"runs": {"q0": {"rates": [], "error": "no such table\\\\nat line 1"}}}'
    assert (
        peer(tmp_path, f"open(out, 'w').write('{run}')").rate(Q0, SMALL, LARGE, writes=False)
        == "Flink failed: no such table"
    )


def test_a_script_that_ends_without_figures_is_shown(tmp_path: Path) -> None:
    found = peer(tmp_path, "sys.exit('cluster did not start')").rate(Q0, SMALL, LARGE, writes=False)
    assert found == "Flink failed: cluster did not start"


def test_a_query_that_flink_does_not_have_is_named(tmp_path: Path) -> None:
    assert (
        peer(tmp_path, "").rate(nexmark_queries()[6], SMALL, LARGE, writes=False) == "there is no such query for Flink"
    )


def test_flink_writes_json_and_says_which_change_it_is_where_results_change(tmp_path: Path) -> None:
    """The module stands for Flink's: it keeps the statements, and refuses changes in plain JSON in Flink's words."""
    (tmp_path / "pyflink").mkdir()
    (tmp_path / "pyflink" / "table.py").write_text(
        "class TableEnvironment:\n"
        "    seen = []\n"
        "    def execute_sql(self, statement):\n"
        "        self.seen.append(statement)\n"
        "        if 'GROUP BY' in statement and \"'format'='json'\" in self.seen[-2]:\n"
        "            raise ValueError(\"Table sink 'sink' doesn't support consuming update changes\")\n"
    )
    body = """
from pyflink.table import TableEnvironment
environment = TableEnvironment()
for insert in ('INSERT INTO sink SELECT a FROM t', 'INSERT INTO sink SELECT a FROM t GROUP BY a'):
    environment.execute_sql("CREATE TABLE sink (a INT) WITH ('connector'='blackhole')")
    environment.execute_sql(insert)
figures = {'rates': [2000], 'cpu_rates': [1000], 'statements': environment.seen}
open(out, 'w').write(json.dumps({'runs': {'q0': figures}}))
"""
    found = peer(tmp_path, body).rate(Q0, SMALL, LARGE, writes=True)
    assert found == Measured(4_000, 2.0, 4.0)
    statements = json.loads((tmp_path / "flink.json").read_text())["runs"]["q0"]["statements"]
    into = f"CREATE TABLE sink (a INT) WITH ('connector'='filesystem', 'path'='file://{tmp_path / 'flink-results'}', "
    assert statements == [
        into + "'format'='json')",
        "INSERT INTO sink SELECT a FROM t",
        into + "'format'='json')",
        "INSERT INTO sink SELECT a FROM t GROUP BY a",
        "DROP TABLE sink",
        into + "'format'='debezium-json')",
        "INSERT INTO sink SELECT a FROM t GROUP BY a",
    ]


def test_nothing_is_measured_where_the_script_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "generator_path", lambda: tmp_path / "nexmark" / "generate.py")
    (line,) = flink_lines(NexmarkOptions(1_000, 1.0, 2, 7), tmp_path)
    assert line.what == f"Flink: not measured, there is no {tmp_path / 'peers' / 'run_flink.py'}"
