"""Users over HTTP: passwords, tokens, and what each role may do; TLS, also with certificates of clients."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from certificates import make_certificates
from cheap_hashes import cheap_hash
from running_server import ENVIRONMENT, ServerProcess, millstream, service_in
from web_socket import WebSocketClient

from millstream.errors import MillstreamError
from millstream.server.client import HttpClient
from millstream.server.config.configuration import InvalidConfiguration, load_configuration
from millstream.server.config.configuration_check import check_file
from millstream.server.security import access
from millstream.server.security.access import hash_token, new_token
from millstream.server.security.tls import CannotUseTls
from millstream.server.service import Service

TOKEN = new_token()
ACCESS = {
    "users": {
        "root": {"password": cheap_hash("open sesame"), "roles": ["admin"]},
        "ana": {"tokens": [hash_token(TOKEN)], "roles": ["analyst"]},
        "nobody": {"password": cheap_hash("x"), "roles": []},
    },
    "roles": {
        "admin": {"admin": True},
        "analyst": {"read": ["pub*", "MINE*"], "insert": ["pub_in", "mine*"], "ddl": ["mine*"]},
    },
}
DDL = """
CREATE STREAM pub (id INT KEY, v INT) WITH (kafka_topic='pub', value_format='JSON', partitions=1);
CREATE STREAM pub_in (id INT KEY, v INT) WITH (kafka_topic='pub_in', value_format='JSON', partitions=1);
CREATE STREAM secret (id INT KEY, v INT) WITH (kafka_topic='secret', value_format='JSON', partitions=1);
CREATE TABLE secrets AS SELECT id, COUNT(*) AS n FROM secret GROUP BY id;
INSERT INTO secret VALUES (1, 42);
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data"), access=ACCESS) as started:
        yield started


@pytest.fixture(scope="module")
def root(service: Service) -> Iterator[httpx.Client]:
    auth = httpx.BasicAuth("root", "open sesame")
    with httpx.Client(base_url=f"http://{service.http_address}", timeout=60, auth=auth) as client:
        assert client.post("/ksql", json={"ksql": DDL}).status_code == 200
        yield client


