"""Functions OVER partitions: what is left of the changes is the batch query's answer, wherever batches end."""

from __future__ import annotations

from decimal import Context, Decimal
from random import Random
from typing import Any

import pytest
from drawn import drawn
from pipelines import open_pipeline, rows_of
from planned import added_up, batch_answer, changes, plan_of, random_ends, same_rows, table_of

from millstream.executor.figures import Meters
from millstream.executor.partitioning import RekeyPartitioner
from millstream.planner.steps.sink import Sink

STREAM = "CREATE STREAM s (k STRING KEY, a INT, x INT, d DOUBLE) WITH (kafka_topic='s', format='JSON', partitions=3);"
TABLE = (
    "CREATE TABLE s (k STRING PRIMARY KEY, a INT, x INT, d DOUBLE) WITH (kafka_topic='s', format='JSON', partitions=1);"
)
_EXACT = Context(prec=80)
COLUMNS = {"k": "VARCHAR", "a": "INTEGER", "x": "INTEGER", "d": "DOUBLE", "ts": "BIGINT"}

CALLS = {
    "row numbers": (
        "ROW_NUMBER() OVER (PARTITION BY a ORDER BY x DESC)",
        "row_number() over (partition by a order by x desc nulls last, n)",
    ),
    "ranks": ("RANK() OVER (PARTITION BY a ORDER BY x)", "rank() over (partition by a order by x nulls last)"),
    "dense ranks, NULLs first": (
        "DENSE_RANK() OVER (PARTITION BY a ORDER BY x DESC NULLS FIRST)",
        "dense_rank() over (partition by a order by x desc nulls first)",
    ),
    "numbers by arrival": ("ROW_NUMBER() OVER (PARTITION BY a)", "row_number() over (partition by a order by n)"),
    "one partition": (
        "ROW_NUMBER() OVER (ORDER BY x, k)",
        "row_number() over (order by x nulls last, k nulls last, n)",
    ),
    "two keys": ("RANK() OVER (PARTITION BY a, k ORDER BY ROWTIME)", "rank() over (partition by a, k order by ts)"),
    "an expression": (
        "RANK() OVER (PARTITION BY a % 2 ORDER BY x * -1)",
        "rank() over (partition by a % 2 order by x * -1 nulls last)",
    ),
    "moving sums": (
        "SUM(x) OVER (PARTITION BY a ORDER BY ROWTIME ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
        "cast(sum(x) over (partition by a order by ts, n rows between 2 preceding and current row) as bigint)",
    ),
    "sums so far": (
        "SUM(x) OVER (PARTITION BY a ORDER BY ROWTIME)",
        "cast(sum(x) over (partition by a order by ts) as bigint)",
    ),
    "averages of ten": (
        "AVG(x) OVER (PARTITION BY k ORDER BY ROWTIME ROWS 10 PRECEDING)",
        "avg(x) over (partition by k order by ts, n rows 10 preceding)",
    ),
    "counts with conditions": (
        "COUNT(*) FILTER (WHERE x > 2) OVER (PARTITION BY a)",
        "count(*) filter (where x > 2) over (partition by a)",
    ),
    "distinct values": ("COUNT(DISTINCT x) OVER (PARTITION BY a)", "count(distinct x) over (partition by a)"),
    "sums of a distance": (
        "SUM(x) OVER (PARTITION BY a ORDER BY ROWTIME RANGE BETWEEN INTERVAL 3 MILLISECONDS PRECEDING AND CURRENT ROW)",
        "cast(sum(x) over (partition by a order by ts range between 3 preceding and current row) as bigint)",
    ),
    "equal values on both sides": (
        "COUNT(*) OVER (PARTITION BY a ORDER BY x DESC RANGE BETWEEN 1 PRECEDING AND 1.5 FOLLOWING)",
        "count(*) over (partition by a order by x desc nulls last range between 1 preceding and 1 following)",
    ),
    "a distance before, in doubles": (
        "SUM(x) OVER (PARTITION BY k ORDER BY d NULLS FIRST RANGE BETWEEN 1 PRECEDING AND 0.5 PRECEDING)",
        (
            "cast(sum(x) over (partition by k order by d nulls first "
            "range between 1::double preceding and 0.5::double preceding) as bigint)"
        ),
    ),
    "up to those that are equal": (
        "MAX(d) OVER (PARTITION BY a ORDER BY x, k RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
        "max(d) over (partition by a order by x nulls last, k range between unbounded preceding and current row)",
    ),
    "a distance to the end": (
        (
            "COUNT(DISTINCT x) FILTER (WHERE x > 0) OVER "
            "(ORDER BY ROWTIME RANGE BETWEEN 4 PRECEDING AND UNBOUNDED FOLLOWING)"
        ),
        "count(distinct x) filter (where x > 0) over (order by ts range between 4 preceding and unbounded following)",
    ),
    "values of equal rows as they came": (
        (
            "STRUCT(f := FIRST_VALUE(k) OVER (PARTITION BY a ORDER BY x RANGE BETWEEN 1 PRECEDING AND CURRENT ROW), "
            "l := LAST_VALUE(k) OVER (PARTITION BY a ORDER BY x RANGE UNBOUNDED PRECEDING), "
            "n := NTH_VALUE(k, 2) OVER (PARTITION BY a ORDER BY x DESC RANGE CURRENT ROW))"
        ),
        (
            "{'F': first_value(k order by x nulls last, n) over (partition by a order by x nulls last range between 1 "
            "preceding and current row), 'L': last_value(k order by x nulls last, n) over (partition by a order by x "
            "nulls last range unbounded preceding), 'N': nth_value(k, 2 order by x desc nulls last, n) over (partition "
            "by a order by x desc nulls last range current row)}"
        ),
    ),
    "values where no frame is named": (
        (
            "STRUCT(f := FIRST_VALUE(k) OVER (PARTITION BY a ORDER BY x), "
            "l := LAST_VALUE(k) OVER (PARTITION BY a ORDER BY x), "
            "n := NTH_VALUE(k, 2) OVER (PARTITION BY a ORDER BY x DESC), w := LAST_VALUE(k) OVER (PARTITION BY a))"
        ),
        (
            "{'F': first_value(k order by x nulls last, n) over (partition by a order by x nulls last), "
            "'L': last_value(k order by x nulls last, n) over (partition by a order by x nulls last), "
            "'N': nth_value(k, 2 order by x desc nulls last, n) over (partition by a order by x desc nulls last), "
            "'W': last_value(k order by n) over (partition by a)}"
        ),
    ),
    "least around": (
        "MIN(d) OVER (PARTITION BY a ORDER BY x ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
        "min(d) over (partition by a order by x nulls last, n rows between 1 preceding and 1 following)",
    ),
    "the value before": (
        "LAG(x, 1, -1) OVER (PARTITION BY a ORDER BY ROWTIME)",
        "lag(x, 1, -1) over (partition by a order by ts, n)",
    ),
    "the value after": (
        "LEAD(k) OVER (PARTITION BY a ORDER BY ROWTIME)",
        "lead(k) over (partition by a order by ts, n)",
    ),
    "parts": (
        "NTILE(3) OVER (PARTITION BY a ORDER BY x)",
        "ntile(3) over (partition by a order by x nulls last, n)",
    ),
    "parts whose number is no number of parts": (
        "NTILE(x - 1) OVER (PARTITION BY a ORDER BY ROWTIME)",
        "ntile(case when x > 1 then x - 1 end) over (partition by a order by ts, n)",
    ),
    "shares": (
        "PERCENT_RANK() OVER (PARTITION BY a ORDER BY x) + CUME_DIST() OVER (PARTITION BY a ORDER BY x)",
        (
            "percent_rank() over (partition by a order by x nulls last) + "
            "cume_dist() over (partition by a order by x nulls last)"
        ),
    ),
    "values of a frame": (
        (
            "STRUCT(f := FIRST_VALUE(x) OVER (PARTITION BY a ORDER BY ROWTIME), "
            "n := NTH_VALUE(k, 2) OVER (PARTITION BY a ORDER BY ROWTIME ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED "
            "FOLLOWING), l := LAST_VALUE(x) OVER (PARTITION BY a ORDER BY ROWTIME ROWS 1 PRECEDING))"
        ),
        (
            "{'F': first_value(x) over (partition by a order by ts, n), 'N': nth_value(k, 2) over (partition by a "
            "order by ts, n rows between unbounded preceding and unbounded following), "
            "'L': last_value(x) over (partition by a order by ts, n rows 1 preceding)}"
        ),
    ),
    "several partitions": (
        "RANK() OVER (PARTITION BY a ORDER BY x) * 100 + COUNT(*) OVER (PARTITION BY k)",
        "rank() over (partition by a order by x nulls last) * 100 + count(*) over (partition by k)",
    ),
    "equal rows of several partitions": (
        (
            "STRUCT(b := LEAD(x) OVER (PARTITION BY a ORDER BY x), "
            "n := ROW_NUMBER() OVER (PARTITION BY a, d ORDER BY x), "
            "l := LAST_VALUE(k) OVER (PARTITION BY a, d ORDER BY x RANGE CURRENT ROW), "
            "t := NTILE(2) OVER (PARTITION BY a, x))"
        ),
        (
            "{'B': lead(x) over (partition by a order by x nulls last, n), "
            "'N': row_number() over (partition by a, d order by x nulls last, n), "
            "'L': last_value(k order by n) over (partition by a, d order by x nulls last range current row), "
            "'T': ntile(2) over (partition by a, x order by n)}"
        ),
    ),
}


