"""The client half over HTTP, against a server in this process."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from certificates import make_certificates
from cheap_hashes import cheap_hash
from running_server import service_in
from waiting import inside, once

from millstream.server.client import HttpClient, RemoteError, Rows, ServerUnreachable, connect, log_in


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service_in(tmp_path_factory.mktemp("data")) as service:
        url = f"http://{service.http_address}"
        connect(url).execute(
            "CREATE STREAM s (id INT KEY, d DECIMAL(4, 2), x DOUBLE, a ARRAY<INT>) "
            "WITH (kafka_topic='s', value_format='JSON', partitions=1);"
            "INSERT INTO s VALUES (1, 3.50, 0.5, ARRAY[1, 2]);"
        )
        yield url


@pytest.fixture
def client(url: str) -> HttpClient:
    return connect(url)


def test_rows_come_with_their_columns_and_decimals_with_their_digits(client: HttpClient) -> None:
    rows = client.query("SELECT * FROM s;")
    assert rows.column_names == ("ID", "D", "X", "A")
    assert rows.column_types == ("INTEGER", "DECIMAL(4, 2)", "DOUBLE", "ARRAY<INTEGER>")
    (row,) = rows
    assert repr(row.values) == repr((1, Decimal("3.50"), 0.5, [1, 2]))
    assert rows.final_message == "Query Completed"


def test_a_double_beside_a_decimal_inside_of_a_value_stays_a_double(client: HttpClient) -> None:
    (row,) = client.query("SELECT STRUCT(d := d, x := 1E300, y := -1E-300) FROM s;")
    assert repr(row.values[0]) == repr({"D": Decimal("3.50"), "X": 1e300, "Y": -1e-300})


def test_what_is_set_and_defined_holds_for_the_statements_after_it(client: HttpClient) -> None:
    client.execute("SET 'auto.offset.reset' = 'earliest'; DEFINE kind = 'x'; DEFINE other = '${kind}y';")
    assert client.variables == {"kind": "x", "other": "xy"}
    assert len(list(client.query("SELECT ${kind} FROM s EMIT CHANGES LIMIT 1;"))) == 1
    client.execute("UNSET 'auto.offset.reset'; UNDEFINE kind;")
    assert (client.properties, client.variables) == ({"millstream.pull.full.sql": "true"}, {"other": "xy"})


def test_closing_from_another_thread_ends_a_push_query(client: HttpClient) -> None:
    rows = client.query("SELECT * FROM s EMIT CHANGES;")
    once(inside(Rows.__iter__), rows.close)
    assert list(rows) == []


def test_refusals_carry_the_servers_message_and_code(client: HttpClient) -> None:
    with pytest.raises(RemoteError) as refused:
        client.execute("DROP STREAM nope;")
    assert refused.value.error_code == 40001
    assert refused.value.message.startswith("Stream NOPE does not exist.\n  1 | ")
    with pytest.raises(RemoteError, match=r"does not exist|not found") as refused:
        client.execute("SHOW STREAMS; DROP CONNECTOR nope;")
    assert [entity["@type"] for entity in refused.value.entities] == ["streams"]
    with pytest.raises(RemoteError, match="cannot be resolved"):
        client.query("SELECT nope FROM s;")


def test_urls_that_lead_nowhere_are_explained() -> None:
    for url in ("http://127.0.0.1:1", "ftp://a", "http://", "http://a:b"):
        with pytest.raises(ServerUnreachable) as refused:
            connect(url)
        assert refused.value.hint


def test_another_listener_than_that_of_http_is_said_so(tmp_path: Path) -> None:
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    make_certificates(certificates)
    tls = {"certificate": certificates / "server.pem", "key": certificates / "server.key"}
    with service_in(tmp_path / "plain", pg="127.0.0.1:0") as plain, service_in(tmp_path / "tls", tls=tls) as secure:
        for url, message, hint in (
            (f"http://{plain.kafka_address}", "closed the connection without an answer", "port of its HTTP listener"),
            (f"http://{plain.pg_address}", "does not speak HTTP", "port of the server's HTTP listener"),
            (f"https://{plain.http_address}", "does not speak TLS", "Write http://"),
            (f"http://{secure.http_address}", "closed the connection without an answer", "write https://"),
            (f"https://{secure.http_address}", "is not trusted: unable to get local issuer", "SSL_CERT_FILE"),
        ):
            with pytest.raises(ServerUnreachable, match=message) as refused:
                connect(url)
            assert hint in (refused.value.hint or "")
        trusting = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        assert HttpClient(f"https://{secure.http_address}", tls=trusting).info()["serverStatus"] == "RUNNING"


def test_a_user_whom_the_server_does_not_know_is_refused_at_once(tmp_path: Path) -> None:
    access = {"users": {"ana": {"password": cheap_hash("x"), "roles": ["reader"]}}}
    access["roles"] = {"reader": {"read": ["a"]}}
    with service_in(tmp_path, access=access) as service:
        assert log_in(f"http://ana:x@{service.http_address}").properties
        with pytest.raises(RemoteError, match="the name, the password or the token is wrong"):
            log_in(f"http://ana:y@{service.http_address}")
        with pytest.raises(RemoteError, match="this server requires authentication") as refused:
            log_in(f"http://{service.http_address}")
        assert "MILLSTREAM_TOKEN" in (refused.value.hint or "")
