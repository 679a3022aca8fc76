"""SCRAM (RFC 5802) as a pure conversation: a client proves that it knows a password. Nothing that is sent or stored
can be used to log in.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from .users import Principal, ScramCredential, Users

DIGESTS: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS: Final = 8192
SALT_BYTES: Final = 16

_NAME_BYTES_MAX: Final = 4096


class ScramRefused(Exception):
    """The conversation is over. The message may be told to the client."""


def credential(mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS) -> ScramCredential:
    """What a server stores for a password."""
    digest = DIGESTS[mechanism]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    return credential_of_salted(mechanism, salted, salt, iterations)


def credential_of_salted(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The same for a password that was salted and hashed elsewhere."""
    digest = DIGESTS[mechanism]
    stored_key = hashlib.new(digest, hmac_of(digest, salted, b"Client Key")).digest()
    return ScramCredential(mechanism, iterations, salt, stored_key, hmac_of(digest, salted, b"Server Key"))


class ScramServer:
    """State: how far the conversation is. `user` is set once it has succeeded."""

    def __init__(self, mechanism: str, users: Users, nonce: str, secret: bytes, name: str | None = None) -> None:
        """In: `nonce`: random text; `secret`: random but constant, for the salts of users that do not exist. `name`:
        the user, if known already (PostgreSQL's protocol); then the name in the message is ignored and may be empty."""
        self._mechanism = mechanism
        self._digest = DIGESTS[mechanism]
        self._users = users
        self._nonce = nonce
        self._secret = secret
        self._name = name
        self._said = self._binding = ""
        self._credential: ScramCredential | None = None
        self._candidate: Principal | None = None
        self.user: Principal | None = None

    def step(self, message: bytes) -> bytes:
        """The answer to the client's next message. Raises `ScramRefused`."""
        text = _text(message)
        return self._first(text) if self._credential is None else self._final(text)

    def _first(self, text: str) -> bytes:
        header, bare = _split_header(text)
        if not header.startswith("n,") and not header.startswith("y,"):
            raise ScramRefused("channel binding is not supported")
        fields = fields_of(bare)
        name = _unescaped(fields.get("n", "")) if self._name is None else self._name
        nonce = fields.get("r", "")
        if not name or not nonce or "m" in fields:
            raise ScramRefused("the first message names no user, or has no nonce")
        known = self._users.with_scram(name, self._mechanism)
        kept = known[0] if known is not None else self._invented(name)
        self._credential, self._candidate = kept, known[1] if known is not None else None
        self._nonce = nonce + self._nonce
        answer = f"r={self._nonce},s={base64_text(kept.salt)},i={kept.iterations}"
        self._binding = base64_text(header.encode())
        self._said = f"{bare},{answer}"
        return answer.encode()

    def _invented(self, name: str) -> ScramCredential:
        """A credential for an unknown user, so that clients cannot find out which users exist."""
        salt = hmac_of("sha256", self._secret, name.encode())
        nobody = hmac_of(self._digest, self._secret, salt)
        return ScramCredential(self._mechanism, ITERATIONS, salt[:SALT_BYTES], nobody, nobody)

    def _final(self, text: str) -> bytes:
        kept = self._credential
        assert kept is not None
        fields = fields_of(text)
        without_proof = text.rpartition(",p=")[0]
        if fields.get("c") != self._binding or fields.get("r") != self._nonce:
            raise ScramRefused("the last message does not belong to the first")
        said = f"{self._said},{without_proof}".encode()
        signature = hmac_of(self._digest, kept.stored_key, said)
        client_key = _xor(bytes_of(fields.get("p", "")), signature)
        shown = hashlib.new(self._digest, client_key).digest()
        if not hmac.compare_digest(shown, kept.stored_key) or self._candidate is None:
            raise ScramRefused("user or password is wrong")
        self.user = self._candidate
        return f"v={base64_text(hmac_of(self._digest, kept.server_key, said))}".encode()


def _split_header(text: str) -> tuple[str, str]:
    """`n,,` or `n,a=other,` and the rest."""
    parts = text.split(",", 2)
    if len(parts) != 3:
        raise ScramRefused("the first message is not as it should be")
    return f"{parts[0]},{parts[1]},", parts[2]


def fields_of(text: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in text.split(",") if len(part) > 1 and part[1] == "="}


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _text(message: bytes) -> str:
    if len(message) > _NAME_BYTES_MAX:
        raise ScramRefused("a message that is too long")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramRefused("a message that is not UTF-8") from None


def bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ScramRefused("a message that is not base64") from None


def base64_text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def hmac_of(digest: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, digest)


def _xor(first: bytes, second: bytes) -> bytes:
    if len(first) != len(second):
        raise ScramRefused("a proof of the wrong length")
    return bytes(a ^ b for a, b in zip(first, second, strict=True))
