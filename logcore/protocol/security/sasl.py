"""What both sides of the authentication know: its mechanisms, and how names and passwords are sent as they are."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple, Protocol

PLAIN: Final = "PLAIN"
USER: Final = "millstream"
"""Who sends the log's secret as the password is one of Millstream's own processes."""


Conversation = Generator[bytes, bytes, None]
"""Yields what the client sends, and takes the server's answers; it ends when nobody has anything left to prove."""


class Login(Protocol):
    """How a client shows who it is. `description`: of what it shows, without secrets, as part of a sentence."""

    @property
    def mechanism(self) -> str: ...

    @property
    def description(self) -> str: ...

    def conversation(self) -> Conversation: ...


class Credentials(NamedTuple):
    """Also a `Login`: the password travels as it is."""

    name: str
    password: str

    @property
    def mechanism(self) -> str:
        return PLAIN

    @property
    def description(self) -> str:
        return "the secret" if self.name == USER else f'the user "{self.name}", or not with the password'

    def conversation(self) -> Conversation:
        yield encode_plain(self)


def secret_credentials(secret: str) -> Credentials:
    return Credentials(USER, secret)


def encode_plain(credentials: Credentials) -> bytes:
    return f"\0{credentials.name}\0{credentials.password}".encode()


def decode_plain(message: bytes) -> Credentials | None:
    """None where these are none, or where somebody wants to act for somebody else."""
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        return None
    if len(parts) != 3 or not parts[1] or parts[0] not in ("", parts[1]):
        return None
    return Credentials(parts[1], parts[2])
