"""The authentication of a client as a pure conversation. It uses SCRAM-SHA-256 if the user has a credential for it,
else a password or a token in clear text. The configuration allows clear text only under TLS, on this machine, or behind
a proxy that terminates TLS.

The choice of the method must not reveal which names exist: for an unknown name, a keyed hash of the name chooses.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from millstream.errors import ServerError

from ...logcore.protocol.security.scram import ScramRefused, ScramServer
from ...logcore.protocol.security.users import Principal, Users
from . import backend

MECHANISM: Final = "SCRAM-SHA-256"


class PgLoginRefused(ServerError):
    """The name, the password or a message is wrong."""

    code = "PG_LOGIN_REFUSED"


@dataclass(frozen=True, slots=True)
class LoginStep:
    """`answer`: bytes to send; `user`: the user once it is authenticated."""

    answer: bytes
    user: Principal | None = None


class PgLogin:
    """In: `nonce`: random text; `secret`: random, the same for all connections. Call `begin`, then `step` for each
    message until there is a user. Steps compute hashes, so they may take a while."""

    def __init__(self, name: str, users: Users, nonce: str, secret: bytes) -> None:
        self._name = name
        self._users = users
        known = users.with_scram(name, MECHANISM) is not None
        exists = users.named(name) is not None
        by_scram = known if exists else hmac.digest(secret, name.encode(), "sha256")[0] % 2 == 0
        self._scram = ScramServer(MECHANISM, users, nonce, secret, name) if by_scram else None
        self._step: Callable[[bytes], LoginStep] = self._first if by_scram else self._password

    def begin(self) -> bytes:
        return backend.AUTHENTICATION_PASSWORD if self._scram is None else backend.sasl_request([MECHANISM])

    def step(self, content: bytes) -> LoginStep:
        """In: the content of a PasswordMessage. Raises `PgLoginRefused`."""
        try:
            return self._step(content)
        except ScramRefused as error:
            raise self._refused() from error

    def _password(self, content: bytes) -> LoginStep:
        password, end, rest = content.partition(b"\0")
        try:
            user = self._users.with_password(self._name, password.decode()) if end and not rest else None
        except UnicodeDecodeError:
            user = None
        if user is None:
            raise self._refused()
        return LoginStep(b"", user)

    def _first(self, content: bytes) -> LoginStep:
        """SASLInitialResponse: the mechanism, a length, the client's first message."""
        mechanism, end, rest = content.partition(b"\0")
        size = int.from_bytes(rest[:4], "big", signed=True)
        if not end or mechanism.decode("ascii", "replace") != MECHANISM or size != len(rest) - 4:
            raise self._refused()
        assert self._scram is not None
        self._step = self._last
        return LoginStep(backend.sasl_continue(self._scram.step(rest[4:])))

    def _last(self, content: bytes) -> LoginStep:
        assert self._scram is not None
        answer = self._scram.step(content)
        return LoginStep(backend.sasl_final(answer), self._scram.user)

    def _refused(self) -> PgLoginRefused:
        return PgLoginRefused(f'the user or the password is wrong (user "{self._name}")')
