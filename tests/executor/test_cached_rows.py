"""Rows of which memory holds some and a file the others."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.executor.state import cached_rows, placed_rows, spilled_rows, state_columns
from millstream.executor.state.cached_rows import CachedRows
from millstream.executor.state.spilled_rows import SpilledRows, SpillFailed, spill_folder

SCHEMA = pa.schema([("n", pa.int32()), ("text", pa.string())])
EVERY_TYPE = pa.schema(
    [
        ("whole", pa.int64()),
        ("double", pa.float64()),
        ("yes", pa.bool_()),
        ("day", pa.date32()),
        ("time", pa.timestamp("ms")),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("amount", pa.decimal128(6, 2)),
        ("list", pa.list_(pa.string())),
        ("struct", pa.struct([("a", pa.int64())])),
        ("map", pa.map_(pa.string(), pa.int64())),
    ]
)
ROWS: Sequence[Sequence[Any]] = [
    [1, 1.5, True, 3, 5, "über", b"\0\xff", Decimal("1.25"), ["x", None], {"a": 1}, [("k", 1)]],
    [None] * 11,
    [-(2**63), float("-inf"), False, -1, -1, "", b"", Decimal("-9999.99"), [], {"a": None}, []],
    [0, -0.0, None, 0, 0, "long " * 50, b"x", None, None, None, None],
]


def columns_of(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> list[pa.Array]:
    columns = []
    for place, field in enumerate(schema):
        values = [row[place] for row in rows]
        whole = {pa.date32(): pa.int32(), pa.timestamp("ms"): pa.int64()}.get(field.type)
        columns.append(pa.array(values, field.type) if whole is None else pa.array(values, whole).cast(field.type))
    return columns


def slots(*numbers: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(numbers, np.int64)


def row(number: int, width: int = 0) -> tuple[int, str]:
    return number, f"text {number}" + "w" * width


class Written(SpilledRows):
    """Notes which slots are written, and read."""

    def __init__(self, schema: pa.Schema, folder: Path) -> None:
        super().__init__(schema, folder)
        self.put_slots: list[list[int]] = []
        self.got_slots: list[list[int]] = []

    def put(self, slots: Any, columns: Any) -> None:
        self.put_slots.append(sorted(slots.tolist()))
        super().put(slots, columns)

    def get(self, slots: Any, names: Any) -> list[pa.Array]:
        self.got_slots.append(sorted(slots.tolist()))
        return super().get(slots, names)


class Cache:
    """`CachedRows` with rows of `SCHEMA`; in: how many rows stay in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, fewest: int, room: int = 0) -> None:
        monkeypatch.setattr(cached_rows, "_FEWEST", fewest)
        monkeypatch.setattr(placed_rows, "_BITS", 2)
        self.file = Written(SCHEMA, folder)
        self.rows = CachedRows(SCHEMA, room, lambda: self.file)

    def set(self, *numbers: int, shift: int = 0, width: int = 0) -> None:
        """Row number n + shift in slot n."""
        rows = [row(number + shift, width) for number in numbers]
        self.rows.set(slots(*numbers), pa.table(columns_of(SCHEMA, rows), schema=SCHEMA))

    def get(self, *numbers: int) -> list[Any]:
        n, text = self.rows.get(slots(*numbers), ["n", "text"])
        return list(zip(n.to_pylist(), text.to_pylist(), strict=True))

    def in_memory(self) -> list[int]:
        return np.flatnonzero(self.rows._place >= 0).tolist()


# ------------------------------------------------------------------ the file


@pytest.mark.parametrize("chosen", [[0, 1, 2, 3], [3, 1], [2, 2, 0]])
def test_a_file_gives_back_every_type(tmp_path: Path, chosen: list[int]) -> None:
    target = SpilledRows(EVERY_TYPE, tmp_path)
    kept = columns_of(EVERY_TYPE, ROWS)
    places = slots(70, 3, 5, 4)
    target.put(places, kept)
    found = target.get(places[chosen], EVERY_TYPE.names)
    for column, expected in zip(found, kept, strict=True):
        assert column.type == expected.type
        assert column.equals(expected.take(pa.array(chosen)))
    assert all(column.null_count == 2 for column in target.get(slots(6, 1_000_000), EVERY_TYPE.names))
    assert list(tmp_path.iterdir()) == [], "the file has no name"


