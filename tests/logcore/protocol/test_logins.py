"""Logins of a client, as conversations with a server that knows the password, or does not."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from millstream.logcore.errors import LogUnavailable
from millstream.logcore.external.tokens import token_source
from millstream.logcore.protocol.security.accesses import Access
from millstream.logcore.protocol.security.logins import LoginRefused, ScramLogin, TokenLogin
from millstream.logcore.protocol.security.sasl import Login
from millstream.logcore.protocol.security.scram import DIGESTS, ScramRefused, ScramServer, credential
from millstream.logcore.protocol.security.users import NoUsers, Principal, ScramCredential


class _Somebody:
    name = "a,n=a"

    is_administrator = False

    def has(self, access: Access, name: str, host: str, /) -> bool:
        return True


class _One(NoUsers):
    def with_scram(self, name: str, mechanism: str) -> tuple[ScramCredential, Principal] | None:  # pyrefly: ignore[bad-override]
        known = credential(mechanism, "sesame", b"salt" * 4, 4096)
        return (known, _Somebody()) if name == _Somebody.name else None


def talk(login: Login, server: ScramServer) -> None:
    conversation = login.conversation()
    message = next(conversation)
    while True:
        try:
            message = conversation.send(server.step(message))
        except StopIteration:
            return


def server(mechanism: str) -> ScramServer:
    return ScramServer(mechanism, _One(), "of the server", b"secret")


@pytest.mark.parametrize("mechanism", DIGESTS)
def test_both_sides_of_scram_show_that_they_know_the_password(mechanism: str) -> None:
    asked = server(mechanism)
    talk(ScramLogin(mechanism, _Somebody.name, "sesame"), asked)
    assert asked.user is not None
    with pytest.raises(ScramRefused):
        talk(ScramLogin(mechanism, _Somebody.name, "wrong"), server(mechanism))


def answers(login: Login, given: Sequence[bytes]) -> None:
    conversation = login.conversation()
    next(conversation)
    for answer in given:
        conversation.send(answer)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([b"r=mine+more,s=c2FsdA==,i=4096", b"v=AAAA"], "does not know the password"),
        ([b"r=other,s=c2FsdA==,i=4096"], "does not belong"),
        ([b"r=mine,s=c2FsdA==,i=4096"], "does not belong"),
        ([b"r=mine+more,s=c2FsdA==,i=1"], "iterations"),
        ([b"r=mine+more,s=c2FsdA==,i=999999999"], "iterations"),
        ([b"r=mine+more,s=***,i=4096"], "salt"),
        ([b"\xff"], "UTF-8"),
    ],
)
def test_a_server_that_does_not_know_the_password_is_found_out(given: list[bytes], message: str) -> None:
    with pytest.raises(LoginRefused, match=message):
        answers(ScramLogin("SCRAM-SHA-256", "ana", "sesame", nonce=lambda: "mine"), given)


def test_a_token_that_is_refused_is_told() -> None:
    conversation = TokenLogin(lambda: "abc").conversation()
    assert next(conversation) == b"n,,\x01auth=Bearer abc\x01\x01"
    assert conversation.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(LoginRefused, match="invalid_token"):
        conversation.send(b"")


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[Mapping[str, str]]]]:
    asked: list[Mapping[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            asked.append({"body": body, "authorization": self.headers["authorization"]})
            answer = json.dumps({"access_token": f"token{len(asked)}", "expires_in": 3600}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}/token", asked
        listening.shutdown()


def test_tokens_come_from_the_endpoint_and_are_kept(endpoint: tuple[str, list[Mapping[str, str]]]) -> None:
    url, asked = endpoint
    token = token_source({"clientId": "ms", "clientSecret": "s/e", "scope": "kafka"}, url)
    assert (token(), token()) == ("token1", "token1")
    assert asked == [{"body": "grant_type=client_credentials&scope=kafka", "authorization": "Basic bXM6cyUyRmU="}]


def asked_at(url: str) -> Callable[[], str]:
    return token_source({"clientId": "a", "clientSecret": "b"}, url)


def test_an_endpoint_that_does_not_answer_is_an_outage() -> None:
    with pytest.raises(LogUnavailable, match="gives no token"):
        asked_at("http://127.0.0.1:1/token")()


def test_an_endpoint_that_speaks_no_http_is_an_outage() -> None:
    class Greeting(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(b"220 mail.example.com\r\n")

    with socketserver.TCPServer(("127.0.0.1", 0), Greeting) as listening:
        threading.Thread(target=listening.handle_request, daemon=True).start()
        with pytest.raises(LogUnavailable, match="gives no token"):
            asked_at(f"http://127.0.0.1:{listening.server_address[1]}/token")()
