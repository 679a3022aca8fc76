"""Hashes of passwords that are computed as fast as a server takes them: 3 ms and 1 MB, not 50 ms and 16 MB.

Modules of tests make theirs when they are imported, which all workers of a run do.
"""

from __future__ import annotations

from typing import Final

import pytest

from millstream.server.security import access

_N_MIN: Final = 1 << 10


def cheap_hash(password: str) -> str:
    """As `hash_password`."""
    with pytest.MonkeyPatch.context() as patch:
        _, r, p = access._SCRYPT
        patch.setattr(access, "_SCRYPT", (_N_MIN, r, p))
        return access.hash_password(password)