def test_a_row_is_replaced_in_its_place(tmp_path: Path) -> None:
    target = SpilledRows(SCHEMA, tmp_path)
    target.put(slots(1, 2, 3), columns_of(SCHEMA, [row(1), row(2), row(3)]))
    target.put(slots(2), columns_of(SCHEMA, [(None, None)]))
    target.put(slots(3, 0), columns_of(SCHEMA, [(33, "longer than before"), (0, "")]))
    n, text = target.get(slots(0, 1, 2, 3), ["n", "text"])
    assert n.to_pylist() == [0, 1, None, 33]
    assert text.to_pylist() == ["", "text 1", None, "longer than before"]


def test_values_that_no_row_has_any_more_are_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_rows, "_OUTDATED_MIN", 100)
    monkeypatch.setattr(spilled_rows, "_PIECE_ROWS", 2)
    target = SpilledRows(SCHEMA, tmp_path)
    target.put(slots(0, 4), columns_of(SCHEMA, [(0, "a" * 40), (4, "b" * 50)]))
    for number in range(30):
        target.put(slots(2), columns_of(SCHEMA, [(number, f"{number:02}" * 5)]))
        assert target._end <= 2 * 100 + 100
        n, text = target.get(slots(4, 3, 2, 0), ["n", "text"])
        assert n.to_pylist() == [4, None, number, 0]
        assert text.to_pylist() == ["b" * 50, None, f"{number:02}" * 5, "a" * 40]
    assert target._live == 100


def test_values_are_moved_only_once_they_are_outdated_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_rows, "_OUTDATED_MIN", 10)
    target = SpilledRows(SCHEMA, tmp_path)
    ends = []
    for _ in range(4):
        target.put(slots(0), columns_of(SCHEMA, [(0, "x" * 10)]))
        ends.append(target._end)
    assert ends == [10, 20, 30, 10], "from 2 × 10 + 10 on there is no more room"


