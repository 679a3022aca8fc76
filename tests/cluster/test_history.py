"""The checker finds each kind of anomaly where it is planted, and none where all is well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import events
from .events import Recorder, read_events
from .history import CHECKS, anomalies
from .observed import Observed

Lines = list[dict[str, Any]]


def good() -> Lines:
    """Three records of a producer, one committed transaction of two and an aborted one, a group, a copier."""
    return [
        {"kind": events.SEND, "producer": "p", "transaction": None, "records": [["a", "in/0"], ["b", "in/0"]]},
        {"kind": events.SENT, "records": [["a", "in/0", 0], ["b", "in/0", 1]]},
        {"kind": events.SEND, "producer": "t", "transaction": "t1", "records": [["c", "in/0"], ["d", "in/1"]]},
        {"kind": events.SENT, "records": [["c", "in/0", 2], ["d", "in/1", 0]]},
        {"kind": events.COMMITTING, "transaction": "t1"},
        {"kind": events.COMMITTED, "transaction": "t1"},
        {"kind": events.SEND, "producer": "t", "transaction": "t2", "records": [["e", "in/0"]]},
        {"kind": events.SENT, "records": [["e", "in/0", 4]]},
        {"kind": events.ABORTED, "transaction": "t2"},
        started("g", "m1", {"in/0": 0, "in/1": 0}, asked_at=8.0),
        polled("m1", {"in/0": [[0, "a", ""], [1, "b", ""]]}),
        storing("g1", "g", {"in/0": 2}),
        {"kind": events.STORED, "commit": "g1"},
        polled("m1", {"in/0": [[2, "c", ""]]}),
        {"kind": events.REVOKED, "consumer": "m1", "places": ["in/0"]},
        started("g", "m2", {"in/0": 2}, asked_at=14.5),
        polled("m2", {"in/0": [[2, "c", ""]]}),
        polled("m1", {"in/1": [[0, "d", ""]]}),
        started("copiers", "x", {"in/0": 0, "in/1": 0}, asked_at=17.0),
        polled("x", {"in/0": [[0, "a", ""], [1, "b", ""], [2, "c", ""]], "in/1": [[0, "d", ""]]}),
        {"kind": events.SEND, "producer": "x", "transaction": "x1", "records": [[f"x{v}", "out/0"] for v in "abcd"]},
        storing("x1", "copiers", {"in/0": 3, "in/1": 1}, transaction="x1"),
        {"kind": events.COMMITTING, "transaction": "x1"},
        {"kind": events.COMMITTED, "transaction": "x1"},
        started("copiers", "x", {"in/0": 3}, asked_at=24.5),
        {"kind": events.SEND, "producer": "p", "transaction": None, "records": [["f", "in/1"]]},
        final("r1", "in/0", 6, [[0, "a", ""], [1, "b", ""], [2, "c", ""]]),
        final("r1", "in/1", 2, [[0, "d", ""]]),
        final("r1", "out/0", 5, [[n, f"x{v}", v] for n, v in enumerate("abcd")]),
        final("r2", "in/0", 6, [[0, "a", ""], [1, "b", ""], [2, "c", ""]]),
    ]


def started(group: str, consumer: str, starts: dict[str, int], asked_at: float) -> dict[str, Any]:
    return {"kind": events.STARTED, "group": group, "consumer": consumer, "starts": starts, "asked_at": asked_at}


def polled(consumer: str, records: dict[str, list[list[Any]]]) -> dict[str, Any]:
    return {"kind": events.POLLED, "consumer": consumer, "records": records}


def storing(commit: str, group: str, offsets: dict[str, int], transaction: str | None = None) -> dict[str, Any]:
    return {
        "kind": events.STORING, "commit": commit, "group": group, "transaction": transaction, "offsets": offsets
    }  # fmt: skip


def final(reader: str, place: str, end: int, records: list[list[Any]]) -> dict[str, Any]:
    return {"kind": events.FINAL, "reader": reader, "place": place, "end": end, "records": records}


def found(lines: Lines) -> set[str]:
    return {anomaly.kind for anomaly in anomalies(Observed({"at": float(at), **line} for at, line in enumerate(lines)))}


def test_a_good_history_has_no_anomaly() -> None:
    assert anomalies(Observed({"at": float(at), **line} for at, line in enumerate(good()))) == []


def final_of(lines: Lines, place: str) -> list[list[Any]]:
    return next(line["records"] for line in lines if line["kind"] == events.FINAL and line["place"] == place)


def without_second_final(lines: Lines) -> None:
    lines.pop()


def lose(lines: Lines) -> None:
    del final_of(lines, "in/0")[1]


def lose_the_end(lines: Lines) -> None:
    del final_of(lines, "in/0")[2]
    next(line for line in lines if line["kind"] == events.FINAL)["end"] = 2


def repeat(lines: Lines) -> None:
    final_of(lines, "in/0").append([5, "a", ""])


def change(lines: Lines) -> None:
    lines[10]["records"]["in/0"][1] = [1, "f", ""]


def read_aborted(lines: Lines) -> None:
    lines[13]["records"]["in/0"].append([4, "e", ""])


def read_refused(lines: Lines) -> None:
    lines.insert(2, {"kind": events.NOT_SENT, "values": ["a"]})


def read_what_was_left_open(lines: Lines) -> None:
    del lines[4:6]


def read_early(lines: Lines) -> None:
    begin = started("g", "m0", {"in/1": 0}, asked_at=3.0)
    lines[4:4] = [begin, polled("m0", {"in/1": [[0, "d", ""]]})]


def invent(lines: Lines) -> None:
    final_of(lines, "in/0").append([5, "z", ""])


def tear(lines: Lines) -> None:
    final_of(lines, "in/1").clear()


def tear_one_of_unknown_outcome(lines: Lines) -> None:
    del lines[5]
    final_of(lines, "in/1").clear()


def go_back_between_polls(lines: Lines) -> None:
    lines[13]["records"]["in/0"][0] = [1, "b", ""]


def go_back_within_a_poll(lines: Lines) -> None:
    lines[10]["records"]["in/0"].reverse()


def begin_before_the_start(lines: Lines) -> None:
    lines[16]["records"]["in/0"][0] = [1, "b", ""]


def skip_between_polls(lines: Lines) -> None:
    lines[10]["records"]["in/0"].pop()


def skip_within_a_poll(lines: Lines) -> None:
    del lines[19]["records"]["in/0"][1]


def send_out_of_order(lines: Lines) -> None:
    lines[1]["records"] = [["a", "in/0", 1], ["b", "in/0", 0]]


def forget_group_offsets(lines: Lines) -> None:
    lines[15]["starts"]["in/0"] = 0
    lines[16]["records"]["in/0"][:0] = [[0, "a", ""], [1, "b", ""]]


def forget_offsets_of_a_transaction(lines: Lines) -> None:
    lines[24]["starts"]["in/0"] = 0


def invent_group_offsets(lines: Lines) -> None:
    lines[15]["starts"]["in/0"] = 3
    lines[16]["records"]["in/0"].clear()


def hide_from_a_group(lines: Lines) -> None:
    lines[17]["records"]["in/1"].clear()


def copy_twice(lines: Lines) -> None:
    final_of(lines, "out/0").append([4, "xb", "b"])


def copy_never(lines: Lines) -> None:
    final_of(lines, "out/0").pop()


def differ(lines: Lines) -> None:
    lines[-1]["records"] = lines[-1]["records"][:2]


PLANTED: list[tuple[str, Callable[[Lines], None]]] = [
    ("lost write", lose),
    ("unseen write", lose_the_end),
    ("duplicate", repeat),
    ("inconsistent offset", change),
    ("aborted read", read_aborted),
    ("aborted read", read_refused),
    ("aborted read", read_what_was_left_open),
    ("early read", read_early),
    ("invented record", invent),
    ("torn transaction", tear),
    ("torn transaction", tear_one_of_unknown_outcome),
    ("non-monotonic poll", go_back_between_polls),
    ("non-monotonic poll", go_back_within_a_poll),
    ("non-monotonic poll", begin_before_the_start),
    ("poll skip", skip_between_polls),
    ("poll skip", skip_within_a_poll),
    ("non-monotonic send", send_out_of_order),
    ("lost group offset", forget_group_offsets),
    ("lost group offset", forget_offsets_of_a_transaction),
    ("invented group offset", invent_group_offsets),
    ("record no member got", hide_from_a_group),
    ("wrong copy", copy_twice),
    ("wrong copy", copy_never),
    ("final reads differ", differ),
]


@pytest.mark.parametrize(("kind", "plant"), PLANTED, ids=[plant.__name__ for _, plant in PLANTED])
def test_a_planted_anomaly_is_found(kind: str, plant: Callable[[Lines], None]) -> None:
    lines = good()
    if kind != "final reads differ":
        without_second_final(lines)
    plant(lines)
    assert kind in found(lines)


def test_each_kind_of_anomaly_is_planted() -> None:
    assert {kind for kind, _ in PLANTED} == set(CHECKS)


def test_an_unknown_outcome_may_be_there_or_not() -> None:
    lines = good()
    without_second_final(lines)
    del lines[1]
    final_of(lines, "in/0")[:2] = [[1, "b", ""]]
    assert not {"lost write", "unseen write", "aborted read"} & found(lines)


def test_half_a_line_of_a_killed_client_counts_as_not_written(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "one.jsonl")
    recorder.note(events.COMMITTING, transaction="t")
    recorder.close()
    with (tmp_path / "one.jsonl").open("ab") as file:
        file.write(b'{"at": 7, "ki')
    assert [event["kind"] for event in read_events(tmp_path)] == [events.COMMITTING]
