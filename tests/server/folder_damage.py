"""Random damage to a data folder, and what an engine makes of it: right answers, or an error where operators look.

A prepared folder has sources with known contents, queries over them, a consumer group and the state of all that. A
trial copies it, damages one file, opens an engine, asks everything, appends more and asks again.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
from file_damage import damage_file

from millstream.errors import MillstreamError
from millstream.executor.executor import QueryStatus
from millstream.logcore.client import FetchedRows, RowRecords, TopicPartition
from millstream.logcore.errors import CorruptLog
from millstream.logcore.log import Log
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session

End = Literal["closed", "killed"]
PROPERTIES: Final = {
    "auto.offset.reset": "earliest",
    "millstream.executor": "duckdb",
    "millstream.duckdb.threads": "1",
    "ksql.streams.cache.max.bytes.buffering": "0",
}
_STATEMENTS: Final = """
CREATE TYPE money AS DECIMAL(10, 2);
CREATE STREAM s (id INT KEY, v INT, g STRING) WITH (kafka_topic='s', value_format='JSON', partitions=2);
CREATE TABLE names (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='names', value_format='AVRO', partitions=2);
CREATE TABLE counts AS SELECT g, COUNT(*) AS n, SUM(v) AS total FROM s GROUP BY g;
CREATE STREAM even WITH (value_format='JSON') AS SELECT id, v FROM s WHERE v % 2 = 0;
CREATE STREAM named AS SELECT s.id AS id, s.v AS v, names.name AS name FROM s LEFT JOIN names ON s.id = names.id;
"""
GROUP: Final = "app"
_COMMITTED: Final = {TopicPartition("s", 0): 7, TopicPartition("s", 1): 9}
_WAIT_S: Final = 60.0
_PULLED: Final = ("s", "EVEN", "NAMED", "names")
_ADVICE: Final = ("RESET", "accept-loss", "from a backup")

Row = tuple[int, int, str]  # id, v, g


@dataclass(frozen=True, slots=True)
class Prepared:
    """`folder`: as the engine left it; `older`: as it was half way. `rows`: what the stream holds, in order."""

    folder: Path
    older: Path
    rows: list[Row]
    catalog: Any
    ends: Mapping[TopicPartition, int]


@dataclass(slots=True)
class Trial:
    """What became of one damaged folder. `wrong`: answers that were neither right nor an error."""

    what: str
    wrong: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def prepare(folder: Path, end: End) -> Prepared:
    """A folder that was closed properly, or one whose process was killed while its queries waited for more."""
    engine = _open(folder)
    session = Session()
    engine.execute(_STATEMENTS, session)
    assert isinstance(engine.log, Log)
    for topic in ("s", "COUNTS", "EVEN", "NAMED", "_millstream-CTAS_COUNTS_3-changelog"):
        if topic in engine.log.topics():
            config = {**engine.log.topics()[topic].config, "segment.bytes": "2048"}
            engine.log.alter_topic(topic, config)
    for number in range(5):
        engine.execute(f"INSERT INTO names (id, name) VALUES ({number}, 'name {number}');", session)
    _wait_for_queries(engine)
    rows: list[Row] = []
    older = folder.with_name(f"{folder.name}-older")
    for part in range(2):
        for step in range(8):
            added = _rows(part * 100 + step * 10, 10)
            _insert(engine, added)
            rows += added
            if step == 4:
                _abort_some(engine)
            if step % 4 == 0:
                engine.log.commit_offsets(GROUP, {at: offset - 1 + part for at, offset in _COMMITTED.items()})
        _wait_for_queries(engine)
        if part == 0:
            shutil.copytree(folder, older)
    catalog = _described(engine)
    ends = {
        TopicPartition(name, number): engine.log.offsets(name, number).log_end_offset
        for name, topic in engine.log.topics().items()
        for number in range(topic.partition_count)
        if not name.startswith("_")
    }
    if end == "killed":
        killed = folder.with_name(f"{folder.name}-killed")
        shutil.copytree(folder, killed)
        engine.close()
        return Prepared(killed, older, rows, catalog, ends)
    engine.close()
    return Prepared(folder, older, rows, catalog, ends)


def try_damage(prepared: Prepared, folder: Path, seed: int) -> Trial:
    """One trial. The folder is removed after it, unless something is wrong."""
    shutil.copytree(prepared.folder, folder)
    chance = random.Random(seed)
    trial = Trial(f"seed {seed}: {damage_one(prepared, folder, chance)}")
    try:
        engine = _open(folder)
    except MillstreamError as error:
        trial.errors.append(f"refused to start: {error.message}")
    else:
        try:
            with engine:
                _check(trial, engine, prepared, chance)
        except MillstreamError as error:
            trial.errors.append(f"at the end: {error.message}")
    if not trial.wrong:
        shutil.rmtree(folder)
    return trial


# Damage


def damage_one(prepared: Prepared, folder: Path, chance: random.Random) -> str:
    """Harms one file, or takes a folder of a partition away; says what it did."""
    if chance.random() < 0.05:
        log = folder / "log"
        path = chance.choice(sorted(path for path in (*log.iterdir(), *log.glob("replicas/*")) if path.is_dir()))
        shutil.rmtree(path)
        return f"{path.relative_to(folder)} removed"
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    path = chance.choice(files)
    kind = damage_file(path, prepared.older / path.relative_to(folder), chance)
    return f"{path.relative_to(folder)} {kind}"


# What an engine answers


def _check(trial: Trial, engine: EmbeddedEngine, prepared: Prepared, chance: random.Random) -> None:
    if _described(engine) != prepared.catalog:
        trial.wrong.append(f"the catalog is {_described(engine)}")
        return
    _check_answers(trial, engine, prepared.rows, pulled=())
    with _noted(trial):
        committed = engine.log.committed_offsets(GROUP)
        if committed != _COMMITTED:
            trial.wrong.append(f"committed offsets are {dict(committed)}")
    added = _rows(900, 20)
    with _noted(trial):
        for at, end in prepared.ends.items():
            if engine.log.offsets(*at).log_end_offset < end:
                trial.wrong.append(f"{at} ends at {engine.log.offsets(*at)} in place of {end}")
        _insert(engine, added)
        _check_answers(trial, engine, [*prepared.rows, *added], pulled=("COUNTS", chance.choice(_PULLED)))


def _check_answers(trial: Trial, engine: EmbeddedEngine, rows: list[Row], pulled: tuple[str, ...]) -> None:
    """In: `pulled`: what is asked by pull queries too: each of these takes a DuckDB of its own."""
    broken = _wait_for_queries(engine)
    trial.errors += broken.values()
    for text in broken.values():
        if not any(advice in text for advice in _ADVICE):
            trial.wrong.append(f"an error does not say what to do: {text}")
    truth = _truth(rows)
    for name in ("s", "COUNTS", "EVEN", "NAMED"):
        if not any(name in query_id for query_id in broken):
            with _noted(trial):
                _compare(trial, f"topic {name}", _held(engine, name), truth[name])
    for name in pulled:
        if not any(name in query_id for query_id in broken):
            with _noted(trial):
                _compare(trial, f"SELECT * FROM {name}", Counter(_pull(engine, name)), truth[name])


def _truth(rows: list[Row]) -> dict[str, Counter[Any]]:
    groups: dict[str, tuple[int, int]] = {}
    for _, v, g in rows:
        n, total = groups.get(g, (0, 0))
        groups[g] = (n + 1, total + v)
    return {
        "s": Counter(rows),
        "COUNTS": Counter((g, n, total) for g, (n, total) in groups.items()),
        "EVEN": Counter((id, v) for id, v, _ in rows if v % 2 == 0),
        "NAMED": Counter((id, v, f"name {id}" if id < 5 else None) for id, v, _ in rows),
        "names": Counter((number, f"name {number}") for number in range(5)),
    }


def _compare(trial: Trial, what: str, found: Counter[Any], truth: Counter[Any]) -> None:
    if found != truth:
        trial.wrong.append(f"{what}: {truth - found} is not there, {found - truth} is too much")


@contextmanager
def _noted(trial: Trial) -> Generator[None]:
    """An error is no wrong answer."""
    try:
        yield
    except MillstreamError as error:
        trial.errors.append(error.message)


def _held(engine: EmbeddedEngine, topic: str) -> Counter[Any]:
    """What the records of a topic say: of a table those that are the last of their key."""
    found: list[tuple[Any, ...]] = []
    for partition in range(engine.log.topics()[topic].partition_count):
        position, fetched = -1, engine.log.fetch(topic, partition, 0)
        while fetched.next_offset > position:
            for run in fetched.runs:
                assert isinstance(run, FetchedRows)
                keys, values = run.table["key"].to_pylist(), run.table["value"].to_pylist()
                for key, value in zip(keys, values, strict=True):
                    name = key.decode() if topic == "COUNTS" else int.from_bytes(key, "big")
                    found.append((name, *json.loads(value).values()))
            position = fetched.next_offset
            fetched = engine.log.fetch(topic, partition, position)
    return Counter({row[0]: row for row in found}.values() if topic == "COUNTS" else found)


def _pull(engine: EmbeddedEngine, name: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values) for row in engine.query(f"SELECT * FROM {name};", Session())]


def _described(engine: EmbeddedEngine) -> Any:
    catalog = engine.catalog
    return (
        sorted(catalog.sources),
        sorted(catalog.queries),
        sorted(catalog.types),
        sorted(name for name in engine.log.topics() if not name.startswith("__")),
    )


def _rows(first: int, count: int) -> list[Row]:
    return [(n % 7, n, f"g{n % 11}") for n in range(first, first + count)]


def _insert(engine: EmbeddedEngine, rows: list[Row]) -> None:
    ids, values, groups = zip(*rows, strict=True)
    columns = {"id": pa.array(ids, pa.int32()), "v": pa.array(values, pa.int32()), "g": pa.array(groups)}
    engine.insert("S", pa.table(columns), Session())


def _abort_some(engine: EmbeddedEngine) -> None:
    """Records that nobody may ever see."""
    producer = engine.log.transactional_producer("aborts")
    producer.begin()
    for partition in range(2):
        table = pa.table({"timestamp": [0], "key": pa.array([b"1"]), "value": pa.array([b'{"V":1000,"G":"aborted"}'])})
        producer.append("s", partition, RowRecords(table))
    producer.abort()


def _open(folder: Path) -> EmbeddedEngine:
    return open_engine(folder, PROPERTIES)


def _is_behind(engine: EmbeddedEngine, status: QueryStatus, at: TopicPartition) -> bool:
    """Whether there are records that the query has not read. The markers of transactions count as lag, and are none."""
    if not status.lag[at]:
        return False
    try:
        return bool(engine.log.fetch(*at, status.positions[at]).runs)
    except CorruptLog:
        return True  # it finds that out, too


def _wait_for_queries(engine: EmbeddedEngine) -> dict[str, str]:
    """Returns once each query has read all that there is, or stopped: those, and why."""
    deadline = time.monotonic() + _WAIT_S
    broken: dict[str, str] = {}
    for query_id in engine.catalog.queries:
        while True:
            status = engine.executor.status(query_id)
            if status.state == "ERROR":
                broken[query_id] = f"{query_id}: {status.error}"
                break
            if status.positions and not status.error and not any(map(partial(_is_behind, engine, status), status.lag)):
                break
            if time.monotonic() > deadline:
                broken[query_id] = f"{query_id} does not get on: {status}"
                break
            time.sleep(0.005)
    return broken
