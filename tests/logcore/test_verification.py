"""`millstream log dump` and `verify` on files that are whole, and on files that are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from millstream.cli import app
from millstream.logcore.log import Log

from .log_records import columnar, partition_folder, rows, segment_files


@pytest.fixture
def closed(log: Log, folder: Path) -> Path:
    """The folder of a log with rows, columns and an aborted transaction, in several segments."""
    log.create_topic("s", 1, {"segment.bytes": "1024"})
    for number in range(20):
        log.append("s", 0, rows(b"%0100d" % number))
    log.append("t", 0, columnar(1, 2))
    producer = log.transactional_producer("p")
    producer.begin()
    producer.append("t", 0, rows(b"gone"))
    producer.abort()
    log.close()
    return folder


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["log", *map(str, arguments)])


def partitions_of(folder: Path) -> int:
    """They begin late: one that nobody used is there only if housekeeping looked at it."""
    begun = [each for each in (folder / "replicas").iterdir() if each.is_dir()]
    assert len(begun) in (3, 4)
    return len(begun)


def test_a_whole_log_has_no_problems(closed: Path) -> None:
    before = {path: path.read_bytes() for path in closed.rglob("*") if path.is_file()}
    done = run("verify", closed)
    assert (done.exit_code, done.output.count("\n")) == (0, 1), done.output
    assert "no problems" in done.output
    assert f"{partitions_of(closed)} partitions" in done.output
    assert {path: path.read_bytes() for path in closed.rglob("*") if path.is_file()} == before


def test_a_flipped_bit_is_found_and_where(closed: Path) -> None:
    segment = segment_files(closed, "s")[1]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    done = run("verify", closed)
    assert done.exit_code == 1
    assert f"{segment}: position" in done.output
    assert run("verify", closed, "--topic", "t").exit_code == 0


def test_what_is_missing_is_found(closed: Path) -> None:
    first, second, *_, last = segment_files(closed, "s")
    second.unlink()
    assert f"{first}: ends at offset" in run("verify", closed).output
    last.write_bytes(last.read_bytes()[:-1])
    assert "were stored" in run("verify", closed).output
    described = closed / "node.json"
    described.write_bytes(b"00000000\n{}")
    assert f"{described.name}: the checksum" in run("verify", closed).output


def test_a_folder_that_is_no_log_is_an_error(tmp_path: Path) -> None:
    done = run("verify", tmp_path)
    assert done.exit_code == 1
    assert "error: " in done.output
    assert run("dump", tmp_path).exit_code == 1


def test_a_dump_shows_batches_and_records(closed: Path) -> None:
    done = run("dump", segment_files(closed)[0], "--records")
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert "offsets 0..1, records 1, position 0" in lines[1] and "columnar" in lines[1]
    assert lines[2].strip() == "{'x': 1}"
    assert [line.strip() for line in lines if "gone" in line or line.strip() == "abort"] == [
        "offset 2, time 7, key b'k', value b'gone'",
        "abort",
    ]
    assert run("dump", partition_folder(closed, "s")).output.count("offsets ") == 20


def test_a_dump_of_what_is_no_segment_is_an_error(closed: Path, tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear Ada, " * 100)
    done = run("dump", letter)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: {letter} is not a segment file: it does not begin with a record batch;"
        " segment files are called 00000000000000000000.log and so on\n"
    )


def test_a_dump_says_where_the_batches_end_before_the_file_does(closed: Path) -> None:
    segment = segment_files(closed, "s")[0]
    whole = segment.read_bytes()
    segment.write_bytes(whole + b"x" * 100)
    done = run("dump", segment)
    assert done.exit_code == 1
    assert done.stderr == (
        f"error: {segment} has 100 bytes from position {len(whole)} on that are not a record batch;"
        " `millstream log verify` finds what is wrong in a data folder\n"
    )
    for unwritten in (b"", bytes(5000)):
        segment.write_bytes(whole + unwritten)
        assert run("dump", segment).exit_code == 0
        (empty := closed.parent / "empty.log").write_bytes(unwritten)
        assert run("dump", empty).exit_code == 0
