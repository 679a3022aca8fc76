"""Who gets in at PostgreSQL's port, and what they see: SCRAM, passwords, tokens, TLS, rights, limits."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from certificates import make_certificates
from cheap_hashes import cheap_hash
from running_server import service_in

from millstream.server.config.configuration import InvalidConfiguration, load_configuration
from millstream.server.engine.session import Session
from millstream.server.security.access import hash_token, new_token
from millstream.server.security.scram_texts import scram_texts
from millstream.server.service import Service

psycopg = pytest.importorskip("psycopg")

TOKEN = new_token()
ACCESS = {
    "users": {
        "root": {"password": cheap_hash("open sesame"), "roles": ["admin"]},
        "ana": {"scram": scram_texts("pencil"), "tokens": [hash_token(TOKEN)], "roles": ["analyst"]},
        "tok": {"tokens": [hash_token(TOKEN + "x")], "roles": ["analyst"]},
        "nobody": {"password": cheap_hash("x"), "roles": []},
    },
    "roles": {"admin": {"admin": True}, "analyst": {"read": ["pub*"]}},
}
STATEMENTS = """
CREATE STREAM pub (id INT KEY, v INT) WITH (kafka_topic='pub', value_format='JSON', partitions=1);
CREATE STREAM hidden (id INT KEY, v INT) WITH (kafka_topic='hidden', value_format='JSON', partitions=1);
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data"), pg="127.0.0.1:0", access=ACCESS) as started:
        started.engine.execute(STATEMENTS, Session())
        yield started


def connect(service: Service, user: str, password: str, **more: Any) -> Any:
    assert service.pg_address is not None
    port = service.pg_address.port
    given = {"sslmode": "disable", "autocommit": True, **more}
    return psycopg.connect(host="127.0.0.1", port=port, user=user, password=password, dbname="d", **given)


@pytest.mark.parametrize(
    ("user", "password"),
    [("root", "open sesame"), ("ana", "pencil"), ("tok", TOKEN + "x")],
    ids=["password", "scram", "token"],  # a token is another one in each process
)
def test_users_log_in_by_password_scram_or_token(service: Service, user: str, password: str) -> None:
    with connect(service, user, password) as connection:
        assert connection.execute("SELECT current_user").fetchone() == (user,)


def test_scram_is_what_a_user_with_a_credential_is_asked_for(service: Service) -> None:
    with connect(service, "ana", "pencil", require_auth="scram-sha-256") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize(
    ("user", "password"),
    [("root", "wrong"), ("ana", "wrong"), ("who", "pencil"), ("someone else", "x"), ("nobody", "x"), ("root", TOKEN)],
    ids=["wrong", "wrong scram", "unknown", "unknown with a space", "without a role", "another's token"],
)
def test_whoever_is_not_known_stays_outside(service: Service, user: str, password: str) -> None:
    with pytest.raises(psycopg.OperationalError, match=r"wrong|no role"):
        connect(service, user, password)


def test_what_a_user_may_not_read_is_nowhere(service: Service) -> None:
    with connect(service, "ana", "pencil") as connection:
        assert connection.execute("SELECT relname FROM pg_class WHERE relkind = 'r'").fetchall() == [("pub",)]
        assert connection.execute("SELECT table_name FROM information_schema.tables").fetchall() == [("pub",)]
        assert connection.execute("SELECT to_regclass('hidden')").fetchone() == (None,)
        assert connection.execute("SELECT * FROM pub").fetchall() == []
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM hidden")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("INSERT INTO pub VALUES (1, 2)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DROP STREAM pub")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DECLARE c CURSOR FOR SELECT * FROM hidden EMIT CHANGES")
    with connect(service, "root", "open sesame") as connection:
        assert connection.execute("SELECT COUNT(*) FROM pg_class WHERE relname = 'hidden'").fetchone() == (1,)


def test_tls_is_spoken_and_nobody_logs_in_without_it(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    tls = {"certificate": tmp_path / "server.pem", "key": tmp_path / "server.key"}
    with service_in(tmp_path / "data", pg="127.0.0.1:0", access=ACCESS, tls=tls) as service:
        with connect(service, "ana", "pencil", sslmode="require") as connection:
            assert connection.pgconn.ssl_in_use
            assert connection.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(psycopg.OperationalError, match="requires TLS"):
            connect(service, "ana", "pencil", sslmode="disable")


def test_passwords_do_not_travel_in_plain_text() -> None:
    with pytest.raises(InvalidConfiguration, match=r"plain text to 0\.0\.0\.0:5432"):
        load_configuration(None, {"data": "x", "pg": "0.0.0.0:5432", "access": ACCESS})


def test_a_node_of_a_cluster_says_that_it_does_not_speak_it(tmp_path: Path) -> None:
    cluster = {"node": 1, "cluster": "1@127.0.0.1:1"}
    with pytest.raises(InvalidConfiguration, match="does not speak PostgreSQL's protocol"):
        service_in(tmp_path, pg="127.0.0.1:0", **cluster).start()


def test_more_connections_than_are_allowed_are_told_so(tmp_path: Path) -> None:
    with service_in(tmp_path, pg="127.0.0.1:0", pg_connections_per_address_max=2) as service:
        held = [connect(service, "a", "") for _ in range(2)]
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            connect(service, "a", "")
        for connection in held:
            connection.close()


def test_a_cancel_request_with_the_wrong_secret_ends_nothing(service: Service) -> None:
    assert service.pg_address is not None
    with connect(service, "ana", "pencil") as connection:
        number = connection.info.backend_pid
        request = struct.pack("!IIII", 16, 80877102, number, 12345)

        def ask() -> None:
            assert service.pg_address is not None
            with socket.create_connection(("127.0.0.1", service.pg_address.port), timeout=60) as other:
                other.sendall(request)
                assert other.recv(10) == b""

        asking = threading.Thread(target=ask)
        asking.start()
        asking.join()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_the_end_of_the_server_is_told(tmp_path: Path) -> None:
    with service_in(tmp_path, pg="127.0.0.1:0") as service:
        connection = connect(service, "a", "")
    with pytest.raises(psycopg.errors.AdminShutdown):
        connection.execute("SELECT 1")


def test_what_is_sent_here_counts_for_the_bytes_of_an_hour(tmp_path: Path) -> None:
    properties = {"ksql.query.pull.max.hourly.bandwidth.megabytes": "1"}
    with service_in(tmp_path, pg="127.0.0.1:0", properties=properties) as service:
        service.engine.execute(STATEMENTS, Session())
        with connect(service, "ana", "pencil") as connection:
            asked = f"SELECT '{'x' * 300_000}' AS x FROM pub"
            service.engine.execute("INSERT INTO pub VALUES (1, 1);" * 2, Session())
            with connection.cursor() as cursor, cursor.copy(f"COPY ({asked}) TO STDOUT") as copied:
                assert sum(map(len, copied)) > 600_000
            with connection.transaction():
                connection.execute(f"DECLARE c CURSOR FOR {asked}")
                assert len(connection.execute("FETCH 2 FROM c").fetchall()) == 2
            with pytest.raises(psycopg.Error, match="bandwidth limit of this hour"):
                connection.execute(asked)


def test_a_client_that_leaves_to_ask_for_its_password_is_no_error(service: Service) -> None:
    """psql connects first without a password, and leaves when it is asked for one."""
    with structlog.testing.capture_logs() as lines:
        for _ in range(2):
            with pytest.raises(psycopg.OperationalError, match="no password supplied"):
                connect(service, "ana", "")
        with connect(service, "ana", "pencil") as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    assert [line for line in lines if line["log_level"] in ("warning", "error")] == []
