"""`POST /hooks/<connector>` over real sockets: the signature takes the place of a login."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from running_server import service_in
from waiting import eventually

from millstream.server.security.access import hash_token

ACCESS = {"users": {"root": {"tokens": [hash_token("root")], "roles": ["admin"]}}, "roles": {"admin": {"admin": True}}}
CREATE = """CREATE SOURCE CONNECTOR pushes WITH ('connector.class'='webhook', 'topic'='pushes',
    'signature.scheme'='github', 'signature.secret'='geheim', 'max.body.bytes'=1000);"""


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with service_in(tmp_path_factory.mktemp("data"), access=ACCESS) as service:
        with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as asking:
            run(asking, CREATE)
            eventually(lambda: post(asking, b"{}", "first").status_code == 200)
            yield asking


def run(http: httpx.Client, text: str) -> httpx.Response:
    answer = http.post("/ksql", json={"ksql": text}, headers={"authorization": "Bearer root"})
    assert answer.status_code == 200, answer.text
    return answer


def post(
    http: httpx.Client, body: bytes, number: str, secret: bytes = b"geheim", name: str = "pushes"
) -> httpx.Response:
    signed = hmac.new(secret, body, hashlib.sha256).hexdigest()
    headers = {"X-Hub-Signature-256": f"sha256={signed}", "X-GitHub-Delivery": number, "content-type": "text/plain"}
    return http.post(f"/hooks/{name}", content=body, headers=headers)


def test_each_delivery_is_answered_once_it_is_committed(http: httpx.Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: post(http, b'{"n": %d}' % n, f"n{n}").json(), range(40)))
    assert answers == [{"records": 1, "known": False}] * 40
    assert post(http, b'{"n": 1}', "n1").json() == {"records": 0, "known": True}
    run(http, "CREATE STREAM IF NOT EXISTS pushes (n INT) WITH (kafka_topic='pushes', value_format='JSON');")
    found = http.post("/query", json={"ksql": "SELECT n FROM pushes;"}, headers={"authorization": "Bearer root"})
    assert found.text.count('"columns"') == 41


@pytest.mark.parametrize(
    ("body", "secret", "name", "status"),
    [
        (b"{}", b"other", "pushes", 401),
        (b"no", b"geheim", "pushes", 400),
        (b'"' + b"x" * 1000 + b'"', b"geheim", "pushes", 413),
        (b"{}", b"geheim", "nowhere", 404),
        (b"{}", b"geheim", "..%2fetc", 404),
    ],
)
def test_what_is_refused_says_why(http: httpx.Client, body: bytes, secret: bytes, name: str, status: int) -> None:
    answer = post(http, body, f"r{status}{name}", secret, name)
    assert answer.status_code == status, answer.text
    assert "geheim" not in answer.text
    assert http.get("/hooks/pushes").status_code == 405


def test_a_connector_that_does_not_run_takes_nothing_and_another_kind_is_no_hook(http: httpx.Client) -> None:
    run(http, "PAUSE CONNECTOR pushes;")
    eventually(lambda: post(http, b"{}", "paused").status_code == 503)
    run(http, "RESUME CONNECTOR pushes;")
    eventually(lambda: post(http, b"{}", "paused").status_code == 200)
    described = run(http, "DESCRIBE CONNECTOR pushes;").json()
    assert "at least once" in str(described)
    assert "geheim" not in str(described)
    run(
        http, "CREATE SOURCE CONNECTOR gen WITH ('connector.class'='datagen', 'quickstart'='users', 'kafka.topic'='u');"
    )
    assert post(http, b"{}", "x", name="gen").status_code == 404


def test_a_task_that_comes_back_knows_the_deliveries(tmp_path: Path) -> None:
    for outcome in (False, True):
        with service_in(tmp_path, access=ACCESS) as service:
            with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as asking:
                if not outcome:
                    run(asking, CREATE)
                eventually(lambda: post(asking, b"{}", "wait").status_code == 200)
                assert post(asking, b"{}", "1").json()["known"] is outcome
