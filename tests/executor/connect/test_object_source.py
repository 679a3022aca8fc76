"""Objects of a store and of a folder: each row of a version once, whenever the task dies."""

from __future__ import annotations

import datetime
import gzip
import os
import random
import shutil
import threading
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from connectors import read_topic
from s3_server import S3Server

from millstream.executor.connect.connector import TaskInfo
from millstream.executor.connect.connector_errors import ConnectorFailed, InvalidConnector
from millstream.executor.connect.connector_sandbox import SOURCE_KILL_POINTS
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.sources.object_source import ObjectSource
from millstream.executor.connect.stores.local_files import LocalFiles
from millstream.executor.connect.task_clock import VirtualClock
from millstream.testing import ConnectorSandbox

PARQUET = pa.table({
    "id": pa.array(range(5), pa.int64()), "price": pa.array([Decimal("1.50")] * 5, pa.decimal128(10, 2)),
    "day": pa.array([datetime.date(1970, 1, 3)] * 5), "raw": pa.array([b"a"] * 5),
    "at": pa.array([datetime.datetime(1970, 1, 1, 0, 0, 1)] * 5, pa.timestamp("us")),
    "names": pa.array([[("a", 1)]] * 5, pa.map_(pa.string(), pa.int32())),
})  # fmt: skip


@dataclass
class Place:
    """Where objects are: `store` is None for a folder. Each write has a later time than the one before."""

    folder: Path
    store: S3Server | None
    writes: int = field(default=0)

    @property
    def config(self) -> dict[str, str]:
        if self.store is None:
            return {"location": str(self.folder)}
        return {"location": f"s3://lake/{self.folder.name}", **self.store.config}

    def sandbox(self, **more: str) -> ConnectorSandbox:
        given = {name.replace("_", "."): value for name, value in more.items()}
        return ConnectorSandbox(ObjectSource, {"topic": "rows", "format": "ndjson", **self.config, **given})

    def put(self, path: str, data: bytes) -> None:
        if self.store is not None:
            self.store.put(f"lake/{self.folder.name}/{path}", data)
            return
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / ".new").write_bytes(data)
        self.writes += 1
        at = 1_700_000_000 + self.writes
        os.utime(file.parent / ".new", (at, at))
        (file.parent / ".new").rename(file)

    def delete(self, path: str) -> None:
        if self.store is None:
            (self.folder / path).unlink()
        else:
            self.store.files().delete_file(f"lake/{self.folder.name}/{path}")


@pytest.fixture
def place(tmp_path: Path, folder_or_store: S3Server | None) -> Place:
    return Place(tmp_path, folder_or_store)


@pytest.fixture
def folder(tmp_path: Path) -> Place:
    return Place(tmp_path, None)


def parquet(ids: range) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": ids, "text": ["x" * 100] * len(ids)}), out, row_group_size=2)
    return out.getvalue().to_pybytes()


def spoilt(at: int) -> bytes:
    """A file that was damaged: forty of its bytes have other values."""
    data = bytearray(parquet(range(5)))
    data[at - 40 : at or None] = bytes([255]) * 40
    return bytes(data)


def lines(*numbers: int) -> bytes:
    return b"".join(b'{"n": %d}\n' % number for number in numbers)


def numbers(box: ConnectorSandbox) -> list[int]:
    return [record.value["n"] for record in box.records("rows")]


def look(box: ConnectorSandbox) -> None:
    box.clock.advance(10_000)
    box.run()


def test_new_objects_are_found_and_old_ones_are_not_read_again(place: Place) -> None:
    place.put("a.json", lines(1, 2))
    place.put("deep/b.json", lines(3))
    with place.sandbox(name_pattern="*.json", key_field="n", key_converter="integer") as box:
        box.run()
        place.put("deep/c.json", lines(4))
        place.put("other.txt", b"not read")
        place.put("_tmp/d.json", lines(0))
        box.run()
        assert sorted(numbers(box)) == [1, 2, 3]
        look(box)
        look(box)
        box.restart()
        look(box)
        assert sorted(numbers(box)) == [1, 2, 3, 4]
        assert {record.key for record in box.records("rows")} == {1, 2, 3, 4}


def test_an_object_that_is_written_again_is_read_again(place: Place) -> None:
    place.put("a.json", lines(1, 2))
    with place.sandbox() as box:
        box.run()
        place.put("a.json", lines(5, 6, 7))
        look(box)
        assert numbers(box) == [1, 2, 5, 6, 7]


