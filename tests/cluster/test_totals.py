"""Runs add up per version of the code."""

from __future__ import annotations

from .totals import code_hash, summary, warning


def line(code: str, exit_code: int, sent: int) -> dict[str, object]:
    counts = {"records sent": sent}
    return {"servers": "millstream", "code": code, "exit": exit_code, "seconds": 90, "faults_s": 60.0, "counts": counts}


def test_runs_of_the_same_code_add_up_and_those_of_other_code_do_not() -> None:
    said = summary([line("a", 0, 5), line("b", 1, 1), line("a", 0, 7)]).splitlines()
    assert said[0].startswith("millstream a: 2 runs, 0 with anomalies; 180 s, 120 s of them under faults")
    assert "'records sent': 12" in said[0]
    assert said[1].startswith("millstream b: 1 runs, 1 with anomalies")


def test_the_version_of_the_code_is_a_short_name() -> None:
    assert len(code_hash()) == 12


def test_clients_that_are_stuck_are_told_loudly() -> None:
    assert warning({"stuck clients": 0}) == warning({}) == ""
    assert warning({"stuck clients": 2}).startswith("!!! stuck clients: 2")
    stuck = {**line("a", 0, 5), "counts": {"stuck clients": 1}}
    assert summary([stuck, stuck]).splitlines()[1].startswith("!!! stuck clients: 2")