def test_values_that_were_never_read_are_moved_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the old file is mapped then, or only its beginning."""
    monkeypatch.setattr(spilled_rows, "_OUTDATED_MIN", 0)
    target = SpilledRows(SCHEMA, tmp_path)
    target.put(slots(0), columns_of(SCHEMA, [(0, "first")]))
    assert target.get(slots(0), ["text"])[0].to_pylist() == ["first"]
    wide = [(number, f"{number}" * 100_000) for number in range(1, 10)]
    target.put(np.arange(1, 10), columns_of(SCHEMA, wide))
    for _ in range(3):
        target.put(slots(*range(1, 9)), columns_of(SCHEMA, [(0, "x" * 100_000)] * 8))
    assert target._end < 2_000_000
    assert target.get(slots(9, 0), ["text"])[0].to_pylist() == ["9" * 100_000, "first"]


def test_wide_values_are_moved_few_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are more than a column can have, and one may be more than is moved at once."""
    monkeypatch.setattr(spilled_rows, "_OUTDATED_MIN", 0)
    monkeypatch.setattr(spilled_rows, "_PIECE_BYTES", 100)
    target = SpilledRows(SCHEMA, tmp_path)
    texts = ["w" * 60, "x" * 300, "", "y" * 40, "z" * 100]
    target.put(slots(1, 3, 4, 5, 6), columns_of(SCHEMA, list(enumerate(texts))))
    monkeypatch.setattr(spilled_rows, "_OFFSET_MAX", 400)
    for _ in range(8):
        target.put(slots(0), columns_of(SCHEMA, [(0, "often" * 60)]))
    assert target._end <= 2 * (500 + 300)
    assert [target.get(slots(slot), ["text"])[0][0].as_py() for slot in (1, 3, 4, 5, 6)] == texts


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a disk that is memory")
def test_gaps_take_no_room_on_a_disk_that_is_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is none, reading them ends the process. Clearing away does not fill them either."""
    monkeypatch.setattr(spilled_rows, "_OUTDATED_MIN", 0)
    target = SpilledRows(SCHEMA, Path("/dev/shm"))
    target.put(slots(1_000_000), columns_of(SCHEMA, [row(1)]))
    for slot in range(0, 1_000_000, 10_000):
        assert target.get(slots(slot), ["n"])[0].to_pylist() == [None]
    for _ in range(5):
        target.put(slots(1_000_000), columns_of(SCHEMA, [row(2)]))
    target.put(slots(500_000, 1_000_000), columns_of(SCHEMA, [row(5), row(3)]))
    assert target.get(slots(1_000_000, 7, 500_000), ["n"])[0].to_pylist() == [3, None, 5]
    assert os.fstat(target._rows._file).st_blocks * 512 <= 4 * resource.getpagesize()


def test_pages_that_were_read_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows come, however often that was."""
    monkeypatch.setattr(spilled_rows, "_SEEN_MAX", 3)
    target = SpilledRows(SCHEMA, tmp_path)
    target.put(np.arange(10), columns_of(SCHEMA, [row(n) for n in range(10)]))
    for _ in range(5):
        n, text = target.get(slots(9, 0), ["n", "text"])
        assert (n.to_pylist(), text.to_pylist()) == ([9, 0], ["text 9", "text 0"])


def test_pages_that_were_read_are_not_memory_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_rows, "_SEEN_MAX", 10)
    target = SpilledRows(SCHEMA, tmp_path)
    target.put(np.arange(200_000), [pa.array(np.arange(200_000), pa.int32()), pa.nulls(200_000, pa.string())])
    for slot in range(0, 200_000, 100):
        assert target.get(slots(slot), ["n"])[0].to_pylist() == [slot]
    assert _mapped_bytes(tmp_path) < 1_000_000, "of 4 MB"


def _mapped_bytes(folder: Path) -> int:
    """Pages of deleted files of this folder that this process has in memory."""
    found, is_ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            is_ours = bool(rest) and str(folder) in line
        elif is_ours and first == "Rss:":
            found += int(rest[0]) * 1024
    return found


@pytest.mark.parametrize(("slot", "text"), [(1, "x" * 2_000_000), (1_000_000, "x")], ids=["its values", "its place"])
def test_a_full_disk_is_an_error_and_what_was_there_stays(tmp_path: Path, slot: int, text: str) -> None:
    target = SpilledRows(SCHEMA, tmp_path)
    target.put(slots(0), columns_of(SCHEMA, [row(0)]))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        for _ in range(2):
            with pytest.raises(SpillFailed, match="laid aside in") as raised:
                target.put(slots(slot), columns_of(SCHEMA, [(1, text)]))
            assert raised.value.errno == errno.EFBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert target.get(slots(0), ["text"])[0].to_pylist() == ["text 0"]
    target.put(slots(slot), columns_of(SCHEMA, [(1, text)]))
    assert target.get(slots(slot, 0), ["text"])[0].to_pylist() == [text, "text 0"]


def test_a_file_leaves_nothing_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    target = SpilledRows(SCHEMA, tmp_path)
    target.put(slots(0), columns_of(SCHEMA, [row(0)]))
    target.get(slots(0), ["n"])
    del target
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(("setting", "expected"), [("", ""), ("/below/what/is/there", ""), ("not here/nor this", "")])
def test_files_are_where_duckdb_lays_aside(tmp_path: Path, setting: str, expected: str) -> None:
    connection = duckdb.connect(config={"temp_directory": str(tmp_path) + "/" * bool(setting) + setting})
    assert spill_folder(connection) == tmp_path / expected


