"""psql, as people have it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Psql = Callable[..., str]


def test_rows_of_tables_and_streams_are_shown_under_names_in_lower_case(psql: Psql) -> None:
    text = psql(
        "-A", "-c", 'SELECT "user_id", "userName", n::text AS "Count" FROM public.totals WHERE user_id = \'ada\''
    )
    assert text == "user_id|userName|Count\nada|Ada|3\n(1 row)\n"
    assert psql("-At", "-c", "SELECT user_id, size + 1 FROM clicks WHERE size > 1 ORDER BY size DESC") == "cy|4\nbo|3\n"


def test_names_are_found_in_whatever_case(psql: Psql) -> None:
    asked = 'SELECT username, USERNAME AS u, "userName" AS v FROM "TOTALS" WHERE "public"."totals"."user_id" = \'ada\''
    assert psql("-At", "-c", asked) == "Ada|Ada|Ada\n"


def test_questions_that_read_nothing_are_answered(psql: Psql) -> None:
    asked = "SELECT 1, 'it''s', current_schema(), current_database(), version() LIKE 'PostgreSQL 15%', E'a\\tb'"
    assert psql("-At", "-c", asked) == "1|it's|public|millstream|t|a\tb\n"
    assert psql("-At", "-c", "SHOW server_version", "-c", "SHOW TIME ZONE") == "15.0\nUTC\n"


def test_integers_are_divided_as_integers_with_and_without_a_table(psql: Psql) -> None:
    assert psql("-At", "-c", "SELECT 7 / 2, -7 / 2, 7 / 2.0") == "3|-3|3.5\n"
    assert psql("-At", "-c", "SELECT 7 / 2, -7 / 2 FROM totals LIMIT 1") == "3|-3\n"
    assert "ivision by zero" in psql("-c", "SELECT 1 / 0")


def test_print_names_the_doors_that_have_it(psql: Psql) -> None:
    assert "HINT:  Send it to /query or /query-stream (HTTP)" in psql("-c", "PRINT clicks FROM BEGINNING LIMIT 1")


def test_an_error_has_a_place_and_a_hint(psql: Psql) -> None:
    said = psql("-v", "VERBOSITY=verbose", "-c", "SELECT n::text, sise FROM totals")
    assert "ERROR:  42703: SELECT column 'SISE' cannot be resolved." in said
    assert "LINE 1: SELECT n::text, sise FROM totals\n                        ^" in said


DESCRIBE_COMMANDS = (
    r"\d \d+ \dt \dt+ \dn \dn+ \du \dg \l \di \dv \dm \ds \df \dT \dp \ddp \db \dx \dy \do \da \dc \dC \dD \dd \des "
    r"\det \dew \dL \dO \dRp \dRs \dX \dF \dFd \dP \drds \dE \dA \dAc \dconfig \dl \z \conninfo \encoding"
).split()


def test_the_whole_family_of_d_is_answered(psql: Psql, tmp_path: Path) -> None:
    script = tmp_path / "describe.sql"
    script.write_text("\n".join([*DESCRIBE_COMMANDS, r"\d totals", r"\d+ clicks", r"\dt tot*"]))
    said = psql("-f", str(script))
    assert "ERROR" not in said


def test_a_table_is_described_with_its_types_and_its_key(psql: Psql) -> None:
    said = psql("-A", "-c", r"\d totals")
    assert 'Table "public.totals"' in said
    assert "user_id|text||not null|" in said
    assert "amount|numeric(10,2)|||" in said
    assert "tags|text[]|||" in said
    assert "m|json|||" in said
    assert "ts|timestamp without time zone|||" in said
    assert '"totals_pkey" PRIMARY KEY, btree (user_id)' in said
    assert psql("-At", "-c", r"\dt") == "public|clicks|table|ana\npublic|secret|table|ana\npublic|totals|table|ana\n"


def test_rows_are_copied_to_a_file_of_the_client(psql: Psql, tmp_path: Path) -> None:
    out = tmp_path / "clicks.csv"
    said = psql("-c", rf"\copy (SELECT user_id, size FROM clicks) to '{out}' with (format csv, header)")
    assert said == "COPY 3\n"
    assert out.read_text() == "user_id,size\nada,1\nbo,2\ncy,3\n"
    assert psql("-c", "COPY (SELECT 'a,\"b' AS x, NULL AS y) TO STDOUT CSV") == '"a,""b",\n'
    assert psql("-c", "COPY (SELECT E'a\\tb\\\\' AS x, NULL AS y) TO STDOUT") == "a\\tb\\\\\t\\N\n"
    assert psql("-c", "COPY clicks (size) TO STDOUT") == "1\n2\n3\n"


def test_statements_of_ksqldb_pass_as_they_are(psql: Psql) -> None:
    made = "CREATE STREAM big AS SELECT user_id, size FROM clicks WHERE size > 1 EMIT CHANGES;"
    assert psql("-c", made, "-c", "DROP STREAM big DELETE TOPIC") == "CREATE STREAM\nDROP STREAM\n"
    assert "CLICKS" in psql("-At", "-c", "SHOW STREAMS")
    assert "SIZE|INTEGER|" in psql("-At", "-c", "DESCRIBE clicks")
    windowed = (
        "SELECT user_id, COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY user_id EMIT CHANGES LIMIT 1"
    )
    assert psql("-At", "-c", "SET auto.offset.reset = 'earliest'", "-c", windowed).startswith("SET\nada|1|")


def test_several_statements_in_one_text_end_at_the_first_error(psql: Psql) -> None:
    assert psql("-At", "-c", "SELECT 1; SELECT nope FROM clicks; SELECT 2").startswith("1\nERROR:  ")


ASSERTED = {
    "ASSERT TOPIC clicks WITH (partitions=1) TIMEOUT 5 SECONDS": "ASSERT\n",
    "ASSERT NOT EXISTS TOPIC nope": "ASSERT\n",
    "ASSERT TOPIC nope TIMEOUT 0 SECONDS": "P0004: Topic nope does not exist",
    "ASSERT SCHEMA SUBJECT nope TIMEOUT 0 SECONDS": "P0004: Schema with subject name nope does not exist",
    "ASSERT STREAM clicks (user_id STRING KEY, size BIGINT) WITH (value_format='JSON')": "P0004: ",
    "ASSERT VALUES clicks (user_id, size) VALUES ('ada', 7)": "P0004: ",
}


@pytest.mark.parametrize("statement", ASSERTED)
def test_what_is_asserted_holds_or_is_an_error_of_its_own(psql: Psql, statement: str) -> None:
    said = psql("-v", "VERBOSITY=verbose", "-c", statement)
    assert said.removeprefix("ERROR:  ").startswith(ASSERTED[statement])
    assert said.startswith("ERROR") == (ASSERTED[statement] != "ASSERT\n")


REFUSED = {
    "COPY clicks TO PROGRAM 'cat > /tmp/x'": "runs no programs",
    "COPY (SELECT 1) TO PROGRAM 'id'": "runs no programs",
    "COPY clicks FROM PROGRAM 'id'": "runs no programs",
    "COPY clicks TO '/tmp/x'": "writes no files",
    "COPY clicks FROM '/etc/passwd'": "reads no files for its clients",
    "SELECT pg_read_file('/etc/passwd')": "pg_read_file() does not exist",
    "SELECT pg_ls_dir('/')": "pg_ls_dir() does not exist",
    "SELECT lo_import('/etc/passwd')": "lo_import() does not exist",
    "SELECT * FROM read_csv('/etc/passwd')": "does not exist",
    "SELECT * FROM read_text('/etc/passwd')": "does not exist",
    "SELECT * FROM '/etc/passwd'": "ERROR",
    "SELECT getenv('HOME')": "getenv() does not exist",
    "SELECT * FROM pg_class, duckdb_settings()": "does not exist",
    "SELECT * FROM pg_class JOIN duckdb_secrets() ON true": "does not exist",
    "SELECT * FROM pg_shadow": "does not exist",
    "WITH x AS (DELETE FROM pg_class RETURNING 1) SELECT 1": "ERROR",
    "SELECT 1 INTO x": "not supported",
    "SELECT pg_sleep(100)": "pg_sleep() does not exist",
    "SELECT query_table('pg_class')": "does not exist",
    "LOAD 'x.so'": "is not a statement of this server",
    "DO $$ begin end $$": "is not a statement of this server",
    "SET ROLE root": "changing the user is not supported",
    "SET SESSION AUTHORIZATION root": "changing the user is not supported",
    "UPDATE pg_class SET relname = 'x'": "is not a statement of this server",
    "SET millstream.functions.python.enabled = 'true'": "it is a server property",
    "PREPARE x AS SELECT 1": "is not a statement of this server",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_what_postgresql_allows_and_we_must_not_is_refused(psql: Psql, statement: str) -> None:
    said = psql("-c", statement)
    assert "ERROR:  " in said
    assert REFUSED[statement] in said
    assert "root:" not in said


def test_set_config_sets_what_current_setting_and_show_read(psql: Psql) -> None:
    asked = "SELECT set_config('app.tenant', 'ada', false)", "SELECT current_setting('app.tenant')", "SHOW app.tenant"
    assert psql("-At", *(part for text in asked for part in ("-c", text))) == "ada\nada\nada\n"
    assert psql("-At", "-c", "SELECT set_config('timezone', 'utc', false)", "-c", "SHOW timezone") == "UTC\nUTC\n"
    assert psql("-At", "-c", "SELECT current_setting('app.none', true) IS NULL") == "t\n"
    assert 'unrecognized configuration parameter "app.none"' in psql("-c", "SELECT current_setting('app.none')")
    refused = psql("-c", "SELECT set_config('auto.offset.reset', 'latest', false)")
    assert "HINT:  Write SET auto.offset.reset = 'latest'." in refused
    assert "cannot be changed" in psql("-c", "SELECT set_config('server_version', '16', false)")


def test_set_config_may_be_for_one_transaction_only(psql: Psql) -> None:
    show, change = "SHOW statement_timeout", "SELECT set_config('statement_timeout', '7s', {})"
    usual = psql("-At", "-c", show).strip()
    local, session = change.format("true"), change.format("false")
    inside = psql("-Atq", "-c", "BEGIN", "-c", local, "-c", show, "-c", "COMMIT", "-c", show).split()
    assert inside == ["7s", "7s", usual]
    assert psql("-Atq", "-c", local, "-c", show).split() == ["7s", usual]  # a transaction of its own
    assert psql("-Atq", "-c", session, "-c", show).split() == ["7s", "7s"]
