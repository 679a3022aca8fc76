"""Which records a later one of their key follows: found in few look-ups, however many batches ask."""

from __future__ import annotations

from random import Random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millstream.logcore.compaction import live_keys
from millstream.logcore.compaction.live_keys import LiveKeys

FAMILIES = (b"", b"columns")
Records = list[tuple[bytes, bytes | None, int]]  # family, key, offset


def given(live: LiveKeys, added: Records, earlier: Records, batch: int) -> None:
    for records, act in ((added, live.add), (earlier, live.add_earlier)):
        for family in FAMILIES:
            of_family = [each for each in records if each[0] == family]
            for begin in range(0, len(of_family), batch):
                part = of_family[begin : begin + batch]
                act(family, pa.array([key for _, key, _ in part], pa.binary()), longs(part))
        if act == live.add:
            live.settle()
    live.settle_earlier()


def longs(records: Records) -> npt.NDArray[np.int64]:
    return np.array([offset for _, _, offset in records], np.int64)


def outdated(records: Records, live: LiveKeys) -> list[int]:
    offsets = longs(records)
    return offsets[live.superseded(offsets)].tolist()


def expected(added: Records, earlier: Records) -> list[int]:
    last = {(family, key): offset for family, key, offset in added}
    return [
        offset for family, key, offset in earlier + added if key is not None and last.get((family, key), -1) > offset
    ]


@pytest.mark.parametrize("seed", range(20))
def test_records_are_outdated_by_later_ones_of_their_key(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(live_keys, "PIECE_BYTES", random.choice((1, 100, 1 << 20)))
    keys = [None, b"", *(b"key %d" % number for number in range(random.randrange(40)))]
    offsets = sorted(random.sample(range(1_000), random.randrange(2, 120)))
    records: Records = [(random.choice(FAMILIES), random.choice(keys), offset) for offset in offsets]
    begin = random.randrange(len(records) + 1)
    earlier, added = records[:begin], records[begin:]
    live = LiveKeys()
    given(live, added, earlier, random.randrange(1, 10))
    assert outdated(records, live) == expected(added, earlier)


def test_what_is_outdated_is_known_at_its_borders() -> None:
    added: Records = [(b"", b"a", 5), (b"", b"b", 6), (b"", b"a", 7), (b"", None, 8)]
    earlier: Records = [(b"", b"b", 0), (b"", b"c", 1), (b"columns", b"a", 2), (b"", b"a", 4)]
    live = LiveKeys()
    given(live, added, earlier, 10)
    assert outdated(earlier + added, live) == [0, 4, 5]
    assert outdated([(b"", b"b", 0), (b"", None, 9)], live) == [0]


def test_nothing_is_outdated_by_nothing() -> None:
    live = LiveKeys()
    given(live, [], [(b"", b"a", 0)], 1)
    assert outdated([(b"", b"a", 0)], live) == []


def test_many_small_batches_are_looked_up_in_few_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look-up makes a table of all later keys."""
    monkeypatch.setattr(live_keys, "PIECE_BYTES", 1)
    looked_up: list[int] = []
    is_in = pc.is_in

    def counted(keys: pa.ChunkedArray, *, value_set: pa.Array) -> pa.ChunkedArray:
        looked_up.append(len(keys))
        return is_in(keys, value_set=value_set)

    monkeypatch.setattr(pc, "is_in", counted)
    names = [b"key %04d" % number for number in range(2_000)]
    earlier: Records = [(b"", name, number) for number, name in enumerate(names)]
    added: Records = [(b"", name, 2_000 + number) for number, name in enumerate(names)]
    live = LiveKeys()
    given(live, added, earlier, 4)
    assert outdated(earlier + added, live) == list(range(2_000))
    assert sum(looked_up) == 2_000
    assert len(looked_up) <= live_keys.PIECES + 1
