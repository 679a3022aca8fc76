"""Compiles the inner loops of formats, state and operators, which numba keeps on disk for all processes that follow.

Otherwise each process of a run of tests in a new clone compiles what it needs first, all of them the same.

    python -m scripts.compile_kernels
"""

from __future__ import annotations

from typing import Final

from millstream.executor.formats import warm_up
from millstream.testing import Sandbox

_STATEMENTS: Final = """
    CREATE STREAM s (k STRING KEY, g STRING, x INT) WITH (kafka_topic='s', format='JSON', partitions=1);
    CREATE TABLE t (k STRING PRIMARY KEY, g STRING, x INT) WITH (kafka_topic='s', format='JSON', partitions=1);
    CREATE TABLE sums AS SELECT g, SUM(x) AS x FROM s WINDOW SESSION (5 SECONDS) GROUP BY g;
    CREATE TABLE best AS SELECT g, MAX(x) AS most, MIN(x) AS least, COUNT(DISTINCT x) AS different FROM t GROUP BY g;
    CREATE TABLE first AS SELECT k, x, r FROM
      (SELECT k, x, ROW_NUMBER() OVER (PARTITION BY g ORDER BY x) AS r FROM s) q WHERE r <= 2;
    CREATE TABLE first_now AS SELECT k, x, r FROM
      (SELECT k, x, RANK() OVER (PARTITION BY g ORDER BY x) AS r FROM t) q WHERE r <= 2;
    CREATE TABLE joined AS SELECT t.k AS k, t.x AS x, best.most AS most FROM t JOIN best ON t.g = best.g;
"""


def main() -> None:
    warm_up()
    with Sandbox() as sandbox:
        sandbox.execute(_STATEMENTS)
        for number in range(40):
            sandbox.produce("s", f"key {number % 7}", {"G": f"group {number % 2}", "X": number % 5}, number)
        sandbox.drain()


if __name__ == "__main__":
    main()