@pytest.fixture(scope="module")
def ana(service: Service, root: httpx.Client) -> Iterator[httpx.Client]:
    del root
    headers = {"authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=f"http://{service.http_address}", timeout=60, headers=headers) as client:
        yield client


def code(response: httpx.Response) -> int:
    return 20000 if response.status_code == 200 else response.json()["error_code"]


def test_who_does_not_say_who_they_are_sees_the_probes_only(service: Service, root: httpx.Client) -> None:
    del root
    with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client:
        for path in ("/info", "/healthcheck", "/livez", "/readyz", "/chc/live", "/openapi.json"):
            assert client.get(path).status_code == 200
        for path in ("/metrics", "/status", "/clusterStatus", "/is_valid_property/auto.offset.reset"):
            refused = client.get(path)
            assert (refused.status_code, code(refused)) == (401, 40100)
            assert refused.headers["www-authenticate"].startswith("Basic ")
        for path in ("/ksql", "/query", "/query-stream", "/inserts-stream", "/ksql/terminate", "/v1/sources/PUB/rows"):
            assert code(client.post(path, json={"ksql": "SHOW STREAMS;"})) == 40100
        for header in ("Basic !", "Basic cm9vdDp3cm9uZw==", "Basic bm9uZTp4", "Bearer x", "Digest x", "Bearer", "é"):
            refused = client.get("/metrics", headers={b"authorization": header.encode()})
            assert code(refused) == 40100, header
        assert code(client.get("/metrics", auth=("nobody", "x"))) == 40300


def test_a_password_is_hashed_again_only_once_in_a_while(root: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    fits = access.password_fits
    monkeypatch.setattr(access, "password_fits", lambda given, kept: hashed.append(given) or fits(given, kept))
    for _ in range(3):
        assert root.get("/metrics").status_code == 200
        assert root.get("/metrics", auth=("root", "wrong")).status_code == 401
    assert hashed == ["wrong"] * 3


@pytest.mark.parametrize(
    ("sql", "verdict"),
    [
        ("SHOW STREAMS;", 20000),
        ("SET 'auto.offset.reset'='earliest'; DEFINE a = 'b';", 20000),
        ("DESCRIBE pub;", 20000),
        ("DESCRIBE secret;", 40300),
        ("INSERT INTO pub_in VALUES (1, 2);", 20000),
        ("INSERT INTO pub VALUES (1, 2);", 40300),
        ("INSERT INTO SECRET VALUES (1, 2);", 40300),
        ("INSERT INTO ${x} VALUES (1, 2);", 40300),
        ("DELETE FROM secrets WHERE id = 1;", 40300),
        ("CREATE STREAM mine1 AS SELECT * FROM pub;", 20000),
        ("CREATE STREAM mine2 AS SELECT * FROM secret;", 40300),
        ("CREATE STREAM mine2 AS SELECT * FROM (SELECT * FROM secret) x;", 40300),
        ("CREATE STREAM mine2 AS WITH secret AS (SELECT * FROM secret) SELECT * FROM secret;", 40300),
        ("CREATE STREAM mine2 AS SELECT p.id, s.v FROM pub p JOIN secret s WITHIN 1 DAY ON p.id = s.id;", 40300),
        ("CREATE STREAM mine2 WITH (kafka_topic='secret') AS SELECT * FROM pub;", 40300),
        ("CREATE STREAM mine3 (v INT) WITH (kafka_topic='secret', value_format='JSON');", 40300),
        ("CREATE STREAM mine3 (v INT) WITH (kafka_topic='_millstream-command', value_format='KAFKA');", 40300),
        ("CREATE STREAM mine4 (v INT) WITH (kafka_topic='mine4', value_format='JSON', partitions=1);", 20000),
        ("CREATE STREAM other (v INT) WITH (kafka_topic='mine5', value_format='JSON', partitions=1);", 40300),
        ("DROP STREAM pub;", 40300),
        ("TERMINATE CTAS_SECRETS_3;", 40300),
        ("TERMINATE ALL;", 40300),
        ("PAUSE ctas_secrets_3;", 40300),
        ("EXPLAIN CTAS_SECRETS_3;", 40300),
        ("EXPLAIN SELECT * FROM secret EMIT CHANGES;", 40300),
        ("ASSERT VALUES secret (id, v) VALUES (1, 42);", 40300),
        ("CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS 'return x';", 40300),
    ],
)
def test_statements_need_the_rights_of_their_names(ana: httpx.Client, sql: str, verdict: int) -> None:
    assert code(ana.post("/ksql", json={"ksql": sql, "sessionVariables": {"x": "secret"}})) == verdict


@pytest.mark.parametrize(
    ("sql", "verdict"),
    [
        ("SELECT * FROM pub EMIT CHANGES LIMIT 0;", 20000),
        ("SELECT * FROM secrets;", 40300),
        ("SELECT * FROM secret EMIT CHANGES;", 40300),
        ("PRINT secret FROM BEGINNING LIMIT 1;", 40300),
        ("PRINT '_millstream-command' FROM BEGINNING LIMIT 1;", 40300),
    ],
)
@pytest.mark.parametrize("route", ["/query", "/query-stream"])
def test_queries_need_the_right_to_read(ana: httpx.Client, route: str, sql: str, verdict: int) -> None:
    assert code(ana.post(route, json={"ksql": sql})) == verdict


def test_other_routes_need_rights_too(ana: httpx.Client, root: httpx.Client) -> None:
    for target, verdict in (("secret", 40300), ("pub", 40300), ("pub_in", 20000)):
        lines = json.dumps({"target": target}) + '\n{"id": 1}\n'
        assert code(ana.post("/inserts-stream", content=lines)) == verdict
    arrow = {"content-type": "application/vnd.apache.arrow.stream"}
    assert code(ana.post("/v1/sources/SECRET/rows", content=b"", headers=arrow)) == 40300
    assert code(ana.post("/ksql/terminate", json={})) == 40300
    assert code(ana.get("/metrics")) == code(root.get("/metrics")) == 20000


def test_web_sockets_need_rights_too(service: Service, root: httpx.Client) -> None:
    del root
    address = service.http_address

    def asked(name: str, **headers: str) -> list[str | int]:
        request = quote(json.dumps({"ksql": f"SELECT * FROM {name} EMIT CHANGES LIMIT 0;"}))
        with WebSocketClient(address.host, address.port, f"/ws/query?request={request}", headers) as socket:
            return list(socket.messages())

    assert asked("pub", authorization=f"Bearer {TOKEN}")[-1] == 1000
    assert asked("secret", authorization=f"Bearer {TOKEN}") == [1003]
    with pytest.raises(ConnectionError, match="403"):
        asked("pub")


def test_our_own_client_says_who_it_is(service: Service, root: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    del root
    client = HttpClient(f"http://root:open%20sesame@{service.http_address}")
    assert client.execute("SHOW STREAMS;")[0]["@type"] == "streams"
    assert "sesame" not in client.address
    monkeypatch.setenv("MILLSTREAM_TOKEN", TOKEN)
    client = HttpClient(f"http://{service.http_address}")
    with pytest.raises(MillstreamError, match="no right"):
        client.query("SELECT * FROM secrets;")


def test_neither_statements_nor_passwords_are_logged(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(
        f"""
        log_level = "debug"
        log_format = "json"
        [access.users.root]
        password = "{ACCESS["users"]["root"]["password"]}"
        roles = ["admin"]
        [access.roles.admin]
        admin = true
        """
    )
    with ServerProcess(tmp_path / "data", "--config", str(tmp_path / "server.toml")) as server:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            text = {"ksql": "SET 'ksql.functions.key'='hunter2'; SELEKT 'hunter2';"}
            client.post("/ksql", json=text, auth=("root", "open sesame"))
            client.post("/ksql", json=text, auth=("root", "hunter2"), headers={"x-request-id": "asked-1"})
        server.process.send_signal(signal.SIGTERM)
        errors = server.process.communicate(timeout=60)[1]
    lines = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    wanted = {"request_id": "asked-1", "status": 401, "path": "/ksql"}
    assert any(wanted.items() <= line.items() for line in lines), errors
    assert "hunter2" not in errors
    assert "sesame" not in errors
    assert "scrypt" not in errors


@pytest.mark.parametrize(
    ("access", "words"),
    [
        ({"users": {"a": {"password": "hunter2"}}}, "millstream access password"),
        ({"users": {"a": {"tokens": ["hunter2"]}}}, "millstream access token"),
        ({"users": {"a": {"roles": ["r"]}}}, 'has the unknown role "r"'),
        ({"users": {}}, "has no users"),
        ({"users": {"a": {"passwort": "hunter2"}}}, "passwort"),
    ],
)
def test_a_bad_list_of_users_is_refused_without_repeating_a_secret(access: Any, words: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        load_configuration(None, {"data": "d", "access": access})
    assert words in refused.value.render()
    assert "hunter2" not in refused.value.render()


def test_passwords_do_not_travel_in_plain_text_unless_somebody_says_so() -> None:
    with pytest.raises(InvalidConfiguration, match="plain text"):
        load_configuration(None, {"data": "d", "access": ACCESS, "http": "0.0.0.0:8088"})
    load_configuration(None, {"data": "d", "access": {**ACCESS, "plain_text": True}, "http": "0.0.0.0:8088"})


def test_the_commands_make_hashes_that_the_configuration_takes() -> None:
    made = millstream("access", "password", input="sesame\n").stdout.strip()
    token, hashed = (line.split()[1] for line in millstream("access", "token").stdout.splitlines())
    assert hash_token(token) == hashed
    users = {"a": {"password": made, "tokens": [hashed]}}
    assert load_configuration(None, {"data": "d", "access": {"users": users}}).access is not None
    assert millstream("access", "password", input="\n").returncode == 1


# ------------------------------------------------------------------ TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem signs server.pem and client.pem; stranger.pem has signed itself. Keys are in files of their own."""
    folder = tmp_path_factory.mktemp("certificates")

    make_certificates(folder, "client")
    subprocess.run(
        ["openssl", "ec", "-in", "server.key", "-aes256", "-passout", "pass:hunter2", "-out", "locked.key"],
        cwd=folder, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return folder


def trusting(certificates: Path, client: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    if client is not None:
        context.load_cert_chain(certificates / f"{client}.pem", certificates / f"{client}.key")
    return context


def test_tls_speaks_http_1_and_2_by_alpn(certificates: Path, tmp_path: Path) -> None:
    tls = {"certificate": certificates / "server.pem", "key": certificates / "server.key"}
    with service_in(tmp_path, tls=tls) as service:
        assert f"http: listening on https://{service.http_address}" in service.announcements()
        url = f"https://{service.http_address}/info"
        for http2, version in ((False, "HTTP/1.1"), (True, "HTTP/2")):
            with httpx.Client(verify=trusting(certificates), http2=http2, timeout=60) as client:
                response = client.get(url)
                assert (response.status_code, response.http_version) == (200, version)
        with pytest.raises(httpx.TransportError):
            httpx.get(url.replace("https", "http"))
        curl = ["curl", "-sS", "--http2", "--cacert", str(certificates / "ca.pem"), "-o", "/dev/null"]
        ended = subprocess.run([*curl, "-w", "%{http_version}", url], capture_output=True, text=True, timeout=60)
        assert ended.stdout == "2", ended.stderr


def test_clients_without_a_certificate_that_is_known_are_turned_away(certificates: Path, tmp_path: Path) -> None:
    tls = {"certificate": certificates / "server.pem", "key": certificates / "server.key"}
    with service_in(tmp_path, tls={**tls, "client_ca": certificates / "ca.pem"}) as service:
        url = f"https://{service.http_address}/info"
        assert httpx.get(url, verify=trusting(certificates, "client")).status_code == 200
        for client in (None, "stranger"):
            with pytest.raises(httpx.TransportError):
                httpx.get(url, verify=trusting(certificates, client))


@pytest.mark.parametrize("http2", [False, True])
def test_a_certificate_says_who_asks_and_what_they_may_do(certificates: Path, tmp_path: Path, http2: bool) -> None:
    tls = {"certificate": certificates / "server.pem", "key": certificates / "server.key"}
    tls |= {"client_ca": certificates / "ca.pem", "client_certificates": "optional"}
    users = {"collector": {"certificates": ["CN=client"], "roles": ["analyst"]}}
    with service_in(tmp_path, tls=tls, access={**ACCESS, "users": {**ACCESS["users"], **users}}) as service:
        url = f"https://{service.http_address}/ksql"
        for certificate, sql, code in (
            ("client", "SHOW STREAMS;", None),
            ("client", "DROP STREAM IF EXISTS secret;", 40300),
            (None, "SHOW STREAMS;", 40100),
        ):
            with httpx.Client(verify=trusting(certificates, certificate), http2=http2, timeout=60) as client:
                answer = client.post(url, json={"ksql": sql})
                assert answer.status_code == (200 if code is None else code // 100), answer.text


def test_the_certificate_of_a_node_that_passes_a_request_on_says_nothing(certificates: Path, tmp_path: Path) -> None:
    tls = {"certificate": certificates / "server.pem", "key": certificates / "server.key"}
    tls |= {"client_ca": certificates / "ca.pem", "client_certificates": "optional"}
    users = {"node": {"certificates": ["CN=client"], "roles": ["analyst"]}}
    with service_in(tmp_path, tls=tls, access={**ACCESS, "users": {**ACCESS["users"], **users}}) as service:
        url = f"https://{service.http_address}/ksql"
        with httpx.Client(verify=trusting(certificates, "client"), timeout=60) as node:
            passed_on = {"x-millstream-forwarded": "2"}
            assert node.post(url, json={"ksql": "SHOW STREAMS;"}).status_code == 200
            answer = node.post(url, json={"ksql": "SHOW STREAMS;"}, headers=passed_on)
            assert answer.status_code == 401
            with_token = {**passed_on, "authorization": f"Bearer {TOKEN}"}
            assert node.post(url, json={"ksql": "SHOW STREAMS;"}, headers=with_token).status_code == 200


def test_ksqldbs_names_of_tls_settings_are_understood(certificates: Path, tmp_path: Path) -> None:
    both = tmp_path / "keystore.pem"
    both.write_text((certificates / "server.pem").read_text() + (certificates / "locked.key").read_text())
    file = tmp_path / "server.toml"
    file.write_text(
        f"""
        listeners = "https://127.0.0.1:0"
        ssl.keystore.location = "{both}"
        ssl.keystore.type = "PEM"
        ssl.key.password = "hunter2"
        ssl.truststore.location = "{certificates / "ca.pem"}"
        ssl.client.authentication = "REQUESTED"
        """
    )
    configuration = load_configuration(file, {"data": tmp_path / "data", "kafka": "127.0.0.1:0", "executor": "duckdb"})
    assert "hunter2" not in repr(configuration)
    with Service(configuration) as service:
        url = f"https://{service.http_address}/info"
        for client in (None, "client"):
            assert httpx.get(url, verify=trusting(certificates, client)).status_code == 200


def test_a_certificate_that_does_not_work_is_one_sentence(certificates: Path, tmp_path: Path) -> None:
    bad = (
        {"certificate": certificates / "none.pem", "key": certificates / "server.key"},
        {"certificate": certificates / "server.pem", "key": certificates / "client.key"},
        {"certificate": certificates / "server.pem", "key": certificates / "locked.key"},
        {"certificate": certificates / "server.pem", "key": certificates / "locked.key", "key_password": "wrong"},
    )
    for tls in bad:
        with pytest.raises(CannotUseTls, match="cannot be used") as refused, service_in(tmp_path, tls=tls):
            raise AssertionError("it started")
        assert ("none.pem: no such file or directory" in refused.value.message) == (tls is bad[0])


def test_config_check_opens_the_key_with_the_password_of_the_environment(
    certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "millstream.toml"
    file.write_text(f'[tls]\ncertificate = "{certificates / "server.pem"}"\nkey = "{certificates / "locked.key"}"\n')
    assert [each.name for each in check_file(file)] == ["tls"]
    monkeypatch.setenv("MILLSTREAM_TLS__KEY_PASSWORD", "hunter2")
    assert check_file(file) == []
    file = tmp_path / "jks.toml"
    file.write_text('ssl.keystore.location = "a.jks"\nssl.keystore.type = "JKS"\n')
    ended = millstream("server", "--data", str(tmp_path), "--config", str(file), env=ENVIRONMENT)
    assert (ended.returncode, "only PEM can be read" in ended.stderr) == (1, True)


def test_the_users_of_the_manual_can_be_configured(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
    example = page.partition("## Users")[2].partition("```toml\n")[2].partition("```")[0]
    example = example.replace("scrypt$…", cheap_hash("x")).replace("sha256$…", hash_token("y"))
    file = tmp_path / "server.toml"
    file.write_text(example)
    configured = load_configuration(file, {"data": tmp_path}).access
    assert configured is not None
    assert configured.users.keys() == {"root", "dashboard"}
