"""Encrypts ("seals") the values of secrets, so that the command topic, its replicas and its backups have no clear text.

The cipher is AES-256-GCM (NIST SP 800-38D) of the package `cryptography`, with a random nonce and the secret's name as
associated data. Its key and the key's id are derived by HKDF (RFC 5869) from a file that is never in the log. The first
byte identifies the format, so that a later version can use another one.

    version (1) · key id (8) · nonce (12) · ciphertext (a multiple of 256) and tag (16), in base64
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from millstream.errors import ServerError, StatementError, did_you_mean

from ...planner.connector_info import SecretInfo

_VERSION: Final = 1
_KEY_ID_BYTES: Final = 8
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12  # random: safe for about 2**32 secrets under one key
_TAG_BYTES: Final = 16
_PAD_BYTES: Final = 256  # padding, to hide the length of a password
_KEY_LETTERS_MIN: Final = 32
_KEY_BYTES_MAX: Final = 64 * 1024
_TOO_OPEN: Final = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP
_SEVERAL_NODES: Final = (
    "Put the same key on every node, for example from `openssl rand -base64 32`, in a file with mode 0600, and set"
    " millstream.connect.key.file to it."
)


class SecretKeyMissing(ServerError):
    """The file with the key is missing, cannot be read, or has another key than the one that sealed a secret."""

    code = "SECRET_KEY_MISSING"


class UnknownSecret(StatementError):
    """No secret has this name, or it has no such value."""

    code = "UNKNOWN_SECRET"


class SecretVault:
    """Any thread may call any method.

    In: `key_file`: it is read each time, so a file that is added later is found. None: a key of this process, for a log
    that ends with the process. `creates`: whether to create a missing file. It is not for several servers that share a
    log, because only one of them would have that key.
    """

    def __init__(self, key_file: Path | None = None, *, creates: bool = False) -> None:
        self._file = key_file
        self._creates = creates
        self._own = secrets.token_bytes(32)

    def seal(self, name: str, values: Mapping[str, str]) -> str:
        """Encrypts the values. In: `name`: they can only be unsealed with this name. Raises `SecretKeyMissing`."""
        key = _Key(self._master(creates=self._creates))
        text = orjson.dumps(dict(values))
        text += b" " * (-len(text) % _PAD_BYTES)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = bytes([_VERSION]) + key.id + nonce + key.cipher.encrypt(nonce, text, name.encode())
        return base64.urlsafe_b64encode(sealed).decode()

    def unseal(self, name: str, sealed: str) -> dict[str, str]:
        """Decrypts the values. Raises `SecretKeyMissing`, also if the text was changed."""
        try:
            data = base64.b64decode(sealed, altchars=b"-_", validate=True)
        except binascii.Error:
            data = b""
        head = 1 + _KEY_ID_BYTES
        if len(data) < head + _NONCE_BYTES + _TAG_BYTES or data[0] != _VERSION:
            raise SecretKeyMissing(f"{name} was sealed by another version of Millstream, or is damaged")
        nonce, ciphertext = data[head : head + _NONCE_BYTES], data[head + _NONCE_BYTES :]
        key = _Key(self._master(creates=False))
        if key.id != data[1:head]:
            raise SecretKeyMissing(
                f"{name} was sealed with another key than the one in {self._file}",
                hint="Put the key back that sealed it, or give the secret anew: CREATE OR REPLACE SECRET.",
            )
        try:
            return orjson.loads(key.cipher.decrypt(nonce, ciphertext, name.encode()))
        except InvalidTag:
            raise SecretKeyMissing(f"{name} is damaged: its text is not what was sealed") from None

    def _master(self, *, creates: bool) -> bytes:
        if self._file is None:
            return self._own
        if creates and not self._file.exists():
            _create(self._file)
        try:
            mode = self._file.stat().st_mode
            with self._file.open("rb") as file:
                text = file.read(_KEY_BYTES_MAX).strip()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise SecretKeyMissing(
                f"the key of the secrets in {self._file} cannot be read: {reason}", hint=_SEVERAL_NODES
            ) from None
        if mode & _TOO_OPEN:
            raise SecretKeyMissing(
                f"others can use the key of the secrets in {self._file}", hint=f"chmod 600 {self._file}"
            )
        if len(text) < _KEY_LETTERS_MIN:
            raise SecretKeyMissing(
                f"the key of the secrets in {self._file} is too short: {_KEY_LETTERS_MIN} letters at least",
                hint="Make one with `openssl rand -base64 32`.",
            )
        return text


class KnownSecrets:
    """The secrets of the catalog, for the tasks of connectors. In: `secrets`: returns the current secrets."""

    def __init__(self, vault: SecretVault, secrets: Callable[[], Mapping[str, SecretInfo]]) -> None:
        self.vault = vault
        self._secrets = secrets

    def value(self, reference: str) -> str:
        """The value of a secret. In: `name` for a secret with one value, or `name:key`; in upper or lower case. Raises
        `UnknownSecret`, `SecretKeyMissing`."""
        name, _, key = reference.partition(":")
        info = found_secret(name, self._secrets())
        values = self.vault.unseal(info.name, info.sealed)
        if not key and len(values) == 1:
            return next(iter(values.values()))
        if not key:
            raise UnknownSecret(
                f"the secret {info.name} has {len(values)} values", hint=f"Write ${{secret:{name}:key}}."
            )
        found = values.get(key.lower())
        if found is None:
            raise UnknownSecret(f"the secret {info.name} has no value {key}")
        return found


def found_secret(name: str, secrets: Mapping[str, SecretInfo]) -> SecretInfo:
    """The secret with this name. Raises `UnknownSecret`."""
    found = secrets.get(name) or secrets.get(name.upper())
    if found is None:
        hint = did_you_mean(name.upper(), secrets) or "SHOW SECRETS lists them."
        raise UnknownSecret(f"Secret {name.upper()} does not exist", hint=hint)
    return found


class _Key:
    """`id`: distinguishes keys without revealing them."""

    def __init__(self, master: bytes) -> None:
        self.id = _derived(master, b"millstream secret: id", _KEY_ID_BYTES)
        self.cipher = AESGCM(_derived(master, b"millstream secret: encryption", _KEY_BYTES))


def _derived(master: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt=None, info=purpose).derive(master)


def _create(file: Path) -> None:
    """Creates the key file, durable and complete, or not at all: if a crash lost the key, the secrets sealed with it
    would be lost. It does not replace a file that another thread creates at the same time."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, written = tempfile.mkstemp(prefix=".connect-", dir=file.parent)  # with mode 0600
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(base64.b64encode(secrets.token_bytes(32)) + b"\n")
                opened.flush()
                os.fsync(opened.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(written, file)
        finally:
            os.unlink(written)
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SecretKeyMissing(f"a key for the secrets cannot be written to {file}: {reason}") from None
