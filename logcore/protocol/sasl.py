"""What both sides of the authentication know: its mechanism, and how the secret is sent."""

from __future__ import annotations

from typing import Final

MECHANISM: Final = "PLAIN"
USER: Final = "millstream"


def credentials(secret: str) -> bytes:
    """What a client sends to be trusted."""
    return f"\0{USER}\0{secret}".encode()