def test_an_object_that_is_deleted_is_forgotten(place: Place) -> None:
    place.put("a.json", lines(1))
    place.put("b.json", lines(2))
    with place.sandbox() as box:
        box.run()
        place.delete("a.json")
        place.put("c.json", lines(3))
        look(box)
        assert box.position is not None and sorted(box.position["objects"]) == ["b.json", "c.json"]
        place.put("a.json", lines(1))
        look(box)
        assert sorted(numbers(box)) == [1, 1, 2, 3]


@pytest.mark.parametrize("point", SOURCE_KILL_POINTS)
@pytest.mark.parametrize("nth", [1, 3])
def test_each_row_is_there_once_wherever_the_task_dies(place: Place, point: str, nth: int) -> None:
    place.put("a.json", lines(*range(10)))
    place.put("b.json", lines(*range(10, 15)))
    with place.sandbox(batch_max_rows="4") as box:
        box.kill_at(point, nth)
        box.run()
        place.put("c.json", lines(15))
        look(box)
        assert box.deaths == 1
        assert sorted(numbers(box)) == list(range(16))


def test_rows_are_there_once_after_deaths_at_random(folder: Place) -> None:
    chance, written = random.Random(1), 0
    with folder.sandbox(batch_max_rows="3") as box:
        for n in range(30):
            size = chance.randrange(9)
            folder.put(f"{n}.json", lines(*range(written, written + size)))
            written += size
            box.kill_at(chance.choice(SOURCE_KILL_POINTS), chance.randrange(1, 3))
            look(box)
        assert box.deaths > 10
        assert sorted(numbers(box)) == list(range(written))


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_an_object_that_changes_under_way_is_read_from_its_start(place: Place, deleted: bool, restarted: bool) -> None:
    place.put("a.json", lines(*range(6)))
    settings = read_settings(
        ObjectSource.settings, {"topic": "rows", "format": "ndjson", "batch.max.rows": "4", **place.config}
    )
    clock = VirtualClock()
    source = ObjectSource(settings, TaskInfo("s", clock=clock))
    chunk = source.read(None, 0)
    assert chunk is not None and [record.value["n"] for record in chunk.records] == [0, 1, 2, 3]
    if deleted:
        place.delete("a.json")
        place.put("b.json", lines(9))
    else:
        place.put("a.json", lines(*range(10, 17)))
    if restarted:
        source = ObjectSource(settings, TaskInfo("s", clock=clock))
    found: list[int] = []
    while (chunk := source.read(chunk.position, 10)) is not None:
        found += [record.value["n"] for record in chunk.records]
    assert found == ([9] if deleted else list(range(10, 17)))


