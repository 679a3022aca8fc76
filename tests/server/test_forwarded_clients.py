"""Requests that one node passes on to another: they count as their client's, and only nodes can say whose they are."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from certificates import make_certificates
from two_engines import Access, TwoEngines
from waiting import eventually

from millstream.logcore.log import Log, open_log
from millstream.logcore.protocol.admission import ConnectionLimits, Places
from millstream.server.cluster.forwarded_clients import ForwardedClients
from millstream.server.cluster.forwarding import CLIENT, FORWARDED, Headers
from millstream.server.http.connection_places import ConnectionPlace
from millstream.server.http.errors import RequestRefused
from millstream.server.security.access import CERTIFICATE, AccessSettings, Authenticator
from millstream.server.security.tls import TlsSettings

STREAM = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
PUSH = {"sql": "SELECT k, v FROM s EMIT CHANGES;", "properties": {}}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", sync="never") as opened:
        yield opened


@pytest.fixture
def cluster(log: Log, tmp_path: Path) -> Iterator[TwoEngines]:
    with TwoEngines(log, tmp_path, Access(ConnectionLimits(per_address=2))) as running:
        running.lead(1)
        eventually(lambda: running.runs(1), 60)
        yield running


class Pushes(contextlib.ExitStack):
    """Push queries that go on until this ends."""

    def begin(self, url: str, address: str, headers: dict[str, str] | None = None) -> int:
        """The status. In: `address`: whose connection it is."""
        transport = httpx.HTTPTransport(local_address=address)
        client = self.enter_context(httpx.Client(transport=transport, timeout=60))
        answer = self.enter_context(client.stream("POST", f"{url}/query-stream", json=PUSH, headers=headers))
        return answer.status_code


def test_clients_of_another_node_have_room_of_their_own_each(cluster: TwoEngines) -> None:
    engine, other = (server.url for server in cluster.servers)
    assert httpx.post(f"{engine}/ksql", json={"ksql": STREAM}, timeout=60).status_code == 200
    with Pushes() as pushes:
        through = [pushes.begin(other, f"127.0.0.{client}") for client in (5, 5, 6, 6, 7)]
        assert through == [200] * 5
        assert pushes.begin(engine, "127.0.0.5") == 429
        assert pushes.begin(engine, "127.0.0.7") == 200
        assert pushes.begin(other, "127.0.0.7") == 429, "two already, though one of them is at the other node"
    with Pushes() as pushes:
        eventually(lambda: pushes.begin(engine, "127.0.0.5") == 200)


def test_who_is_no_node_is_counted_as_himself_whoever_he_says_he_is(cluster: TwoEngines) -> None:
    engine = cluster.servers[0].url
    assert httpx.post(f"{engine}/ksql", json={"ksql": STREAM}, timeout=60).status_code == 200
    with Pushes() as pushes:
        said = [{FORWARDED.decode(): "2", CLIENT.decode(): f"10.0.0.{n} {'0' * 64}"} for n in range(3)]
        assert [pushes.begin(engine, "127.0.0.8", headers) for headers in said] == [200, 200, 429]


def scope_of(headers: Headers, client: tuple[str, int] | None = None) -> Any:
    return {"type": "http", "headers": headers, "client": client}


def test_what_a_node_says_of_a_client_is_believed_where_the_secret_is_the_same() -> None:
    said = ForwardedClients("secret", 2).said_of(scope_of([], ("10.0.0.1", 5)))
    assert ForwardedClients("secret", 1).client_of(scope_of(said)) == ("10.0.0.1", ())
    assert ForwardedClients("another", 1).client_of(scope_of(said)) is None
    for index, changed in ((0, b"3"), (1, said[1][1].replace(b"10.0.0.1", b"10.0.0.2")), (1, b""), (1, b"10.0.0.1")):
        forged = list(said)
        forged[index] = (said[index][0], changed)
        assert ForwardedClients("secret", 1).client_of(scope_of(forged)) is None
    assert ForwardedClients("secret", 1).client_of(scope_of([])) is None


def test_what_a_clients_certificate_says_goes_along_and_counts_over_tls() -> None:
    names = ("CN=ana, of Example Ltd", "DNS:ana.example", "CN=Zoë")
    scope = {**scope_of([], ("::1", 5)), "state": {CERTIFICATE: names}}
    said = ForwardedClients("secret", 2).said_of(scope)
    there = ForwardedClients("secret", 1)
    assert there.client_of({**scope_of(said), "scheme": "https"}) == ("::1", names)
    assert there.client_of({**scope_of(said), "scheme": "http"}) == ("::1", ())
    forged = [said[0], (CLIENT, said[1][1].replace(b"ana", b"bob"))]
    assert there.client_of({**scope_of(forged), "scheme": "https"}) is None


def test_a_certificate_says_who_asks_at_every_node(log: Log, tmp_path: Path) -> None:
    make_certificates(tmp_path, "ana")
    files = {"certificate": tmp_path / "server.pem", "key": tmp_path / "server.key", "client_ca": tmp_path / "ca.pem"}
    users = {"ana": {"certificates": ["CN=ana"], "roles": ["all"]}, "node": {"certificates": ["CN=localhost"]}}
    known = AccessSettings.model_validate({"users": users, "roles": {"all": {"admin": True}}})
    tls = TlsSettings.model_validate({**files, "client_certificates": "optional"})
    with TwoEngines(log, tmp_path, Access(tls=tls, users=Authenticator(known))) as cluster:
        cluster.lead(1)
        eventually(lambda: cluster.runs(1), 60)
        for server in cluster.servers:
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
            with httpx.Client(verify=context, timeout=60) as stranger:
                assert stranger.post(f"{server.url}/ksql", json={"ksql": "SHOW STREAMS;"}).status_code == 401
            context.load_cert_chain(tmp_path / "ana.pem", tmp_path / "ana.key")
            with httpx.Client(verify=context, timeout=60) as ana:
                answer = ana.post(f"{server.url}/ksql", json={"ksql": "SHOW STREAMS;"})
                assert answer.status_code == 200, answer.text


def test_a_connection_is_counted_once_wherever_it_is_counted() -> None:
    places = Places(ConnectionLimits(total=3, per_address=1))
    first, second = ConnectionPlace(places, "node"), ConnectionPlace(places, "a")
    first.count_as("b")
    first.count_as("b")
    assert (len(places), places.has_room("node"), places.has_room("b")) == (2, True, False)
    third = ConnectionPlace(places, "node")
    with pytest.raises(RequestRefused, match="a has too many open connections"):
        third.count_as("a")
    assert not places.has_room("somebody else")
    for place in (first, second, third):
        place.leave()
    assert len(places) == 0
