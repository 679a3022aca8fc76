"""A store that is rebuilt from a changelog that was compacted meanwhile is the store that wrote it."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from drawn import drawn

from millstream.executor.errors import ForeignState
from millstream.executor.queries.query_log import STATE_CONFIG
from millstream.executor.state.changelog import changelog_records, replay
from millstream.executor.state.store import StateStore
from millstream.logcore.client import RowRecords
from millstream.logcore.log import Log, open_log
from millstream.sql.types import BIGINT, INTEGER, STRING

TASKS = 2
NAMES = ("windows", "times")


def stores(*, names_expired: bool = False) -> dict[str, StateStore]:
    connection = duckdb.connect()
    windows = StateStore(connection, "windows", {"_part": INTEGER, "k0": STRING, "_ws": BIGINT}, {"n": BIGINT})
    times = StateStore(connection, "times", {"_part": INTEGER}, {"t": BIGINT})
    windows.names_expired = times.names_expired = names_expired
    return {store.name: store for store in (windows, times)}


def work(kept: dict[str, StateStore], chance: random.Random, time: int) -> None:
    """One batch: rows of a few keys in the windows of now, some deletions, and what has closed goes."""
    names = ["a", "b", None, "a:1"]
    keys = {(chance.randrange(TASKS), chance.choice(names), time + chance.randrange(3)) for _ in range(4)}
    rows = pa.table(
        {
            "_part": pa.array([part for part, _, _ in keys], pa.int32()),
            "k0": pa.array([key for _, key, _ in keys], pa.string()),
            "_ws": pa.array([window for _, _, window in keys], pa.int64()),
            "n": pa.array([time] * len(keys), pa.int64()),
        }
    )
    gone = pa.array([chance.random() < 0.2 for _ in keys], pa.bool_())
    kept["windows"].change(rows.append_column("_deleted", gone))
    for part in range(TASKS):
        kept["times"].write(pa.table({"_part": pa.array([part], pa.int32()), "t": [time]}))
        if chance.random() < 0.3:
            kept["windows"].expire(part, "_ws", time - 2)


def restored(log: Log) -> dict[str, StateStore]:
    found = stores()
    for partition in range(TASKS):
        for changes, _ in replay(log, "changelog", partition, 0, found):
            found[changes.store].restore(changes.rows)
    return found


@pytest.mark.parametrize("columnar", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize("seed", range(drawn(2)))
def test_a_store_comes_back_from_a_compacted_changelog_of_bounded_size(
    tmp_path: Path, seed: int, columnar: bool
) -> None:
    chance, kept, now_s = random.Random(seed), stores(names_expired=not columnar), 1e9 * 2
    config = {**STATE_CONFIG, "segment.bytes": "4096", "delete.retention.ms": "1000"}
    sizes: list[int] = []
    with open_log(tmp_path / "log", clock=lambda: now_s, sync="never") as log:
        log.create_topic("changelog", TASKS, config)
        for time in range(160):
            now_s += 0.1
            work(kept, chance, time)
            changes = [change for name in NAMES for change in kept[name].take_changes()]
            for partition, records in changelog_records(changes, TASKS, columnar=columnar):
                log.append("changelog", partition, records)
            if time % 20 == 19:
                log.keep_house()
                sizes.append(
                    sum(log.served.partition("changelog", partition).size_on_disk for partition in range(TASKS))
                )
                found = restored(log)
                for part in range(TASKS):
                    kept["windows"].expire(part, "_ws", time - 2)
                    found["windows"].expire(part, "_ws", time - 2)
                for name in NAMES:
                    assert found[name].rows().equals(kept[name].rows())
        assert not log.problems()
    assert max(sizes[5:]) < 2 * max(sizes[:5]), "what has expired is not kept"


def test_records_of_strangers_are_refused(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", sync="never") as log:
        log.create_topic("changelog", TASKS, STATE_CONFIG)
        schema = pa.schema([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
        log.append("changelog", 0, RowRecords(pa.table({"timestamp": [0], "key": [b"k"], "value": [b"v"]}, schema)))
        with pytest.raises(ForeignState, match="names no store"):
            restored(log)


def test_rows_of_other_columns_are_refused(tmp_path: Path) -> None:
    before = StateStore(duckdb.connect(), "times", {"_part": INTEGER}, {"t": STRING})
    before.write(pa.table({"_part": pa.array([0], pa.int32()), "t": ["noon"]}))
    with open_log(tmp_path / "log", sync="never") as log:
        log.create_topic("changelog", TASKS, STATE_CONFIG)
        for partition, records in changelog_records(before.take_changes(), TASKS, columnar=False):
            log.append("changelog", partition, records)
        with pytest.raises(ForeignState, match="other columns"):
            restored(log)
