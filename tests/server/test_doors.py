"""Who gets to the doors: names of hosts, numbers of connections, and the folder on the disk."""

from __future__ import annotations

import contextlib
import socket
import ssl
import stat
import threading
from collections.abc import Generator
from pathlib import Path
from typing import cast
from urllib.parse import quote

import httpx
import pytest
from certificates import make_certificates
from confluent_kafka.admin import AdminClient
from running_server import service_in
from two_engines import TwoEngines
from waiting import eventually
from web_socket import WebSocketClient

from millstream.logcore.log import Log, open_log
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.protocol.wire.frames import write_request_frame
from millstream.logcore.remote import RemoteLog, trusted_address
from millstream.server.config.configuration import ListenAddress
from millstream.server.security.tls import TlsSettings
from millstream.server.service import Service

FLAGS = {
    "http_hosts": ("sql.example.com",), "schema_registry": "127.0.0.1:0",
    "properties": {"ksql.advertised.listener": "http://ksql.example.org:8088"},
}  # fmt: skip


def test_a_server_answers_to_its_own_names_only(tmp_path: Path) -> None:
    with service_in(tmp_path / "data", **FLAGS) as service:
        for address in (service.http_address, service.schema_registry_address):
            for http2 in (False, True):
                with httpx.Client(base_url=f"http://{address}", timeout=60, http1=not http2, http2=http2) as client:
                    for host, status in (
                        ("127.0.0.1:80", 200), ("localhost", 200), ("LOCALHOST.:8088", 200), ("x.localhost", 200),
                        (f"{socket.gethostname()}:1", 200), ("[::1]:8088", 200), ("192.0.2.1", 200),
                        ("sql.example.com", 200), ("ksql.example.org:8088", 200),
                        ("evil.example", 421), ("127.0.0.1.evil.example:8088", 421), ("sql.example.com.evil", 421),
                    ):  # fmt: skip
                        path = "/info" if address is service.http_address else "/subjects"
                        answer = client.get(path, headers={"host": host})
                        assert answer.status_code == status, host
                        if status == 421:
                            assert answer.json()["error_code"] == 42100
                            assert "http_hosts" in answer.json()["message"]


def test_any_name_can_be_allowed(tmp_path: Path) -> None:
    with service_in(tmp_path / "data", http_hosts=("*",)) as service:
        assert httpx.get(f"http://{service.http_address}/info", headers={"host": "evil.example"}).status_code == 200


def test_a_slow_dns_holds_up_neither_the_start_nor_names_that_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()

    def full_name() -> str:
        assert told.wait(60)
        return "machine.example.org"

    monkeypatch.setattr(socket, "getfqdn", full_name)
    statuses: list[int] = []
    with service_in(tmp_path / "data") as service:
        url = f"http://{service.http_address}/info"

        def ask(host: str) -> None:
            statuses.append(httpx.get(url, headers={"host": host}, timeout=60).status_code)

        ask("localhost")
        assert statuses == [200]
        waiting = [threading.Thread(target=ask, args=[name]) for name in ("machine.example.org:1", "evil.example")]
        for each in waiting:
            each.start()
        told.set()
        for each in waiting:
            each.join()
        assert sorted(statuses) == [200, 200, 421]


def test_a_web_socket_names_the_server_too(tmp_path: Path) -> None:
    with service_in(tmp_path / "data", **FLAGS) as service:
        assert _socket_status(service.http_address, "sql.example.com") == "101"
        assert _socket_status(service.http_address, "evil.example") == "403"


def test_a_request_names_the_node_it_is_sent_to_and_is_passed_on_under_any_name(tmp_path: Path) -> None:
    """The node that passes it on has looked at the name; that it is one of the nodes cannot be pretended."""
    with open_log(tmp_path / "log", sync="never") as log, _cluster(log, tmp_path) as cluster:
        engine, other = (server.address for server in cluster.servers)
        assert _info_status(other, "node2.example") == 200
        assert _info_status(engine, "node2.example") == 421
        pretended = {"x-millstream-forwarded": "2", "x-millstream-client": "a 0"}
        assert _info_status(engine, "node2.example", pretended) == 421
        assert _info_status(other, "evil.example") == 421
        assert _socket_status(other, "node2.example") == "101"
        assert _socket_status(engine, "node2.example") == _socket_status(other, "evil.example") == "403"


@contextlib.contextmanager
def _cluster(log: Log, folder: Path) -> Generator[TwoEngines]:
    """Its engine runs at the first server; the second one is known as node2.example."""
    with TwoEngines(log, folder, hosts={2: ("node2.example",)}) as cluster:
        cluster.lead(1)
        eventually(lambda: cluster.runs(1), 60)
        yield cluster


def _info_status(address: ListenAddress, host: str, headers: dict[str, str] | None = None) -> int:
    return httpx.get(f"http://{address}/info", headers={"host": host, **(headers or {})}, timeout=60).status_code