# ------------------------------------------------------------------ memory and file


def test_rows_stay_in_memory_while_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(monkeypatch, tmp_path, fewest=2, room=1_000_000)
    cache.set(*range(50))
    cache.set(*range(20, 80), shift=100)
    assert cache.get(79, 0, 20, 0) == [row(179), row(0), row(120), row(0)]
    assert cache.get(80, 1_000) == [(None, None)] * 2
    assert (cache.file.put_slots, cache.file.got_slots) == ([], [])


def test_those_that_came_first_leave_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(monkeypatch, tmp_path, fewest=4)
    cache.set(0, 1, 2, 3)
    assert cache.in_memory() == [0, 1, 2, 3]
    cache.set(4)
    assert (cache.in_memory(), cache.file.put_slots) == ([1, 2, 3, 4], [[0]])
    cache.set(2, shift=50)
    assert cache.get(1, 2) == [row(1), row(52)], "it is written where it stands"
    assert cache.file.put_slots == [[0]]
    cache.set(5, 6)
    assert (cache.in_memory(), cache.file.put_slots) == ([3, 4, 5, 6], [[0], [1, 2]])
    assert cache.get(2, 6, 4) == [row(52), row(6), row(4)]


def test_a_row_that_leaves_while_it_is_written_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(monkeypatch, tmp_path, fewest=4)
    cache.set(0, 1, 2, 3)
    cache.set(0, 4, 5, shift=10)
    assert cache.in_memory() == [0, 3, 4, 5]
    assert cache.get(0, 1, 2, 3, 4, 5) == [row(10), row(1), row(2), row(3), row(14), row(15)]


def test_what_the_file_has_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(monkeypatch, tmp_path, fewest=4)
    cache.set(0, 1, 2, 3)
    cache.set(4, 5, 6, 7)
    assert cache.in_memory() == [4, 5, 6, 7]
    assert cache.get(0) == [row(0)], "one of four places is few"
    assert 0 in cache.in_memory()
    cache.file.put_slots.clear()
    cache.set(8, 9, 10, 11)
    assert sorted(slot for each in cache.file.put_slots for slot in each) == [5, 6, 7]
    assert cache.get(0, 4) == [row(0), row(4)]


def test_a_row_that_was_read_and_then_changed_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(monkeypatch, tmp_path, fewest=4)
    cache.set(*range(8))
    cache.get(0)
    cache.set(0, shift=70)
    cache.set(*range(8, 16))
    assert cache.in_memory() == [12, 13, 14, 15]
    assert cache.get(0, 1) == [row(70), row(1)]


@pytest.mark.parametrize(("asked", "comes_in"), [((0,), True), ((0, 0, 0), True), ((0, 1), False)])
def test_rows_come_into_memory_only_if_they_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[int, ...], comes_in: bool
) -> None:
    cache = Cache(monkeypatch, tmp_path, fewest=4)
    cache.set(*range(8))
    assert cache.in_memory() == [4, 5, 6, 7]
    assert cache.get(*asked) == [row(slot) for slot in asked]
    assert (0 in cache.in_memory()) is comes_in


def test_wider_rows_leave_less_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_columns, "_OUTDATED_MIN", 2)
    cache = Cache(monkeypatch, tmp_path, fewest=4, room=40_000)
    cache.set(*range(100))
    assert len(cache.in_memory()) == 100
    for first in range(0, 100, 10):
        wide = [(number, "w" * 2_000) for number in range(first, first + 10)]
        cache.rows.set(np.arange(first, first + 10), pa.table(columns_of(SCHEMA, wide), schema=SCHEMA))
        assert cache.rows.nbytes <= 45_000 or len(cache.in_memory()) <= 4
    assert 4 <= len(cache.in_memory()) <= 22
    assert cache.get(*range(100)) == [(number, "w" * 2_000) for number in range(100)]


