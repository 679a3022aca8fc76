"""Checks the sender of a web hook: signatures of GitHub and Stripe, other signatures by settings, and shared tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Scheme = Literal["github", "stripe", "hmac", "token"]
SCHEMES: Final = ("github", "stripe", "hmac", "token")
ALGORITHMS: Final = ("sha256", "sha512", "sha384", "sha1")
_DIGITS_MAX: Final = 15


class NotSigned(Exception):
    """The delivery is not signed correctly. The text gives the reason without the secret."""


@dataclass(frozen=True, slots=True)
class SignatureRule:
    """`header`: the header with the signature or the token. `timestamp_header`: the header with the time that is signed
    as `time.body`; empty if only the body is signed. `window_ms`: how much that time may differ from ours."""

    scheme: Scheme
    secret: str
    header: str
    algorithm: str
    encoding: Literal["hex", "base64"]
    prefix: str
    timestamp_header: str
    window_ms: int

    def check(self, headers: Mapping[str, str], body: bytes, now_ms: int) -> str:
        """Checks a delivery. Out: the signature if it identifies the delivery, because a time is signed; else empty.
        Raises `NotSigned`."""
        given = headers.get(self.header)
        if given is None:
            raise NotSigned(f"the header {self.header} is missing")
        match self.scheme:
            case "token":
                if not hmac.compare_digest(given.encode(), self.secret.encode()):
                    raise NotSigned("the token is wrong")
                return ""
            case "stripe":
                return self._stripe(given, body, now_ms)
            case "github" | "hmac":
                return self._plain(given, headers, body, now_ms)

    def _plain(self, given: str, headers: Mapping[str, str], body: bytes, now_ms: int) -> str:
        signed = body
        if self.timestamp_header:
            time = headers.get(self.timestamp_header, "")
            self._check_time(time, now_ms)
            signed = time.encode() + b"." + body
        expected = self.prefix + self._signature(signed)
        if not hmac.compare_digest(given.strip().encode(), expected.encode()):
            raise NotSigned("the signature is wrong")
        return expected if self.timestamp_header else ""

    def _stripe(self, given: str, body: bytes, now_ms: int) -> str:
        """Checks `t=…,v1=…`. There is more than one signature while a secret is being replaced."""
        parts = [part.strip().partition("=") for part in given.split(",")]
        time = next((value for name, _, value in parts if name == "t"), "")
        expected = self._signature(time.encode() + b"." + body)
        found = [value for name, _, value in parts if name == "v1"]
        if not any(hmac.compare_digest(value.encode(), expected.encode()) for value in found):
            raise NotSigned("the signature is wrong")
        self._check_time(time, now_ms)
        return expected

    def _signature(self, text: bytes) -> str:
        digest = hmac.new(self.secret.encode(), text, getattr(hashlib, self.algorithm)).digest()
        return digest.hex() if self.encoding == "hex" else base64.b64encode(digest).decode()

    def _check_time(self, time: str, now_ms: int) -> None:
        if not (time.isascii() and time.isdecimal() and len(time) <= _DIGITS_MAX):
            raise NotSigned("the signed time is no number of seconds")
        if abs(now_ms - int(time) * 1000) > self.window_ms:
            raise NotSigned(f"the signed time is not within {self.window_ms} ms of ours")
