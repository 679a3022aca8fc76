"""A bucket's cache of its state: whose it is, and where it lies."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from spark_stages import OnDuckDB, StagedRun, contents, create_topics, plan_of, produce

from millstream.executor.errors import UnsafeFolder
from millstream.executor.queries.duckdb_executor import DuckDBExecutor
from millstream.executor.spark.cache_folder import cache_folder
from millstream.logcore.client import LogClient
from millstream.logcore.log import open_log

QUERY = "group by another column"


def run_elsewhere_then_here(log: LogClient, caches: Path) -> None:
    """So much is done on another host that a cache which is found here looks like one that lags behind."""
    for begin, folder in ((60, None), (200, caches)):
        produce(log, begin, begin + 140)
        run = StagedRun(plan_of(QUERY, "SPARK"), log, f"run-{begin}", folder)
        run.drain()
        run.close()


def test_two_deployments_of_the_same_statements_share_hosts_but_no_state(log: LogClient, tmp_path: Path) -> None:
    caches, other = tmp_path / "caches", open_log(tmp_path / "other", sync="never")
    create_topics(other, "DUCK", "SPARK")
    produce(log, 0, 60)
    first = StagedRun(plan_of(QUERY, "SPARK"), log, "run", caches)
    first.drain()
    first.close()
    run_elsewhere_then_here(other, caches)
    OnDuckDB(plan_of(QUERY, "DUCK"), other).drain()
    assert contents(other, "SPARK") == contents(other, "DUCK") != {}
    other.close()


def test_a_query_that_was_made_anew_begins_without_its_name_sakes_state(log: LogClient, tmp_path: Path) -> None:
    produce(log, 0, 60)
    run = StagedRun(plan_of(QUERY, "SPARK"), log, "run", tmp_path / "caches")
    run.drain()
    run.close()
    DuckDBExecutor(log, None).drop(run.stages.plan.query_id)
    log.delete_topic("SPARK")
    log.create_topic("SPARK", 3)
    run_elsewhere_then_here(log, tmp_path / "caches")
    OnDuckDB(plan_of(QUERY, "DUCK"), log).drain()
    assert contents(log, "SPARK") == contents(log, "DUCK") != {}


def test_a_cache_is_opened_again_by_the_next_run(log: LogClient, tmp_path: Path) -> None:
    names: list[set[Path]] = []
    for number in range(2):
        produce(log, number * 50, number * 50 + 50)
        run = StagedRun(plan_of(QUERY, "SPARK"), log, f"run-{number}", tmp_path / "caches")
        run.drain()
        run.close()
        names.append(set((tmp_path / "caches").rglob("state-*.duckdb*")))
    assert len(names[0]) == 3  # one for each bucket; a file that is made anew has another name
    assert names[1] == names[0]


def test_the_folder_is_this_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_DIRS", raising=False)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    found = cache_folder("CTAS_T_1")
    assert found.parent.parent == tmp_path
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (found, found.parent)} == {0o700}


@pytest.mark.parametrize("prepare", [lambda path: path.chmod(0o770), lambda path: _as_link(path)])
def test_a_folder_of_somebody_else_is_refused(prepare: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_DIRS", raising=False)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    assert callable(prepare)
    prepare(cache_folder("Q").parent)
    with pytest.raises(UnsafeFolder, match="not a folder of this user alone"):
        cache_folder("Q")


def _as_link(path: Path) -> None:
    elsewhere = path.rename(path.with_name("elsewhere"))
    path.symlink_to(elsewhere)