def random_rows(rng: Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "k": rng.choice(("p", "q", "r", "u")),
            "a": rng.choice((1, 2, 3, None)),
            "x": rng.choice((0, 1, 2, 3, 4, None)),
            "d": rng.choice((0.5, 1.25, None)),
            "ts": rng.randrange(20),
            "part": rng.randrange(3),
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("name", CALLS)
def test_over_a_stream_the_changes_add_up_to_the_batch_answer(name: str) -> None:
    written, reference = CALLS[name]
    plan = plan_of(f"{STREAM} CREATE TABLE t AS SELECT k AS k, a, x, {written} AS result FROM s;")
    rng = Random(name)
    for _ in range(drawn(1)):
        rows = random_rows(rng, rng.randrange(40))
        ends = random_ends(rng, len(rows))
        found = added_up(changes(plan, rows, ends, restart_at=rng.choice((None, len(ends)))))
        wanted = batch_answer(rows, f"SELECT k, a, x, {reference} AS result FROM rows", COLUMNS)
        same_rows([{c: row[c] for c in ("K", "A", "X", "RESULT")} for row in found], wanted)


@pytest.mark.parametrize("name", CALLS)
def test_over_a_table_replaced_and_deleted_rows_are_taken_back(name: str) -> None:
    written, reference = CALLS[name]
    plan = plan_of(f"{TABLE} CREATE TABLE t AS SELECT k, a, x, {written} AS result FROM s;")
    rng = Random(name)
    for _ in range(drawn(1)):
        rows = random_rows(rng, rng.randrange(40))
        for row in rows:
            row["part"] = 0
            if rng.random() < 0.2:
                for column in ("a", "x", "d"):
                    row.pop(column)  # a tombstone
        found = added_up(changes(plan, rows, random_ends(rng, len(rows))))
        left = sorted((row for row in {row["k"]: row for row in rows}.values() if "a" in row), key=lambda row: row["k"])
        wanted = batch_answer(left, f"SELECT k, a, x, {reference} AS result FROM rows", COLUMNS)
        same_rows(found, wanted)
        assert len({row["K"] for row in found}) == len(found)


@pytest.mark.parametrize("condition", ["", " QUALIFY rn <= 2"])
@pytest.mark.parametrize("source", [STREAM.replace("partitions=3", "partitions=1"), TABLE])
def test_equal_rows_of_a_later_partition_stand_as_they_came(source: str, condition: str) -> None:
    """Also where a row has another result in an earlier partition since then: that of p changes with r."""
    calls = "LEAD(k) OVER (PARTITION BY a ORDER BY k) AS l, ROW_NUMBER() OVER (PARTITION BY x ORDER BY d) AS rn"
    plan = plan_of(f"{source} CREATE TABLE t AS SELECT k, {calls} FROM s{condition};")
    rows = [{"k": k, "a": a, "x": 0, "d": None, "ts": 0, "part": 0} for k, a in (("p", 1), ("q", 2), ("r", 1))]
    wanted = [("p", "r", 1), ("q", None, 2), ("r", None, 3)]
    for ends in ([], [1], [2], [1, 2]):
        found = added_up(changes(plan, rows, ends, restart_at=len(ends)))
        assert sorted((row["K"], row["L"], row["RN"]) for row in found) == wanted[: 2 if condition else 3]


def test_equal_rows_of_a_table_stand_by_their_keys_whatever_was_replaced() -> None:
    frame = "PARTITION BY a ORDER BY x RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    plan = plan_of(f"{TABLE} CREATE TABLE t AS SELECT k, d, FIRST_VALUE(k) OVER ({frame}) AS f FROM s;")
    rows = [{"k": k, "a": 1, "x": 0, "d": d, "ts": 0, "part": 0} for k, d in (("p", 1.0), ("q", 1.0), ("p", 2.0))]
    for ends in ([], [1], [2], [1, 2]):
        assert {row["F"] for row in added_up(changes(plan, rows, ends))} == {"p"}


def counts(call: str, rows: list[dict[str, Any]]) -> list[int]:
    plan = plan_of(f"{STREAM} CREATE TABLE t AS SELECT k, {call} AS n FROM s;")
    whole = [{"a": 1, "x": 0, "d": 0.0, "ts": 0, "part": 0, "k": f"{i}", **row} for i, row in enumerate(rows)]
    return [row["N"] for row in sorted(added_up(changes(plan, whole)), key=lambda row: row["K"])]


def test_distances_between_doubles_are_not_rounded() -> None:
    call = "COUNT(*) OVER (ORDER BY d RANGE BETWEEN 0.25 PRECEDING AND CURRENT ROW)"
    assert counts(call, [{"d": 1.0}, {"d": 1.25}, {"d": 1.4}]) == [1, 2, 2]


def test_a_distance_beyond_the_largest_integer_is_no_error() -> None:
    last = "CAST(x AS BIGINT) + 9223372036854775805"
    call = f"COUNT(*) OVER (ORDER BY {last} RANGE BETWEEN CURRENT ROW AND 10 FOLLOWING)"
    assert counts(call, [{"x": 0}, {"x": 1}, {"x": 2}]) == [3, 2, 1]


@pytest.mark.parametrize("rank", ["ROW_NUMBER", "RANK", "DENSE_RANK"])
@pytest.mark.parametrize("condition", ["rn <= 3", "rn = 1", "rn < 3 AND x > 1", "2 >= rn"])
def test_the_first_rows_of_each_partition_are_the_batch_answers(rank: str, condition: str) -> None:
    plan = plan_of(
        f"{STREAM} CREATE TABLE t AS SELECT * FROM "
        f"(SELECT k, a, x, {rank}() OVER (PARTITION BY a ORDER BY x DESC) AS rn FROM s) q WHERE {condition};"
    )
    ties = ", n" if rank == "ROW_NUMBER" else ""
    reference = f"{rank}() OVER (PARTITION BY a ORDER BY x DESC NULLS LAST{ties})"
    rng = Random(rank + condition)
    for _ in range(drawn(1)):
        rows = random_rows(rng, rng.randrange(60))
        found = table_of(plan, changes(plan, rows, random_ends(rng, len(rows))))
        wanted = batch_answer(
            rows, f"SELECT * FROM (SELECT k, a, x, {reference} AS rn FROM rows) WHERE {condition}", COLUMNS
        )
        same_rows([{c: row[c] for c in ("K", "A", "X", "RN")} for row in found], wanted)


@pytest.mark.parametrize("source", [STREAM, TABLE], ids=["stream", "table"])
def test_select_distinct_has_each_different_row_once(source: str) -> None:
    plan = plan_of(f"{source} CREATE TABLE t AS SELECT DISTINCT a, x % 2 AS odd FROM s WHERE a IS NOT NULL;")
    rng = Random(source)
    for _ in range(drawn(1)):
        rows = random_rows(rng, rng.randrange(60))
        if source == TABLE:
            for row in rows:
                row["part"] = 0
        ends = random_ends(rng, len(rows))
        found = table_of(plan, changes(plan, rows, ends, restart_at=rng.choice((None, len(ends)))))
        left = list({row["k"]: row for row in rows}.values()) if source == TABLE else rows
        same_rows(found, batch_answer(left, "SELECT DISTINCT a, x % 2 AS odd FROM rows WHERE a IS NOT NULL", COLUMNS))


def test_a_row_that_comes_again_gives_nothing() -> None:
    plan = plan_of(f"{STREAM} CREATE TABLE t AS SELECT DISTINCT a FROM s;")
    rows = [{"k": "p", "a": 1, "x": 0, "d": None, "ts": 0}] * 5
    assert len(changes(plan, rows, [1, 2, 3])) == 1


def test_functions_over_partitions_come_after_group_by() -> None:
    plan = plan_of(
        f"{STREAM} CREATE TABLE t AS SELECT a, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC, a) AS r FROM s "
        "GROUP BY a HAVING COUNT(*) > 1 QUALIFY r <= 2;"
    )
    rng = Random(1)
    for _ in range(drawn(1)):
        rows = random_rows(rng, 40)
        found = added_up(changes(plan, rows, random_ends(rng, len(rows))))
        reference = (
            "SELECT a, count(*) AS n, rank() OVER (ORDER BY count(*) DESC, a) AS r FROM rows WHERE a IS NOT NULL "
            "GROUP BY a HAVING count(*) > 1 QUALIFY r <= 2"
        )
        same_rows(found, batch_answer(rows, reference, COLUMNS))


def test_of_a_stream_no_more_rows_are_kept_than_the_filter_asks_for() -> None:
    plan = plan_of(
        f"{STREAM} CREATE TABLE t AS SELECT * FROM "
        "(SELECT a, x, ROW_NUMBER() OVER (PARTITION BY a ORDER BY x DESC) AS rn FROM s) q WHERE rn <= 2;"
    )
    pipeline = open_pipeline(plan, partitioner=RekeyPartitioner())
    (source,) = plan.sources()
    for start in range(0, 300, 50):
        rows = [{"k0": "p", "v0": 1, "v1": i, "v2": 0.0, "ts": i} for i in range(start, start + 50)]
        pipeline.process({source.id: rows_of(source, rows, start)})
    store = next(store for name, store in pipeline.stores.items() if name == "top-1")
    assert sorted(store.rows()["v1"].to_pylist()) == [298, 299]


@pytest.mark.parametrize(
    ("selected", "key"),
    [
        ("a, x, ROW_NUMBER() OVER (PARTITION BY a ORDER BY x) AS rn", "A, RN"),
        ("x, ROW_NUMBER() OVER (PARTITION BY a ORDER BY x) AS rn", "ROW_ID"),
        ("a, x, RANK() OVER (PARTITION BY a ORDER BY x) AS r", "ROW_ID"),
        ("a % 3 AS third, ROW_NUMBER() OVER (PARTITION BY a % 3 ORDER BY x) AS rn", "THIRD, RN"),
    ],
)
def test_the_key_is_what_numbers_the_rows_if_that_is_selected(selected: str, key: str) -> None:
    plan = plan_of(f"{STREAM} CREATE TABLE t AS SELECT {selected} FROM s;")
    assert isinstance(plan.root, Sink)
    assert ", ".join(c.name for c in plan.root.schema.key) == key


WITHIN = "RANGE BETWEEN 6 MILLISECONDS PRECEDING AND 2 MILLISECONDS FOLLOWING GRACE PERIOD 5 MILLISECONDS"


def _in_time(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of one task that are not more than 5 ms behind the largest time before them."""
    latest, kept = -1, list[dict[str, Any]]()
    for row in rows:
        latest = max(latest, row["ts"])
        if row["ts"] >= latest - 5:
            kept.append(row)
    return kept


def test_rows_later_than_the_grace_period_are_not_there_and_nothing_else_changes() -> None:
    calls = f"SUM(x) OVER (ORDER BY ROWTIME {WITHIN}) AS total, FIRST_VALUE(k) OVER (ORDER BY ROWTIME {WITHIN}) AS f"
    plan = plan_of(f"{STREAM} CREATE TABLE t AS SELECT k, x, {calls} FROM s;")
    frame = "order by ts range between 6 preceding and 2 following"
    reference = f"cast(sum(x) over ({frame}) as bigint) as total, first_value(k order by ts, n) over ({frame}) as f"
    rng = Random(5)
    for _ in range(drawn(2)):
        rows = random_rows(rng, rng.randrange(60))
        for i, row in enumerate(rows):
            row["ts"], row["part"] = row["ts"] // 2 + i, 0
        ends = random_ends(rng, len(rows))
        found = added_up(changes(plan, rows, ends, restart_at=rng.choice((None, len(ends)))))
        wanted = batch_answer(_in_time(rows), f"SELECT k, x, {reference} FROM rows", COLUMNS)
        same_rows([{c: row[c] for c in ("K", "X", "TOTAL", "F")} for row in found], wanted)


def test_of_a_frame_with_a_grace_period_only_rows_that_can_be_read_again_are_kept() -> None:
    plan = plan_of(
        f"{STREAM} CREATE TABLE t AS SELECT k, SUM(x) OVER (PARTITION BY k ORDER BY ROWTIME {WITHIN}) AS n FROM s;"
    )
    pipeline = open_pipeline(plan, partitioner=RekeyPartitioner())
    (source,) = plan.sources()
    for start in range(0, 2_000, 50):
        rows = [{"k0": f"{i % 7}", "v0": 1, "v1": 1, "v2": 0.0, "ts": i} for i in range(start, start + 50)]
        pipeline.process({source.id: rows_of(source, rows, start)})
    store = next(store for name, store in pipeline.stores.items() if name.startswith("over") and "v1" in store.value)
    kept_ms = 6 + 2 + 5
    assert sorted(store.rows()["_ts"].to_pylist())[0] >= 1_999 - kept_ms - kept_ms // 4 - 7


@pytest.mark.parametrize("behind", [5, 6])
def test_a_row_just_in_time_counts_and_one_ms_later_it_is_late(behind: int) -> None:
    plan = plan_of(f"{STREAM} CREATE TABLE t AS SELECT k, COUNT(*) OVER (ORDER BY ROWTIME {WITHIN}) AS n FROM s;")
    meters = Meters()
    pipeline = open_pipeline(plan, partitioner=RekeyPartitioner(), meters=meters)
    (source,) = plan.sources()
    rows = [{"k0": k, "v0": 1, "v1": 1, "v2": 0.0, "ts": ts} for k, ts in (("p", 100), ("late", 100 - behind))]
    out = [pipeline.process({source.id: rows_of(source, [row], i)}).rows for i, row in enumerate(rows)]
    assert len(out[1]) == (3 if behind == 5 else 0)  # a row that comes, and one whose result changes
    late = sum(meter.late_rows for meter in meters)
    assert late == (0 if behind == 5 else 1)


def test_the_key_of_a_table_stays_its_key() -> None:
    plan = plan_of(f"{TABLE} CREATE TABLE t AS SELECT a, ROW_NUMBER() OVER (PARTITION BY x ORDER BY d) AS rn FROM s;")
    assert isinstance(plan.root, Sink)
    assert [c.name for c in plan.root.schema.key] == ["K"]


@pytest.mark.parametrize("scale", [0, 2, 38])
def test_a_sum_of_decimals_beyond_38_digits_is_null_and_their_mean_is_exact(scale: int) -> None:
    largest = Decimal(10**38 - 1).scaleb(-scale, _EXACT)
    numbers = f"CAST(CASE WHEN x < 0 THEN '-{largest:f}' WHEN x > 0 THEN '{largest:f}' END AS DECIMAL(38, {scale}))"
    frames = ("PARTITION BY a ORDER BY ROWTIME", "PARTITION BY a ORDER BY ROWTIME ROWS 1 PRECEDING")
    total, distinct = (f"SUM({sort}{numbers}) OVER ({frames[0]})" for sort in ("", "DISTINCT "))
    calls = (
        f"{total} AS s, {distinct} AS d, AVG({numbers}) OVER ({frames[0]}) AS m, SUM({numbers}) OVER ({frames[1]}) AS t"
    )
    plan = plan_of(f"{STREAM} CREATE TABLE t AS SELECT k, {calls} FROM s;")
    rows = [{"k": f"{i}", "a": 1, "x": x, "d": 0.0, "ts": i, "part": 0} for i, x in enumerate((None, 1, 1, -1, -1, -1))]
    found = sorted(added_up(changes(plan, rows, [2])), key=lambda row: row["K"])
    assert [row["S"] for row in found] == [None, largest, None, largest, 0, largest.copy_negate()]
    assert [row["D"] for row in found] == [None, largest, largest, 0, 0, 0]
    assert [row["T"] for row in found] == [None, largest, None, 0, None, None]
    assert [row["M"] for row in found] == pytest.approx(
        [None, *(float(largest) * share for share in (1, 1, 1 / 3, 0, -1 / 5))]
    )