def test_an_object_that_vanishes_is_told_and_holds_up_no_other(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between the look and its turn, or half read."""
    for name, first in (("a", 0), ("b", 10), ("c", 20)):
        place.put(f"{name}.json", lines(*range(first, first + 6)))
    settings = read_settings(
        ObjectSource.settings, {"topic": "rows", "format": "ndjson", "batch.max.rows": "4", **place.config}
    )
    source = ObjectSource(settings, TaskInfo("s", clock=VirtualClock()))
    found: list[int] = []
    chunk = source.read(None, 0)
    for name in ("a.json", "b.json"):
        place.delete(name)
    while chunk is not None:
        found += [record.value["n"] for record in chunk.records]
        chunk = source.read(chunk.position, 0)
    assert found == [0, 1, 2, 3, *range(20, 26)]
    said = capsys.readouterr()
    told = said.out + said.err
    assert "deleted while it was read: its other rows are in no topic" in told and "a.json" in told
    assert "deleted before it was read" in told and "b.json" in told


@pytest.mark.parametrize("with_", [None, parquet(range(9))])
def test_parquet_that_is_replaced_while_it_is_read_is_no_broken_file(folder: Place, with_: bytes | None) -> None:
    """In place, so that the file that is open has other data under it."""
    folder.put("a.parquet", parquet(range(5)))
    folder.put("b.parquet", parquet(range(5, 7)))
    settings = read_settings(
        ObjectSource.settings, {"topic": "rows", "format": "parquet", "batch.max.rows": "2", **folder.config}
    )
    source = ObjectSource(settings, TaskInfo("s", clock=VirtualClock()))
    found: list[int] = []
    chunk = source.read(None, 0)
    with (folder.folder / "a.parquet").open("r+b") as file:
        file.truncate(0)
        if with_ is not None:
            file.write(with_)
    if with_ is None:
        folder.delete("a.parquet")
    while chunk is not None:
        found += [record.value["id"] for record in chunk.records]
        chunk = source.read(chunk.position, 0)
    assert sorted(found) == sorted([0, 1, 5, 6, *(range(9) if with_ is not None else ())])


def test_folders_that_come_and_go_disturb_no_look(tmp_path: Path) -> None:
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            for n in range(20):
                (tmp_path / f"day={n}" / "x").mkdir(parents=True)
            for n in range(20):
                shutil.rmtree(tmp_path / f"day={n}")

    (tmp_path / "kept.json").write_bytes(lines(1))
    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(300):
            assert [file.path for file in LocalFiles(str(tmp_path)).files()] == ["kept.json"]
    finally:
        over.set()
        thread.join()


def test_csv_with_quotes_and_gzip(place: Place) -> None:
    place.put("a.csv.gz", gzip.compress(b'id,text\n1,"two\nlines"\n2,"a ""b"""\n'))
    with place.sandbox(format="csv", batch_max_rows="1") as box:
        box.run()
        assert [record.value for record in box.records("rows")] == [
            {"id": "1", "text": "two\nlines"}, {"id": "2", "text": 'a "b"'}]  # fmt: skip


def test_parquet_has_the_values_of_json(place: Place) -> None:
    out = pa.BufferOutputStream()
    pq.write_table(PARQUET, out, row_group_size=2)
    place.put("a.parquet", out.getvalue().to_pybytes())
    with place.sandbox(format="parquet", batch_max_rows="3") as box:
        box.kill_at("after_records", 2)
        box.run()
        found = [record.value for record in box.records("rows")]
    assert [row["id"] for row in found] == list(range(5))
    assert found[4] == {
        "id": 4, "price": Decimal("1.50"), "day": 2, "raw": "YQ==", "at": 1000, "names": {"a": 1}}  # fmt: skip


def test_old_objects_are_forgotten_where_that_is_wanted(folder: Place) -> None:
    for n in range(4):
        folder.put(f"{n}.json", lines(n))
    with folder.sandbox(remember_ms="1500") as box:
        box.run()
        assert box.position is not None and sorted(box.position["objects"]) == ["2.json", "3.json"]
        look(box)
        assert numbers(box) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "data", "settings", "message"),
    [
        ("a.json", b'{"n": 1}\n{"n": \n', {}, r"the line at offset 9 of a\.json is no ndjson"),
        ("a.json.gz", b"no gzip", {}, "is no whole gzip file"),
        ("a.json.gz", gzip.compress(b"1\n" * 9999, mtime=0)[:-20], {}, "is no whole gzip file"),
        ("a.parquet", b"PAR1 no", {"format": "parquet"}, "is no Parquet file"),
        ("a.parquet", spoilt(-40), {"format": "parquet"}, "is no Parquet file that can be read: .*thrift"),
        ("a.parquet", spoilt(40), {"format": "parquet"}, "is no Parquet file that can be read: "),
        ("a.csv", b'a,"b\n', {"format": "csv"}, "has no columns"),
        ("a.json", b"1" * 2_000_000, {"max_line_bytes": "1000000"}, "longer than 1000000 bytes"),
    ],
)
def test_an_object_that_cannot_be_read_ends_the_task(
    folder: Place, name: str, data: bytes, settings: dict[str, str], message: str
) -> None:
    folder.put(name, data)
    with folder.sandbox(**settings) as box, pytest.raises(ConnectorFailed, match=message):
        box.run()


def test_wrong_lines_are_dead_letters(place: Place) -> None:
    place.put("a.json", b'{"n": 1}\n{"n": \n{"n": 2}\n')
    dead = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "dead", "batch_max_rows": "1"}
    with place.sandbox(value_converter="json", **dead) as box:
        box.kill_at("after_records", 2)
        box.run()
        assert numbers(box) == [1, 2]
        (letter,) = read_topic(box.log, "dead")
        assert letter.value == b'{"n": '
        headers = {header["key"]: header["value"] for header in letter.headers or ()}
        assert b"the line at offset 9 of a.json is no ndjson" in headers["__connect.errors.exception.message"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"location": "x"}, "absolute path or s3://"),
        ({"format": "xml"}, "must be one of text, ndjson, csv, parquet"),
        ({"csv.delimiter": ""}, "one character"),
        ({"batch.max.rows": "0"}, "must be 1 or more"),
    ],
)
def test_settings_that_cannot_be(more: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConnector, match=message):
        read_settings(ObjectSource.settings, {"location": "/x", "topic": "t", "format": "csv", **more})
