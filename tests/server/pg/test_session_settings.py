"""What a session's settings and prepared statements are after SET, RESET, DISCARD and DEALLOCATE: pools and drivers
count on it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from millstream.server.service import Service

psycopg = pytest.importorskip("psycopg")


@pytest.fixture
def ask(dsn: str) -> Generator[Any]:
    options = "-c statement_timeout=30s -c application_name=pool"
    with psycopg.connect(dsn, autocommit=True, options=options) as connection:
        yield connection


def shown(ask: Any, name: str) -> str:
    return ask.execute(f"SHOW {name}").fetchone()[0]


def test_default_is_what_the_connection_started_with(ask: Any) -> None:
    ask.execute("SET statement_timeout = '5s'")
    ask.execute("SET statement_timeout TO DEFAULT")
    assert shown(ask, "statement_timeout") == "30s"
    ask.execute("SET datestyle = 'German'")
    ask.execute("SET datestyle = DEFAULT")
    assert shown(ask, "datestyle") == "ISO, MDY"
    ask.execute("SET TIME ZONE 'Europe/Berlin'")
    ask.execute("SET TIME ZONE LOCAL")
    assert shown(ask, "timezone") == "UTC"


def test_reset_goes_back_to_what_the_connection_started_with(ask: Any) -> None:
    for reset in ("RESET ALL", "DISCARD ALL"):
        ask.execute("SET statement_timeout = '5s'")
        ask.execute("SET application_name = 'other'")
        ask.execute("SET \"auto.offset.reset\" = 'earliest'")
        assert ask.execute(reset).statusmessage in ("RESET", "DISCARD ALL")
        assert shown(ask, "statement_timeout") == "30s"
        assert ask.info.parameter_status("application_name") == "pool"
        assert shown(ask, '"auto.offset.reset"') == "latest"
    ask.execute("RESET SESSION AUTHORIZATION")
    assert ask.info.parameter_status("session_authorization") == "ana"


def test_a_reset_of_the_default_ends_a_read_only_session(ask: Any) -> None:
    ask.execute("SET default_transaction_read_only = on")
    ask.execute("RESET default_transaction_read_only")
    assert shown(ask, "transaction_read_only") == "off"


def test_a_local_setting_ends_with_its_transaction(ask: Any) -> None:
    for end in ("COMMIT", "ROLLBACK"):
        ask.execute("BEGIN")
        ask.execute("SET LOCAL statement_timeout = '1s'")
        ask.execute("SET LOCAL application_name = 'job'")
        assert shown(ask, "statement_timeout") == "1s"
        assert ask.info.parameter_status("application_name") == "job"
        ask.execute(end)
        assert shown(ask, "statement_timeout") == "30s"
        assert ask.info.parameter_status("application_name") == "pool"
    ask.execute("BEGIN")
    ask.execute("SET LOCAL statement_timeout = '1s'")
    ask.execute("SET statement_timeout = '2s'")  # for the session
    ask.execute("COMMIT")
    assert shown(ask, "statement_timeout") == "2s"


def test_outside_of_a_transaction_a_local_setting_has_no_effect(ask: Any) -> None:
    told: list[str] = []
    ask.add_notice_handler(lambda notice: told.append(notice.message_primary))
    ask.execute("SET LOCAL statement_timeout = '1s'")
    assert shown(ask, "statement_timeout") == "30s"
    assert told == ["SET LOCAL can only be used in transaction blocks"]


def test_deallocate_drops_prepared_statements(ask: Any) -> None:
    connection = ask.pgconn
    for drop in (b"DEALLOCATE one", b"DEALLOCATE PREPARE one", b"DEALLOCATE ALL", b"DISCARD ALL"):
        assert connection.prepare(b"one", b"SELECT 1").error_message == b""
        assert connection.exec_(drop).error_message == b""
        assert b"does not exist" in connection.exec_prepared(b"one", []).error_message
    assert connection.exec_(b"DEALLOCATE one").error_message.startswith(b'ERROR:  prepared statement "one" does not')


def test_a_driver_that_replaces_its_prepared_statements_prepares_for_ever(ask: Any) -> None:
    ask.prepared_max = 1
    for number in range(1_005):
        assert ask.execute(f"SELECT {number}", prepare=True).fetchone() == (number,)


def test_discard_of_plans_keeps_the_settings(ask: Any) -> None:
    ask.execute("SET statement_timeout = '5s'")
    assert ask.execute("DISCARD PLANS").statusmessage == "DISCARD PLANS"
    assert shown(ask, "statement_timeout") == "5s"


def test_set_config_that_is_only_described_sets_nothing(service: Service) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def asked() -> list[str]:
        assert service.pg_address is not None
        connection = await asyncpg.connect(
            host="127.0.0.1", port=service.pg_address.port, user="ana", database="millstream"
        )
        try:
            prepared = await connection.prepare("SELECT set_config('statement_timeout', '7s', false)")
            before = await connection.fetchval("SHOW statement_timeout")
            return [before, await prepared.fetchval(), await connection.fetchval("SHOW statement_timeout")]
        finally:
            await connection.close()

    before, *after = asyncio.run(asked())
    assert before != "7s"
    assert after == ["7s", "7s"]