def test_as_many_rows_are_in_memory_as_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_columns, "_OUTDATED_MIN", 2)
    cache = Cache(monkeypatch, tmp_path, fewest=2, room=10_000)
    for first in range(0, 1_000, 20):
        cache.set(*range(first, first + 20))
    assert 8_000 < cache.rows.nbytes <= 11_250
    assert len(cache.in_memory()) > 100
    assert cache.get(*range(1_000)) == [row(number) for number in range(1_000)]


def test_wide_rows_that_are_read_leave_less_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_columns, "_OUTDATED_MIN", 2)
    cache = Cache(monkeypatch, tmp_path, fewest=4, room=40_000)
    cache.set(*range(100), width=5_000)
    cache.set(*range(100, 400))
    for number in range(100):
        assert cache.get(number) == [row(number, 5_000)]
        assert cache.rows.nbytes <= 45_000 or len(cache.in_memory()) <= 4


def test_very_wide_rows_leave_memory_though_they_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_rows, "_FEWEST_BYTES", 10_000)
    monkeypatch.setattr(state_columns, "_OUTDATED_MIN", 0)
    cache = Cache(monkeypatch, tmp_path, fewest=50)
    cache.set(*range(40), width=100)
    assert cache.in_memory() == list(range(40)), "no more than is always there"
    for number in range(40):
        cache.set(number, width=3_000)
        assert cache.rows.nbytes < 10_000 + 2 * 3_100
    assert len(cache.in_memory()) >= 2
    assert cache.get(*range(40)) == [row(number, 3_000) for number in range(40)]


def test_one_column_may_be_asked_for_before_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(monkeypatch, tmp_path, fewest=4)
    cache.set(*range(8))
    assert cache.rows.get(slots(0), ["text"])[0].to_pylist() == ["text 0"]
    assert cache.get(0) == [row(0)]
    assert cache.file.got_slots == [[0]]


def test_places_are_given_again_though_there_is_room_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring stays one: places at its end would stand in the middle of what is given next."""
    monkeypatch.setattr(state_columns, "_OUTDATED_MIN", 2)
    cache = Cache(monkeypatch, tmp_path, fewest=4, room=40_000)
    for first in range(0, 40, 5):
        cache.set(*range(first, first + 5), width=2_000)
    for step in range(1, 10):
        cache.set(*range(0, 40, 3), shift=step)
        cache.set(*range(1, 60, 3), shift=step)
    expected = {number: row(number, 2_000) for number in range(40)}
    expected |= {number: row(number + 9) for number in (*range(0, 40, 3), *range(1, 60, 3))}
    assert cache.get(*sorted(expected)) == [expected[number] for number in sorted(expected)]


actions = st.lists(
    st.tuples(
        st.sampled_from(["set", "get"]), st.lists(st.integers(0, 30), max_size=12), st.sampled_from([0, 0, 50, 500])
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=drawn(30), deadline=None)
@given(actions, st.integers(1, 6), st.sampled_from([0, 300, 3_000]))
def test_a_cache_is_a_dict(doings: list[tuple[str, list[int], int]], fewest: int, room: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled_rows, "_OUTDATED_MIN", 30)
        patch.setattr(state_columns, "_OUTDATED_MIN", 2)
        cache = Cache(patch, Path.cwd(), fewest, room)
        model: dict[int, tuple[int, str]] = {}
        for step, (doing, numbers, width) in enumerate(doings):
            if doing == "set":
                distinct = list(dict.fromkeys(numbers))
                cache.set(*distinct, shift=step * 100, width=width)
                model |= {number: row(number + step * 100, width) for number in distinct}
            assert cache.get(*numbers) == [model.get(number, (None, None)) for number in numbers]
        assert cache.get(*range(31)) == [model.get(number, (None, None)) for number in range(31)]
        held = cache.rows._place >= 0
        assert (cache.rows._slot[cache.rows._place[held]] == np.flatnonzero(held)).all()
        assert held.sum() == cache.rows._places - cache.rows._free
