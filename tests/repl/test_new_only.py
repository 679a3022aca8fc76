"""What a person is told who sees no row: whether the statement reads new records only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.repl.new_only import advice_for_new_only
from millstream.server.client import LocalClient
from millstream.server.engine.session import Session
from millstream.testing import Sandbox

PUSH = "SELECT * FROM clicks EMIT CHANGES;"


@pytest.fixture
def client() -> Iterator[LocalClient]:
    """A client without a server."""
    with Sandbox() as sandbox:
        yield LocalClient(sandbox.engine, Session(), address="a sandbox", close=lambda: None)


def test_the_setting_of_the_session_decides_for_push_queries(client: LocalClient) -> None:
    client.execute("SET 'auto.offset.reset' = 'latest';")
    assert "'earliest'" in (advice_for_new_only(client, PUSH) or "")
    for start in ("earliest", "EARLIEST", "2026-01-01T00:00:00Z"):
        client.execute(f"SET 'auto.offset.reset' = '{start}';")
        assert advice_for_new_only(client, PUSH) is None


def test_print_reads_new_records_unless_it_says_from_where(client: LocalClient) -> None:
    client.execute("SET 'auto.offset.reset' = 'earliest';")
    assert "FROM BEGINNING" in (advice_for_new_only(client, "print clicks limit 3;") or "")
    assert advice_for_new_only(client, "PRINT clicks FROM BEGINNING;") is None