def _socket_status(address: ListenAddress, host: str) -> str:
    request = quote('{"ksql": "SELECT * FROM nobody EMIT CHANGES;"}')
    try:
        with WebSocketClient(address.host, address.port, f"/ws/query?request={request}", {}, named=host):
            return "101"
    except ConnectionError as error:
        return str(error).split()[1]


FEW = {"connections_max": 3, "connections_per_address_max": 3}
PROBES = ("/livez", "/readyz", "/healthcheck", "/chc/live", "/chc/ready")


def test_probes_are_answered_however_many_connections_are_open(tmp_path: Path) -> None:
    with service_in(tmp_path / "data", **FEW) as service, _connections(service.http_address, 3) as held:
        eventually(lambda: _info_status_line(service.http_address) == b"HTTP/1.1 429 Too Many Requests")
        with _connections(service.http_address, 80):  # they say nothing
            for path in PROBES:
                answer = httpx.get(f"http://{service.http_address}{path}", timeout=60)
                assert (answer.status_code, answer.headers["connection"]) == (200, "close"), path
            assert httpx.get(f"http://{service.http_address}/metrics", timeout=60).status_code == 429
        held.close()
        eventually(lambda: httpx.get(f"http://{service.http_address}/metrics", timeout=60).status_code == 200)


def test_probes_are_answered_over_tls_too(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    tls = TlsSettings(certificate=tmp_path / "server.pem", key=tmp_path / "server.key")
    trusting = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    with service_in(tmp_path / "data", tls=tls, **FEW) as service, contextlib.ExitStack() as held:
        for _ in range(3):
            client = held.enter_context(httpx.Client(verify=trusting))
            assert client.get(f"https://{service.http_address}/livez").headers.get("connection") is None
        for path, status in (("/livez", 200), ("/healthcheck", 200), ("/metrics", 429)):
            answer = httpx.get(f"https://{service.http_address}{path}", verify=trusting, timeout=60)
            assert answer.status_code == status


def _info_status_line(address: ListenAddress) -> bytes:
    with socket.create_connection((address.host, address.port), timeout=60) as late:
        late.sendall(b"GET /info HTTP/1.1\r\nhost: localhost\r\n\r\n")
        return late.makefile("rb").readline().strip()


@contextlib.contextmanager
def _connections(address: ListenAddress, count: int) -> Generator[contextlib.ExitStack]:
    """That say nothing."""
    with contextlib.ExitStack() as held:
        for _ in range(count):
            held.enter_context(socket.create_connection((address.host, address.port), timeout=60))
        yield held


@pytest.mark.parametrize("limit", ["kafka_connections_max", "kafka_connections_per_address_max"])
def test_one_client_cannot_take_all_connections_of_kafka(tmp_path: Path, limit: str) -> None:
    """Beyond the limit it may ask for nothing, but Millstream's own processes may, whoever else is there."""
    with service_in(tmp_path / "data", **{limit: 3}) as service:
        with _connections(service.kafka_address, 3), _connections(service.kafka_address, 60):
            eventually(lambda: not _lists_topics(service))
            assert _lists_topics(service, own=True)
        eventually(lambda: _lists_topics(service))
        client = AdminClient({"bootstrap.servers": str(service.kafka_address), "log_level": 0})
        assert client.list_topics(timeout=60).topics


def _lists_topics(service: Service, *, own: bool = False) -> bool:
    """Whether a new connection is answered. In: `own`: it shows the log's secret."""
    if own:
        address = trusted_address(cast(Log, service.engine.log).served, str(service.kafka_address))
        with RemoteLog(address) as ours:
            return "_millstream-command" in ours.topics()
    with socket.create_connection((service.kafka_address.host, service.kafka_address.port), timeout=60) as client:
        client.sendall(b"".join(write_request_frame(Api.METADATA, 1, 1, [b"\x00\x00\x00\x00"])))
        try:
            return client.recv(4) != b""
        except ConnectionError:
            return False


def test_the_data_folder_is_its_users(tmp_path: Path) -> None:
    data = tmp_path / "made" / "data"
    with service_in(data) as service:
        service.engine.log.create_topic("t", 1)
        assert _open_to_others(data) == []
    assert stat.S_IMODE(data.stat().st_mode) == 0o700


def test_a_data_folder_from_earlier_is_tightened(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with service_in(data):
        pass
    for path in (data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with service_in(data):
        assert _open_to_others(data) == []
    data.chmod(0o755)
    (data / "notes.txt").touch(0o644)
    with service_in(data, log_level="warning"):
        assert stat.S_IMODE(data.stat().st_mode) == 0o755, "it is not ours alone"
        assert _open_to_others(data / "log") == []


def _open_to_others(folder: Path) -> list[Path]:
    return [path for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]
