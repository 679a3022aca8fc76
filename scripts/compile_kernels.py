"""Compiles the inner loops of formats, state and operators, which numba keeps on disk for all processes that follow.

Otherwise each process of a run of tests in a new clone compiles what it needs first, all of them the same. A test says
that no loop is left out.

    python -m scripts.compile_kernels            # all
    python -m scripts.compile_kernels --loaded   # only the loops that are compiled when their module is loaded
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from millstream.executor.formats import encoder, warm_up
from millstream.executor.operators.groups.session_course import OpenSessions, course_of
from millstream.executor.state.spilled_rows import SpilledRows
from millstream.executor.windows.placing import placing_of
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec, KeyWindow, WindowSpec
from millstream.sql.functions.aggregation.aggregate_kernels import COMPILED_FROM, GroupEvents, running_max
from millstream.sql.functions.aggregation.aggregates import AGGREGATES
from millstream.sql.types import BIGINT, DOUBLE, INTEGER, STRING
from millstream.testing import Sandbox

_ROWS: Final = COMPILED_FROM
_INSERTED: Final = 8  # one after the other: the statements read each other's output and these rows
_FOLDS: Final = ("COUNT", "SUM", "AVG", "MIN", "LATEST_BY_OFFSET", "STDDEV_SAMPLE", "CORRELATION")
_COMPILED_WHEN_LOADED: Final = ("millstream.logcore.records.bulk", "millstream.logcore.murmur2_bulk")
_STATEMENTS: Final = """
    CREATE STREAM s (k STRING KEY, g STRING, x INT) WITH (kafka_topic='s', format='JSON', partitions=1);
    CREATE TABLE t (k STRING PRIMARY KEY, g STRING, x INT) WITH (kafka_topic='s', format='JSON', partitions=1);
    CREATE TABLE sums AS SELECT g, SUM(x) AS x FROM s WINDOW SESSION (5 SECONDS) GROUP BY g;
    CREATE TABLE counts AS SELECT g, COUNT(*) AS n FROM s WINDOW HOPPING (SIZE 2 SECONDS, ADVANCE BY 1 SECOND)
      GROUP BY g;
    CREATE TABLE different AS SELECT g, COUNT(DISTINCT x) AS x FROM s GROUP BY g;
    CREATE TABLE best AS SELECT g, MAX(x) AS most, MIN(g) AS least, COUNT(DISTINCT x) AS different
      FROM t GROUP BY g;
    CREATE TABLE first AS SELECT k, x, r FROM
      (SELECT k, x, ROW_NUMBER() OVER (PARTITION BY g ORDER BY x) AS r FROM s) q WHERE r <= 2;
    CREATE TABLE first_now AS SELECT k, x, r FROM
      (SELECT k, x, RANK() OVER (PARTITION BY g ORDER BY x, k) AS r FROM t) q WHERE r <= 2;
    CREATE TABLE joined AS SELECT t.k AS k, t.x AS x, best.most AS most FROM t JOIN best ON t.g = best.g;
    CREATE STREAM near AS SELECT s.k AS k, s.x AS x, o.x AS y FROM s JOIN s AS o WITHIN 5 SECONDS ON s.k = o.k;
"""


def main() -> None:
    load()
    warm_up()
    with Sandbox() as sandbox:
        sandbox.execute(_STATEMENTS)
        for number in range(_INSERTED):
            sandbox.produce("s", f"key {number % 7}", {"G": f"group {number % 2}", "X": number % 5}, number)
        sandbox.drain()
    _fold()
    _write_windowed_keys()
    with tempfile.TemporaryDirectory() as folder:
        _lay_aside(Path(folder))


def load() -> None:
    for module in _COMPILED_WHEN_LOADED:
        importlib.import_module(module)


def _fold() -> None:
    """A sandbox runs no batch that is large enough."""
    rows = np.arange(_ROWS, dtype=np.int64)
    group, nothing = np.zeros(_ROWS, np.int64), np.full(_ROWS, -1, np.int64)
    for name, type_ in product(_FOLDS, (INTEGER, BIGINT, DOUBLE)):
        function = AGGREGATES[name]
        fold = function.fold([type_] * (function.arguments or 1), ())
        arguments = [pa.array(rows).cast(parameter.arrow) for parameter in fold.parameter_types]
        fold.run(GroupEvents(group, nothing, rows), arguments, fold.columns_of([fold.initial]), [False], compiled=True)
    running_max(group, rows, np.zeros(1, np.int64))
    course_of(1, group, rows, rows, OpenSessions(group[:0], group[:0], group[:0]), gap_ms=1, until_closed_ms=1)
    placing_of(WindowSpec("TUMBLING", 1_000)).places(rows)


def _write_windowed_keys() -> None:
    keys, starts = pa.array(["a"] * _ROWS), pa.array([0] * _ROWS)
    windowed = encoder(FormatSpec("KAFKA"), [Column("K", STRING)], KeyWindow("TUMBLING", 1_000))
    windowed.encode([keys], window_start=starts)


def _lay_aside(folder: Path) -> None:
    """A query does this only where memory is short."""
    rows = SpilledRows(pa.schema([("text", pa.string())]), folder)
    slots = np.arange(2)
    rows.put(slots, [pa.array(["a", "b"])])
    rows.get(slots, ["text"])


if __name__ == "__main__":
    load() if sys.argv[1:] == ["--loaded"] else main()
