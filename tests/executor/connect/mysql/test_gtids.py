"""Sets of transaction ids: what they hold, and how MySQL wants them."""

from __future__ import annotations

import random
import struct
import uuid

import pytest

from millstream.executor.connect.mysql.gtids import MariaDbGtids, MySqlGtids, gtids_of

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4c9e3dfc-9d25-11e9-8d2e-0242ac1cfd7e"


def test_the_last_transaction_of_each_domain_counts() -> None:
    gtids = MariaDbGtids("3-1-7, 0-1-5")
    assert str(gtids) == "0-1-5,3-1-7"
    assert gtids.holds("0-2-5") and gtids.holds("0-1-4")
    assert not gtids.holds("0-1-6") and not gtids.holds("1-1-1")
    gtids.add("0-2-6")
    assert str(gtids) == "0-2-6,3-1-7"
    assert gtids.covers(MariaDbGtids("0-1-6")) and gtids.covers(MariaDbGtids())
    assert not gtids.covers(MariaDbGtids("0-1-7")) and not gtids.covers(MariaDbGtids("4-1-1"))
    assert str(MariaDbGtids("")) == ""


def test_intervals_grow_and_meet() -> None:
    gtids = MySqlGtids(f"{A}:1-5:8,\n{B.upper()}:3")
    assert str(gtids) == f"{A}:1-5:8,{B}:3"
    for number, expected in ((9, "1-5:8-9"), (7, "1-5:7-9"), (6, "1-9"), (6, "1-9")):
        gtids.add(f"{A}:{number}")
        assert str(gtids) == f"{A}:{expected},{B}:3"
    assert gtids.holds(f"{A.upper()}:9") and not gtids.holds(f"{A}:10") and not gtids.holds(f"{B}:2")
    assert gtids.covers(MySqlGtids(f"{A}:2-4:6")) and not gtids.covers(MySqlGtids(f"{A}:9-10"))


def test_a_set_of_intervals_is_a_set_of_numbers() -> None:
    chance = random.Random(3)
    for _ in range(50):
        gtids, numbers = MySqlGtids(), set[int]()
        for _ in range(60):
            number = chance.randrange(1, 40)
            gtids.add(f"{A}:{number}")
            numbers.add(number)
            assert {each for each in range(1, 41) if gtids.holds(f"{A}:{each}")} == numbers
            assert str(MySqlGtids(str(gtids))) == str(gtids)


def test_the_server_gets_ends_that_are_exclusive() -> None:
    data = MySqlGtids(f"{A}:1-5:8").encoded()
    assert data == struct.pack("<Q", 1) + uuid.UUID(A).bytes + struct.pack("<QQQQQ", 2, 1, 6, 8, 9)


@pytest.mark.parametrize(
    ("flavor", "text"), [("mariadb", "0-1"), ("mariadb", "x"), ("mysql", "x:1"), ("mysql", f"{A}:x")]
)
def test_another_text_is_none(flavor: str, text: str) -> None:
    with pytest.raises(ValueError):
        gtids_of(flavor, text)  # pyrefly: ignore[bad-argument-type]
