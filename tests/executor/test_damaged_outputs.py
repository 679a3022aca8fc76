"""A query whose last transaction cannot end, because a partition that it wrote to is gone, says which one."""

from __future__ import annotations

import shutil
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from hand_plans import count_plan, rows

from millstream.executor.queries.query import QueryRuntime
from millstream.executor.spark.alignment import take_from_spark
from millstream.logcore.errors import CorruptLog, LogUnavailable
from millstream.logcore.log import Log, open_log


@pytest.mark.parametrize("by_the_server", [False, True])  # which looks whether the query ran on Spark
def test_the_partition_is_named_and_not_only_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_the_server: bool
) -> None:
    replicas = tmp_path / "log" / "replicas"
    with closing(open_log(tmp_path / "log", sync="never")) as log:
        for topic in ("input", "counts"):
            log.create_topic(topic, 1)
        log.append("input", 0, rows([("a", {"V": 1, "W": "w"}, 1)]))
        before = set(replicas.iterdir())
        log.append("counts", 0, rows([("a", {"N": 0, "S": 0}, 1)]))  # the first record makes the folder
        (folder,) = set(replicas.iterdir()) - before
        with closing(QueryRuntime(count_plan(), log, tmp_path / "state")) as runtime:
            assert runtime.step()
    shutil.rmtree(folder)

    def waits(log: Log, transactional_id: str) -> None:
        raise LogUnavailable(f'cannot take the transactional id "{transactional_id}": concurrent transactions')

    with closing(open_log(tmp_path / "log", sync="never")) as log:
        monkeypatch.setattr(Log, "transactional_producer", waits)
        take_over = partial(take_from_spark, count_plan(), log, {}) if by_the_server else None
        with pytest.raises(CorruptLog, match='partition 0 of topic "counts" cannot be opened'):
            QueryRuntime(count_plan(), log, tmp_path / "state", take_over=take_over)
