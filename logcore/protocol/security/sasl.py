"""What both sides of the authentication share: its interfaces, and PLAIN, which sends name and password unchanged."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple, Protocol

PLAIN: Final = "PLAIN"
USER: Final = "millstream"
"""The user name of Millstream's own processes, which send the log's secret as the password."""


Conversation = Generator[bytes, bytes, None]
"""Yields what the client sends, and takes the server's answers; it ends when both sides have proved what they must."""


class Login(Protocol):
    """How a client authenticates. `description`: what it proves itself with, without secrets, as part of a sentence."""

    @property
    def mechanism(self) -> str: ...

    @property
    def description(self) -> str: ...

    def conversation(self) -> Conversation: ...


class Credentials(NamedTuple):
    """Also a `Login`, which sends the password unchanged."""

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
    """None if the message has no credentials, or a user wants to act as another one."""
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        return None
    if len(parts) != 3 or not parts[1] or parts[0] not in ("", parts[1]):
        return None
    return Credentials(parts[1], parts[2])
