"""EMIT FINAL: which windows are given when time jumps."""

from __future__ import annotations

import pytest

from millstream.testing import Sandbox


@pytest.mark.parametrize(
    ("lossy", "window", "given"),
    [
        ("false", "SIZE 10 SECONDS", [0, 20_000]),
        ("true", "SIZE 10 SECONDS", [20_000]),
        ("true", "SIZE 10 SECONDS, RETENTION 1 HOUR", [0, 20_000]),
    ],
)
def test_a_window_that_is_older_than_its_retention_is_lost_only_where_that_is_asked_for(
    lossy: str, window: str, given: list[int]
) -> None:
    with Sandbox(properties={"millstream.emit.final.lossy": lossy}) as sandbox:
        sandbox.create_topic("s")
        sandbox.execute("CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', format='JSON');")
        sandbox.execute(
            f"CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s WINDOW TUMBLING ({window}) GROUP BY k EMIT FINAL;"
        )
        for time in (1_000, 25_000, 30_000):  # the second closes a window two windows before its own
            sandbox.produce("s", "a", {"V": 1}, timestamp=time)
        sandbox.drain()
        windows = [record["window"] for record in sandbox.consume("T")]
        assert [window["start"] for window in windows if window is not None] == given
