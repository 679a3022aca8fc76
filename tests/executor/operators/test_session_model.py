"""Session windows beside a model that keeps the rows of each session: random rows, batches that end anywhere."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from drawn import drawn
from pipelines import aggregate, brief, call, expression, open_pipeline, plan, rows_of, shown, stream

from millstream.planner.specs import WindowSpec
from millstream.sql.types import BIGINT, BOOLEAN

VALUE = expression("v0", BIGINT)
CALLS = [
    call("COUNT"),
    call("SUM", VALUE),
    call("MAX", VALUE),
    call("COLLECT_LIST", VALUE),
    replace(call("MIN", VALUE), filter=expression("v0 < 5", BOOLEAN)),
    replace(call("COUNT", VALUE), distinct=True),
    call("LATEST_BY_OFFSET", VALUE),
    call("EARLIEST_BY_OFFSET", VALUE, constants=(2,)),
]
Row = dict[str, Any]


@dataclass(frozen=True)
class Session:
    """The rows' numbers and values, in the order in which sessions became one and rows came."""

    start: int
    end: int
    rows: tuple[tuple[int, int | None], ...]

    @property
    def window(self) -> tuple[int, int]:
        return self.start, self.end

    def results(self) -> tuple[Any, ...]:
        there = [value for _, value in self.rows if value is not None]
        arrived = [value for _, value in sorted(self.rows) if value is not None]
        few = [value for value in there if value < 5]
        return (
            len(self.rows),
            sum(there),
            max(there, default=None),
            [value for _, value in self.rows],
            min(few, default=None),
            len(set(there)),
            arrived[-1] if arrived else None,
            arrived[:2],
        )


@dataclass
class Model:
    gap: int
    grace: int
    emit_old: bool = False
    now: dict[int, int] = field(default_factory=dict)
    sessions: dict[tuple[int, str], list[Session]] = field(default_factory=dict)

    def add(self, row: Row) -> Iterator[tuple[Any, ...]]:
        """What is emitted for each row."""
        part, key, time = row["part"], row["k0"], row["ts"]
        self.now[part] = now = max(self.now.get(part, time), time)
        closed_before = now - self.gap - self.grace
        own = self.sessions.setdefault((part, key), [])
        joined = [
            each
            for each in own
            if each.start <= time + self.gap and each.end >= time - self.gap and each.end >= closed_before
        ]
        start, end = min([time, *(each.start for each in joined)]), max([time, *(each.end for each in joined)])
        if end < closed_before:
            return
        grown = Session(start, end, (*(each for session in joined for each in session.rows), (row["seq"], row["v0"])))
        for each in joined:
            own.remove(each)
            if start < end or self.emit_old:
                yield emitted(key, each, -1)
        own.append(grown)
        own.sort(key=lambda each: (each.end, each.start))
        yield emitted(key, grown, 1)

    def batch(self, rows: Sequence[Row]) -> Iterator[tuple[Any, ...]]:
        """What is emitted where only a batch's last changes are."""
        before = {place: list(own) for place, own in self.sessions.items()}
        last: dict[tuple[int, str], int] = {}
        for number, row in enumerate(rows):
            last[row["part"], row["k0"]] = number
            for _ in self.add(row):
                pass
        for place in sorted(last, key=last.__getitem__):
            old, new = before.get(place, []), self.sessions.get(place, [])
            for each in old:
                if not any(each is other for other in new) and (
                    self.emit_old or each.window not in [other.window for other in new]
                ):
                    yield emitted(place[1], each, -1)
            for each in new:
                if not any(each is other for other in old):
                    yield emitted(place[1], each, 1)


def emitted(key: str, session: Session, weight: int) -> tuple[Any, ...]:
    return (key, *session.window, *session.results(), weight)


def rows_at_random(rng: random.Random, disorder: int, count: int = 400) -> list[Row]:
    """Onwards in time, but up to `disorder` back; few keys, so that sessions meet."""
    keys = [f"key {i}" for i in range(rng.choice([1, 2, 20] if not disorder else [1, 2]))]
    time, rows = 0, list[Row]()
    for number in range(count):
        time += rng.choice([0, 1, 3, 10, 11, 12])
        value = None if rng.random() < 0.1 else rng.randrange(10)
        ts = max(0, time - rng.randrange(disorder + 1))
        rows.append({"k0": rng.choice(keys), "v0": value, "ts": ts, "part": rng.randrange(2), "seq": number})
    return rows


def batches(rng: random.Random, rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Some with fewer rows than are worth a compiled loop, some with more."""
    begin = 0
    while begin < len(rows):
        end = begin + rng.choice([1, 5, 63, 64, 150])
        yield rows[begin:end]
        begin = end


@pytest.mark.parametrize("emit_old", [False, True])
@pytest.mark.parametrize("emit", ["every", "last"])
@pytest.mark.parametrize(("disorder", "graces"), [(0, [0, 7]), (30, [7, 30]), (400, [300]), (400, [100_000])])
@pytest.mark.parametrize("seed", range(drawn(1)))
def test_sessions_are_those_of_the_model(
    seed: int, disorder: int, graces: Sequence[int], emit: str, emit_old: bool
) -> None:
    rng = random.Random(f"{seed} {disorder} {graces} {emit} {emit_old}")
    gap, grace = rng.choice([1, 10, 30]), rng.choice(graces)
    step = aggregate(stream(), CALLS, window=WindowSpec("SESSION", gap, grace_ms=grace), emit_old=emit_old)
    pipeline, model = open_pipeline(plan(step), emit=emit), Model(gap, grace, emit_old)
    for rows in batches(rng, rows_at_random(rng, disorder)):
        wanted = [out for row in rows for out in model.add(row)] if emit == "every" else list(model.batch(rows))
        output = pipeline.process({"source": rows_of(stream(), rows)})
        names = [f"v{i}" for i in range(len(CALLS))]
        assert brief(shown(output), "k0", "_ws", "_we", *names, "_weight") == wanted


@pytest.mark.parametrize("seed", range(drawn(3)))
def test_final_results_are_those_of_the_model(seed: int) -> None:
    rng = random.Random(seed)
    gap, grace = rng.choice([1, 10, 30]), rng.choice([0, 7, 100])
    step = aggregate(stream(), CALLS, window=WindowSpec("SESSION", gap, grace_ms=grace), emit="FINAL")
    pipeline, model = open_pipeline(plan(step), emit="every"), Model(gap, grace)
    found: list[tuple[Any, ...]] = []
    rows = rows_at_random(rng, 100)
    ends = [{"k0": "end", "v0": 0, "ts": 10**9, "part": part, "seq": len(rows) + part} for part in range(2)]
    for batch in [*batches(rng, rows), ends]:
        output = pipeline.process({"source": rows_of(stream(), batch)})
        found += brief(shown(output), "k0", "_ws", "_we", *[f"v{i}" for i in range(len(CALLS))], "_weight")
    for row in rows:
        list(model.add(row))
    wanted = [emitted(key, each, 1) for (_, key), own in model.sessions.items() for each in own]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
