"""What both sides of the authentication know: its mechanisms, and how names and passwords are sent as they are."""

from __future__ import annotations

from typing import Final, NamedTuple

PLAIN: Final = "PLAIN"
USER: Final = "millstream"
"""Who sends the log's secret as the password is one of Millstream's own processes."""


class Credentials(NamedTuple):
    name: str
    password: str


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
