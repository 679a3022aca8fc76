"""Lines of files: each once, whatever happens to the file between two reads."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from connectors import read_topic

from millstream.executor.connect.connector import Position, TaskInfo
from millstream.executor.connect.connector_errors import ConnectorFailed, InvalidConnector
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.sources.file_source import FileSettings, FileSource
from millstream.testing import ConnectorSandbox


class Reader:
    """A source that is opened anew for each read, as after a kill."""

    def __init__(self, file: Path | str, **settings: str) -> None:
        given = {"file": str(file), "topic": "t", **{name.replace("_", "."): item for name, item in settings.items()}}
        self._settings = read_settings(FileSettings, given)
        self.position: Position | None = None

    def read(self) -> list[Any]:
        found: list[Any] = []
        while True:
            chunk = FileSource(self._settings, TaskInfo("f")).read(self.position, 0)
            if chunk is None:
                return found
            found += [record.value for record in chunk.records]
            self.position = chunk.position


def test_a_growing_file_gives_each_whole_line_once(tmp_path: Path) -> None:
    file, reader = tmp_path / "app.log", Reader(tmp_path / "app.log")
    assert reader.read() == []
    file.write_text("one\ntwo\nthr")
    assert reader.read() == ["one", "two"]
    with file.open("a") as opened:
        opened.write("ee\n\nfour\n")
    assert reader.read() == ["three", "four"]
    assert reader.read() == []


def test_a_rotated_file_is_read_to_its_end_before_the_new_one(tmp_path: Path) -> None:
    file, reader = tmp_path / "app.log", Reader(tmp_path / "app.log")
    file.write_text("one\n")
    assert reader.read() == ["one"]
    with file.open("a") as opened:
        opened.write("two\nlast without a break")
    file.rename(tmp_path / "app.log.1")
    file.write_text("three\n")
    assert reader.read() == ["two", "last without a break", "three"]
    (tmp_path / "app.log.1").unlink()
    assert reader.read() == []


@pytest.mark.parametrize("new", ["x\n", "other text that is longer than before\n"])
def test_a_truncated_or_replaced_file_is_read_from_its_start(tmp_path: Path, new: str) -> None:
    file, reader = tmp_path / "app.log", Reader(tmp_path / "app.log")
    file.write_text("one\ntwo\n")
    assert reader.read() == ["one", "two"]
    with file.open("r+") as opened:  # the same inode
        opened.truncate(0)
        opened.write(new)
    assert reader.read() == [new.strip()]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_is_deleted_before_its_end_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], restarted: bool
) -> None:
    given = {"file": str(tmp_path / "*.log"), "topic": "t"}
    settings = read_settings(FileSettings, given)
    source = FileSource(settings, TaskInfo("f"))
    (tmp_path / "read.log").write_text("one\n")
    (tmp_path / "half.log").write_text("x" * 10 + "\n" + "y" * 2_000_000)
    position: Position | None = None
    while (chunk := source.read(position, 0)) is not None:
        position = chunk.position
    for name in ("read", "half"):
        (tmp_path / f"{name}.log").unlink()
    if restarted:
        source = FileSource(settings, TaskInfo("f"))
    assert source.read(position, 0) is None
    assert source.read(position, 0) is None
    said = capsys.readouterr()
    (line,) = [line for line in (said.out + said.err).splitlines() if "deleted" in line]
    assert "half.log" in line and "read=11 size=2000011" in line


def test_files_that_come_and_go_hold_up_no_other(tmp_path: Path) -> None:
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            for n in range(40):
                (tmp_path / f"a{n}.log").write_text("")
            for n in range(40):
                (tmp_path / f"a{n}.log").unlink()

    reader = Reader(tmp_path / "*.log")
    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for n in range(200):
            with (tmp_path / "kept.log").open("a") as file:
                file.write(f"{n}\n")
            assert reader.read() == [str(n)]
    finally:
        over.set()
        thread.join()


def test_a_pattern_reads_all_its_files(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "*.log")
    for name in ("a", "b"):
        (tmp_path / f"{name}.log").write_text(f"{name}1\n{name}2\n")
    assert reader.read() == ["a1", "a2", "b1", "b2"]
    os.link(tmp_path / "a.log", tmp_path / "c.log")  # the same file under another name
    assert reader.read() == []


def test_csv_has_a_header_and_quoted_line_breaks(tmp_path: Path) -> None:
    file, reader = tmp_path / "rows.csv", Reader(tmp_path / "rows.csv", format="csv", key_field="id")
    file.write_text('id,text\n1,"a ""b"",\nc"\n2,"open\n')
    assert reader.read() == [{"id": "1", "text": 'a "b",\nc'}]
    with file.open("a") as opened:
        opened.write('closed"\n')
    assert reader.read() == [{"id": "2", "text": "open\nclosed"}]


def test_numbers_of_ndjson_keep_their_digits(tmp_path: Path) -> None:
    (tmp_path / "rows.ndjson").write_text('{"n": 12345678901234567890123}\n{"n": 1.10}\n')
    config = {"file": f"{tmp_path}/rows.ndjson", "topic": "t", "format": "ndjson"}
    with ConnectorSandbox(FileSource, config) as box:
        box.run()
        assert [str(record.value["n"]) for record in box.records("t")] == ["12345678901234567890123", "1.10"]


def test_a_line_in_another_format_stops_the_task_or_is_a_dead_letter(tmp_path: Path) -> None:
    file = tmp_path / "rows.ndjson"
    file.write_text('{"a": 1}\n{"a": \n{"a": 2}\n')
    config = {"file": str(file), "topic": "t", "format": "ndjson"}
    with (
        ConnectorSandbox(FileSource, config) as box,
        pytest.raises(ConnectorFailed, match=r"the line at offset 9 of .* is no ndjson"),
    ):
        box.run()
    tolerant = {**config, "errors.tolerance": "all"}
    with ConnectorSandbox(FileSource, {**tolerant, "errors.deadletterqueue.topic.name": "dead"}) as box:
        box.kill_at("after_records")
        box.run()
        assert [record.value for record in box.records("t")] == [{"a": 1}, {"a": 2}]
        (letter,) = read_topic(box.log, "dead")
        headers = {header["key"]: header["value"] for header in letter.headers or ()}
        assert letter.value == b'{"a": '
        assert b"the line at offset 9 of" in headers["__connect.errors.exception.message"]
        assert headers["__connect.errors.topic"] == b"t"
    with ConnectorSandbox(FileSource, tolerant) as box:
        box.run()
        assert [record.value for record in box.records("t")] == [{"a": 1}, {"a": 2}]


def test_a_quote_that_is_not_closed_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text('a,b\n1,"2\n3,4\n')
    config = {"file": str(file), "topic": "t", "format": "csv", "follow": "false"}
    with ConnectorSandbox(FileSource, config) as box, pytest.raises(ConnectorFailed, match=r"offset 4 of .* is no csv"):
        box.run()


def test_a_line_without_end_is_refused_and_a_last_line_needs_none(tmp_path: Path) -> None:
    file = tmp_path / "long"
    file.write_text("x" * 5000)
    with pytest.raises(ConnectorFailed, match=r"the line at offset 0 of .* is longer than 1000 bytes"):
        Reader(file, max_line_bytes="1000").read()
    assert Reader(file, follow="false").read() == ["x" * 5000]


def test_settings_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(InvalidConnector, match="must be an absolute path"):
        Reader("relative/path")
    with pytest.raises(InvalidConnector, match=r"csv\.delimiter must be one character"):
        Reader("/x", csv_delimiter="||")


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    for name, text, found in (
        ("rows.ndjson", '{"id": 1}\r\n{"id": 2}\r\n', [{"id": 1}, {"id": 2}]),
        ("rows.csv", "id\r\n1\r\n2\r\n", [{"id": "1"}, {"id": "2"}]),
        ("rows.text", "one\r\ntwo\r\n", ["one", "two"]),
    ):
        file = tmp_path / name
        file.write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert Reader(file, format=file.suffix[1:]).read() == found


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (b"id,name\n1,Bob,more\n", "3 values for 2 columns"),
        (b"id,name\n1\n", "1 value for 2 columns"),
        (b"id,name\n1,M\xfcller\n", "it is not in UTF-8"),
        (b"id,name\n1,a\x00\xff\n", "it is not in UTF-8"),
    ],
)
def test_a_row_that_is_no_csv_says_why(tmp_path: Path, rows: bytes, said: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(rows)
    source = FileSource(read_settings(FileSettings, {"file": str(file), "topic": "t", "format": "csv"}), TaskInfo("f"))
    chunk = source.read(None, 0)
    assert chunk is not None
    (refused,) = chunk.refused
    assert said in refused.reason


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("id;name", 'the first line of .* has no column "id", which is key.field; its columns are: id;name'),
        ("ID,name", 'the first line of .* has no column "id", which is key.field; its columns are: ID, name'),
        ("id,name,name", 'the first line of .* names the column "name" twice'),
    ],
)
def test_a_header_that_loses_keys_or_values_stops_the_task(tmp_path: Path, header: str, said: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(f"{header}\n1,2,3\n")
    with pytest.raises(ConnectorFailed, match=said):
        Reader(file, format="csv", key_field="id").read()
