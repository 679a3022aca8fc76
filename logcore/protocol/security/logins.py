"""How a client authenticates with SCRAM or a token, each as a pure conversation. PLAIN is `sasl.Credentials`."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from millstream.errors import LogError

from .sasl import Conversation
from .scram import DIGESTS, ScramRefused, base64_text, bytes_of, fields_of, hmac_of

OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM_ITERATIONS_MIN: Final = 4096
"""As Kafka requires: a server that asks for fewer may want to guess the password."""
SCRAM_ITERATIONS_MAX: Final = 1_000_000


class LoginRefused(LogError):
    """The server does not prove that it knows the password, or its messages violate the mechanism."""

    code = "LOGIN_REFUSED"


@dataclass(frozen=True, slots=True)
class ScramLogin:
    """`mechanism`: a key of `DIGESTS`. The password is not sent, and the server proves that it knows it, too."""

    mechanism: str
    name: str
    password: str = field(repr=False)
    nonce: Callable[[], str] = field(default=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def description(self) -> str:
        return f'the user "{self.name}", or not with the password'

    def conversation(self) -> Conversation:
        digest, nonce = DIGESTS[self.mechanism], self.nonce()
        bare = f"n={self.name.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        asked = _text((yield f"n,,{bare}".encode()))
        fields = fields_of(asked)
        salt, iterations = _salt(fields.get("s", "")), _iterations(fields.get("i", ""))
        if not fields.get("r", "").startswith(nonce) or fields["r"] == nonce or not salt:
            raise LoginRefused("the server's SCRAM message does not belong to this login")
        salted = hashlib.pbkdf2_hmac(digest, self.password.encode(), salt, iterations)
        client_key = hmac_of(digest, salted, b"Client Key")
        without_proof = f"c={base64_text(b'n,,')},r={fields['r']}"
        said = f"{bare},{asked},{without_proof}".encode()
        signature = hmac_of(digest, hashlib.new(digest, client_key).digest(), said)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        shown = fields_of(_text((yield f"{without_proof},p={base64_text(proof)}".encode())))
        expected = hmac_of(digest, hmac_of(digest, salted, b"Server Key"), said)
        if not hmac.compare_digest(base64_text(expected), shown.get("v", "")):
            raise LoginRefused("the server does not know the password: it may not be the server that is meant")


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """In: `token`: returns a bearer token that is valid now; it may ask another server, and raise `LogError`."""

    token: Callable[[], str] = field(repr=False)

    @property
    def mechanism(self) -> str:
        return OAUTHBEARER

    @property
    def description(self) -> str:
        return "the token"

    def conversation(self) -> Conversation:
        refusal = yield f"n,,\x01auth=Bearer {self.token()}\x01\x01".encode()
        if refusal:
            yield b"\x01"  # required by RFC 7628; then the server refuses the login
            raise LoginRefused(f"the server refuses the token: {_text(refusal)}")


def _text(message: bytes) -> str:
    try:
        return bytes(message).decode()
    except UnicodeDecodeError:
        raise LoginRefused("the server's SASL message is not UTF-8") from None


def _iterations(text: str) -> int:
    count = int(text) if text.isascii() and text.isdecimal() else 0
    if not SCRAM_ITERATIONS_MIN <= count <= SCRAM_ITERATIONS_MAX:
        raise LoginRefused(f"the server asks for {text or 'no'} SCRAM iterations, which is not credible")
    return count


def _salt(text: str) -> bytes:
    try:
        return bytes_of(text)
    except ScramRefused as error:
        raise LoginRefused(f"the server's SCRAM salt: {error}") from None
