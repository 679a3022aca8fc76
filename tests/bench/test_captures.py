"""Changes of PostgreSQL beside Debezium: what is said where one of them is missing."""

from __future__ import annotations

import pytest

from bench.captures import local_postgres
from bench.captures.capture_lines import capture_lines


def test_a_machine_without_postgres_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_postgres, "_programs", lambda: None)
    (line,) = capture_lines(10)
    assert line.what == "changes of PostgreSQL: not measured, PostgreSQL is not installed"
