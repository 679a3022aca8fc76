"""The state of a query takes the room of its rows, not of all that were ever written."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hand_plans import count_plan

from millstream.executor.state import state_file
from millstream.executor.state.connection import MEMORY, EngineSettings
from millstream.executor.state.databases import SharedDatabases
from millstream.executor.state.state_file import StateFile, open_state
from millstream.executor.state.store import StateStore
from millstream.sql.types import BIGINT, INTEGER, STRING

KEYS, STEPS, DEAD_MAX = 50, 60, 200


def opened(folder: Path | None) -> tuple[StateFile, StateStore]:
    state = open_state(folder, count_plan(), 0, {}, EngineSettings())
    return state, StateStore(state.connection, "a", {"_part": INTEGER, "k0": STRING, "_ws": BIGINT}, {"n": BIGINT})


def write_window(state: StateFile, store: StateStore, start: int, keys: int) -> None:
    """A commit with as many rows of this window, and the end of those before."""
    state.connection.execute("BEGIN")
    store.write(
        pa.table(
            {
                "_part": pa.array([0] * keys, pa.int32()),
                "k0": [f"k{key}" for key in range(keys)],
                "_ws": pa.array([start] * keys, pa.int64()),
                "n": pa.array([1] * keys, pa.int64()),
            }
        )
    )
    store.expire(0, "_ws", start)
    store.settle()
    rows = sum(each.rows.num_rows for each in store.take_changes())
    state.commit({0: start + 1}, rows)


def in_table(state: StateFile) -> int:
    """With those that DuckDB has not cleared away."""
    sizes = "SELECT max(estimated_size) FROM duckdb_tables() WHERE database_name = current_database()"
    ((rows,),) = state.connection.execute(sizes).fetchall()
    return rows


@pytest.mark.parametrize("in_memory", [False, True])
def test_rows_that_have_expired_take_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool) -> None:
    # Without a checkpoint the table has 3,000 rows in the end. DuckDB's own comes after 16 MB of a write-ahead log: in
    # a soak of ten minutes the state of a join had 45,000 rows, of which 600 were alive. In memory it never comes.
    monkeypatch.setattr(state_file, "_DEAD_ROWS_MAX", DEAD_MAX)
    state, store = opened(None if in_memory else tmp_path / "state")
    with closing(state):
        for step in range(STEPS):
            write_window(state, store, step, KEYS)
        assert len(store) == KEYS
        assert in_table(state) <= 2 * (DEAD_MAX + 2 * KEYS)  # what was written since the last but one checkpoint


def test_a_large_state_is_not_written_again_for_a_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint costs as much as the state is large, so the rows written since the last one have to be as many."""
    monkeypatch.setattr(state_file, "_DEAD_ROWS_MAX", DEAD_MAX)
    state, store = opened(tmp_path / "state")
    with closing(state):
        for _ in range(20):
            write_window(state, store, 0, 500)
        checkpoints = 0
        counted = StateFile._rows

        def count(it: StateFile, connection: duckdb.DuckDBPyConnection) -> int:
            nonlocal checkpoints
            checkpoints += 1
            return counted(it, connection)

        monkeypatch.setattr(StateFile, "_rows", count)
        for _ in range(20):
            write_window(state, store, 0, KEYS)
        assert checkpoints <= 2


def test_queries_that_share_an_instance_do_not_fail_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who lists tables is in the databases of all queries of the instance, and DuckDB refuses a checkpoint then."""
    monkeypatch.setattr(state_file, "_DEAD_ROWS_MAX", DEAD_MAX)
    shared, ends = SharedDatabases(None), threading.Event()

    def list_tables() -> None:
        with closing(shared.open(MEMORY, EngineSettings()).connection) as connection:
            while not ends.is_set():
                connection.execute("SELECT count(*) FROM duckdb_tables()").fetchall()

    others = [threading.Thread(target=list_tables) for _ in range(2)]
    for other in others:
        other.start()
    state = open_state(None, count_plan(), 0, {}, EngineSettings(), open_database=shared.open)
    store = StateStore(state.connection, "a", {"_part": INTEGER, "k0": STRING, "_ws": BIGINT}, {"n": BIGINT})
    with closing(state):
        try:
            for step in range(3 * STEPS):
                write_window(state, store, step, KEYS)
        finally:
            ends.set()
            for other in others:
                other.join()
        for step in range(3 * STEPS, 4 * STEPS):
            write_window(state, store, step, KEYS)
        assert len(store) == KEYS
        assert in_table(state) <= 2 * (DEAD_MAX + 2 * KEYS)
