"""SCRAM credentials in the configuration, as text."""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import Final

from ...logcore.protocol.security.scram import DIGESTS, ITERATIONS, SALT_BYTES, credential
from ...logcore.protocol.security.users import ScramCredential

_PARTS: Final = 5
_ITERATIONS_MIN: Final = 4096


def scram_texts(password: str) -> list[str]:
    """The credentials of a password for the configuration, one per mechanism:
    `MECHANISM$iterations$salt$stored$server`."""
    return [_text(credential(name, password, secrets.token_bytes(SALT_BYTES), ITERATIONS)) for name in DIGESTS]


def scram_credential(text: str) -> ScramCredential:
    """Raises ValueError.

    >>> scram_credential(scram_texts("sesame")[0]).mechanism
    'SCRAM-SHA-256'
    """
    parts = text.split("$")
    if len(parts) != _PARTS or parts[0] not in DIGESTS or not parts[1].isdecimal() or int(parts[1]) < _ITERATIONS_MIN:
        raise ValueError("it is not a SCRAM credential: create one with `millstream access scram`")
    try:
        salt, stored_key, server_key = (base64.b64decode(part, validate=True) for part in parts[2:])
    except binascii.Error:
        raise ValueError("it is not a SCRAM credential: create one with `millstream access scram`") from None
    return ScramCredential(parts[0], int(parts[1]), salt, stored_key, server_key)


def _text(kept: ScramCredential) -> str:
    binary = (base64.b64encode(part).decode() for part in (kept.salt, kept.stored_key, kept.server_key))
    return "$".join((kept.mechanism, str(kept.iterations), *binary))
