"""The console over plain HTTP: its files, their headers, whose requests are taken, and the server without it."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import httpx
import pytest
from running_server import service_in

from millstream.server.console.page_files import page_files
from millstream.server.security.access import hash_token
from millstream.server.service import Service

FILES = sorted(page_files())
SHOW = {"ksql": "SHOW STREAMS;"}
HTML = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
ACCESS = {"users": {"root": {"tokens": [hash_token("root")], "roles": ["admin"]}}, "roles": {"admin": {"admin": True}}}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data")) as started:
        yield started


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client:
        yield client


@pytest.mark.parametrize("name", FILES)
def test_each_file_comes_with_its_type_and_its_policies(http: httpx.Client, name: str) -> None:
    answer = http.get(f"/console/{name}")
    kinds = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
    assert answer.status_code == 200
    assert answer.headers["content-type"] == kinds.get(name.rpartition(".")[2], "text/html; charset=utf-8")
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'self'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert (policy["frame-ancestors"], policy["object-src"], policy["base-uri"]) == ("'none'",) * 3
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-cache"


def test_no_file_names_another_host_or_makes_markup_of_text() -> None:
    for name, file in page_files().items():
        text = file.body.decode()
        hosts = set(re.findall(r"https?://([\w.-]+)", text)) - {"www.w3.org", "anywidget.dev"}
        assert hosts == set(), name  # w3.org: names of namespaces
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            name
        )
    page = page_files()[""].body.decode()
    assert not re.search(r"<style|<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", page)


def test_every_module_that_a_module_imports_is_there() -> None:
    names = set(page_files())
    for name, file in page_files().items():
        if not name.endswith(".js"):
            continue
        folder = name.rpartition("/")[0]
        for wanted in re.findall(r"""(?:from|import\()\s*"(\.[^"]+)\"""", file.body.decode()):
            parts = [*filter(None, folder.split("/"))]
            for part in wanted.split("/"):
                parts = parts[:-1] if part == ".." else parts if part == "." else [*parts, part]
            assert "/".join(parts) in names, f"{name} imports {wanted}"


def test_a_file_that_is_known_is_not_sent_again(http: httpx.Client) -> None:
    first = http.get("/console/main.js")
    again = http.get("/console/main.js", headers={"if-none-match": f'"other", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert http.get("/console/main.js", headers={"if-none-match": '"other"'}).status_code == 200


def test_head_is_get_without_the_body(http: httpx.Client) -> None:
    got, head = http.get("/console/"), http.head("/console/")
    assert (head.status_code, head.content) == (200, b"")
    same = ("content-type", "content-length", "etag", "content-security-policy")
    assert [head.headers[name] for name in same] == [got.headers[name] for name in same]
    assert http.post("/console/").status_code == 405


OUTSIDE = (
    "/console/../page_files.py", "/console/..%2fpage_files.py", "/console/%2e%2e/%2e%2e/gate.py",
    "/console//etc/passwd",
    "/console/pages/../../__init__.py", "/console/live/", "/console/main.js/",
    "/console/main.js%00", "/console/pages",
)  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_out_of_the_files(service: Service, path: str) -> None:
    """As it is written: httpx would tidy it up."""
    address = service.http_address
    with socket.create_connection((address.host, address.port), timeout=60) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n".encode())
        answer = b""
        while data := connection.recv(65536):
            answer += data
    assert answer.split(b" ", 2)[1] == b"404", answer[:200]


def test_a_browser_is_led_to_the_console_and_programs_to_what_they_had(http: httpx.Client) -> None:
    browser = http.get("/", headers=HTML)
    assert (browser.status_code, browser.headers["location"]) == (303, "console/")
    assert "accept" in browser.headers["vary"]
    for accept in (
        {},
        {"accept": "application/json"},
        {"accept": "*/*"},
        {"accept": "application/json, text/html;q=0.9"},
    ):
        program = http.get("/", headers=accept)
        assert (program.status_code, program.headers["location"]) == (308, "/info")
    # Relative, so that a proxy may put all of it below a path of its own.
    assert http.get("/console").headers["location"] == "console/"


def own(service: Service) -> str:
    return f"http://{service.http_address}"


def test_pages_of_this_server_may_ask(service: Service, http: httpx.Client) -> None:
    assert http.post("/ksql", json=SHOW, headers={"origin": own(service)}).status_code == 200
    told = {"origin": own(service), "sec-fetch-site": "same-origin"}
    assert http.post("/ksql", json=SHOW, headers=told).status_code == 200
    proxied = {"origin": "https://localhost", "host": "localhost"}
    assert http.post("/ksql", json=SHOW, headers=proxied).status_code == 200


def test_pages_may_ask_over_http2_as_well(service: Service) -> None:
    with httpx.Client(base_url=own(service), timeout=60, http1=False, http2=True) as client:
        assert client.post("/ksql", json=SHOW, headers={"origin": own(service)}).http_version == "HTTP/2"
        assert client.post("/ksql", json=SHOW, headers={"origin": own(service)}).status_code == 200
        assert client.post("/ksql", json=SHOW, headers={"origin": "http://evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "http://127.0.0.1.evil.example"},
        {"origin": "http://localhost:{port}"},
        {"origin": "http://127.0.0.1:{port}/"},
        {"origin": "http://evil.example@127.0.0.1:{port}"},
        {"origin": "file://127.0.0.1:{port}"},
        {"origin": ""},
        {"origin": "http://127.0.0.1:{port}", "sec-fetch-site": "cross-site"},
        {"origin": "http://127.0.0.1:{port}", "sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_pages_of_others_may_not(service: Service, http: httpx.Client, headers: dict[str, str]) -> None:
    written = {name: value.replace("{port}", str(service.http_address.port)) for name, value in headers.items()}
    answer = http.post("/ksql", json=SHOW, headers=written)
    assert (answer.status_code, answer.json()["error_code"]) == (403, 40300)


def test_a_strange_host_gets_no_page_and_no_answer(http: httpx.Client) -> None:
    rebound = {"host": "evil.example", "origin": "http://evil.example"}
    assert http.get("/console/", headers={"host": "evil.example"}).status_code == 421
    assert http.post("/ksql", json=SHOW, headers=rebound).status_code == 421


def test_two_origins_are_none_of_ours(service: Service) -> None:
    with httpx.Client(base_url=own(service), timeout=60) as client:
        headers = [("origin", own(service)), ("origin", "http://evil.example")]
        assert client.post("/ksql", json=SHOW, headers=headers).status_code == 403


def test_a_server_without_the_console_takes_no_page_at_all(tmp_path_factory: pytest.TempPathFactory) -> None:
    with service_in(tmp_path_factory.mktemp("off"), console=False) as service:
        with httpx.Client(base_url=own(service), timeout=60) as http:
            assert http.get("/console/").status_code == 404
            assert http.get("/console").status_code == 404
            assert http.get("/", headers=HTML).headers["location"] == "/info"
            assert http.post("/ksql", json=SHOW, headers={"origin": own(service)}).status_code == 403
            assert http.post("/ksql", json=SHOW).status_code == 200


def test_files_need_no_login_and_all_else_does(tmp_path_factory: pytest.TempPathFactory) -> None:
    with service_in(tmp_path_factory.mktemp("access"), access=ACCESS) as service:
        with httpx.Client(base_url=own(service), timeout=60) as http:
            assert http.get("/console/").status_code == 200
            assert http.get("/console/main.js").status_code == 200
            for path in (
                "/v1/access",
                "/v1/topics/t",
                "/v1/topics/t/records",
                "/metrics",
                "/graph",
                "/console/../metrics",
            ):
                assert http.get(path).status_code == 401, path
            assert http.post("/ksql", json=SHOW, headers={"origin": own(service)}).status_code == 401
            told = http.get("/v1/access", headers={"authorization": "Bearer root"}).json()
            assert (told["user"], told["administrator"]) == ("root", True)
            assert [user["name"] for user in told["users"]] == ["root"]
            assert "sha256" not in str(told)
