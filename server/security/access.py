"""Users with passwords and tokens, and roles with rights on names. `rights.py` decides which rights a statement needs.

Passwords are stored as scrypt hashes. Tokens are 256 random bits that the server generates, so a plain SHA-256 of one
cannot be reversed by guessing. A right is on the name of a stream, a table or a topic; case does not matter.
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ...logcore.protocol.security.accesses import (
    ALTER_TOPIC,
    ALTER_TOPIC_CONFIGS,
    CREATE_TOPIC,
    DELETE_TOPIC,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTION,
    Access,
    Right,
)
from ...logcore.protocol.security.acl_bindings import AclPermission
from ...logcore.protocol.security.acl_table import KeptAcls
from ...logcore.topic_rules import belongs_to_millstream
from .scram_texts import scram_credential

_IN_ACLS: Final[dict[Right, tuple[Access, ...]]] = {
    "read": (READ_TOPIC,),
    "insert": (WRITE_TOPIC,),
    "ddl": (CREATE_TOPIC, ALTER_TOPIC, ALTER_TOPIC_CONFIGS, DELETE_TOPIC),
    "group": (READ_GROUP,),
    "transaction": (WRITE_TRANSACTION,),
}
"""What ACLs have to allow for a right, and must not deny."""

_SCRYPT: Final = (1 << 14, 8, 1)  # 16 MB and about 50 ms
_HASH_BYTES: Final = 32
_REMEMBERED_S: Final = 300.0  # scrypt checks a password again after this time
_REMEMBERED_MAX: Final = 1000

CERTIFICATE: Final = "millstream.certificate"
"""In the state of a request's scope: the names of the client's certificate, if it presented one."""
FORWARDED_CERTIFICATE: Final = "millstream.forwarded-certificate"
"""The same for a request that another node of the cluster forwards: the names of that node's client."""


class RoleSettings(BaseModel):
    """The rights of a role's users: patterns of names, with `*` and `?`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    read: tuple[str, ...] = ()
    """Name patterns for SELECT and PRINT."""
    insert: tuple[str, ...] = ()
    """… for INSERT and DELETE."""
    ddl: tuple[str, ...] = ()
    """… for CREATE, ALTER, DROP, PAUSE and TERMINATE."""
    group: tuple[str, ...] = ()
    """Patterns of consumer groups for Kafka clients."""
    transaction: tuple[str, ...] = ()
    """Patterns of transactional ids for Kafka clients."""
    admin: bool = False
    """The role may do everything."""


class UserSettings(BaseModel):
    """How one user authenticates, and its roles."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    password: str | None = None
    """A hash, as `millstream access password` prints it."""
    tokens: tuple[str, ...] = ()
    """Hashes, as `millstream access token` prints them."""
    scram: tuple[str, ...] = ()
    """Credentials for Kafka and PostgreSQL clients, as `millstream access scram` prints them."""
    certificates: tuple[str, ...] = ()
    """Names in the client's certificate over HTTP: `CN=ana`, `DNS:ana.example`."""
    roles: tuple[str, ...] = ()
    """Names of roles below [access.roles]."""

    @field_validator("password")
    @classmethod
    def _password_hash(cls, value: str | None) -> str | None:
        if value is not None and _scrypt_parts(value) is None:
            raise ValueError("it is not a hash: create one with `millstream access password`")
        return value

    @field_validator("tokens")
    @classmethod
    def _token_hashes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(_is_token_hash(text) for text in value):
            raise ValueError("it is not a hash: create one with `millstream access token`")
        return value

    @field_validator("scram")
    @classmethod
    def _scram_credentials(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            scram_credential(text)
        return value


class AccessSettings(BaseModel):
    """[access] of the configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    users: dict[str, UserSettings] = Field(default_factory=dict)
    roles: dict[str, RoleSettings] = Field(default_factory=dict)
    plain_text: bool = False
    """Allow passwords without TLS, because a proxy terminates it."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for name, user in self.users.items():
            for role in user.roles:
                if role not in self.roles:
                    raise ValueError(f'user "{name}" has the unknown role "{role}"')
        if not self.users:
            raise ValueError("it has no users, so nobody could do anything")
        return self


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user: the only one who knows what it may do. It has the rights of its roles, and what ACLs
    allow, without what ACLs deny; they deny nothing to administrators. Millstream's own topics, groups and ids are no
    matter of ACLs.

    `acls`: those of the log, which change.
    """

    name: str
    roles: tuple[RoleSettings, ...]
    acls: KeptAcls = field(default_factory=KeptAcls, compare=False, repr=False)

    @property
    def is_administrator(self) -> bool:
        return any(role.admin for role in self.roles)

    def may(self, verb: Right, name: str) -> bool:
        """In: `name` of a stream, a table or a topic, or of a group or a transactional id."""
        if self.is_administrator or verb == "admin":
            return self.is_administrator
        said = self._said(verb, name)
        return AclPermission.DENY not in said and (self._is_given(verb, name) or set(said) == {AclPermission.ALLOW})

    def may_use(self, verb: Right, name: str, topic: str) -> bool:
        """The right on a stream or table and on its topic. An ACL that allows to read or write the topic is enough,
        since the topic is all that the stream has."""
        if self.is_administrator:
            return True
        said = self._said(verb, topic)
        if AclPermission.DENY in said:
            return False
        if verb in ("read", "insert") and AclPermission.ALLOW in said:
            return True
        return self.may(verb, name) and self.may(verb, topic)

    def has(self, access: Access, name: str, host: str | None) -> bool:
        """Whether it may do this with the resource of this name. In: `host`: where the request comes from; None if that
        is unknown."""
        if self.is_administrator:
            return True
        said = self._decision(access, name, host)
        if said is AclPermission.DENY:
            return False
        is_given = not access.rights or any(self._is_given(verb, name) for verb in access.rights)
        return is_given or said is AclPermission.ALLOW

    def _is_given(self, verb: Right, name: str) -> bool:
        """By a role. Only administrators have rights on names of internal topics."""
        if verb == "admin" or name.startswith("_"):
            return False
        return any(_matches(name, getattr(role, verb)) for role in self.roles)

    def _said(self, verb: Right, name: str) -> list[AclPermission | None]:
        """What ACLs say about all that the right includes. The host is unknown."""
        return [self._decision(access, name, None) for access in _IN_ACLS.get(verb, ())]

    def _decision(self, access: Access, name: str, host: str | None) -> AclPermission | None:
        if belongs_to_millstream(name):
            return None
        return self.acls.table.decide(self.name, host, access.operation, access.resource, name)


class Authenticator:
    """Finds the user of an `authorization` header. Any thread may call it."""

    def __init__(self, settings: AccessSettings) -> None:
        self.acls = KeptAcls()
        self._users = {
            name: User(name, tuple(settings.roles[role] for role in user.roles), self.acls)
            for name, user in settings.users.items()
        }
        self._passwords = {name: user.password for name, user in settings.users.items()}
        self._tokens = {text: name for name, user in settings.users.items() for text in user.tokens}
        self._certificates = {text: name for name, user in settings.users.items() for text in user.certificates}
        self._nobody = hash_password(secrets.token_hex())  # so that an unknown name takes as long as a wrong password
        self._secret = secrets.token_bytes(32)
        self._guard = threading.Lock()
        self._remembered: dict[bytes, tuple[User, float]] = {}

    def named(self, name: str) -> User | None:
        return self._users.get(name)

    def users(self) -> list[User]:
        """All users, sorted by name."""
        return [self._users[name] for name in sorted(self._users)]

    def known(self, header: str) -> User | None:
        """The user, without delay, if the header contains a token or was checked before."""
        scheme, _, given = header.strip().partition(" ")
        if scheme.lower() == "bearer":
            name = self._tokens.get(hash_token(given.strip()))
            return None if name is None else self._users[name]
        with self._guard:
            user, until = self._remembered.get(self._mark(header), (None, 0.0))
        return user if until > time.monotonic() else None

    def certified(self, names: Iterable[str]) -> User | None:
        """In: the names of a client's certificate, which TLS has verified."""
        found = next((self._certificates[name] for name in names if name in self._certificates), None)
        return None if found is None else self._users[found]

    def identify(self, header: str) -> User | None:
        """As `known`, but also checks a password, which takes a while."""
        found = self.known(header)
        pair = _name_and_password(header)
        if found is not None or pair is None:
            return found
        name, password = pair
        kept = self._passwords.get(name)
        if not password_fits(password, kept or self._nobody) or kept is None:
            return None
        user = self._users[name]
        with self._guard:
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[self._mark(header)] = (user, time.monotonic() + _REMEMBERED_S)
        return user

    def _mark(self, header: str) -> bytes:
        """A keyed hash of the header, because the header itself must not be stored."""
        return hashlib.blake2b(header.encode("utf-8", "surrogateescape"), key=self._secret).digest()


def hash_password(password: str) -> str:
    """The hash for the configuration: `scrypt$n$r$p$salt$hash`."""
    salt = secrets.token_bytes(16)
    n, r, p = _SCRYPT
    parts = (base64.b64encode(part).decode() for part in (salt, _scrypt(password, salt, n, r, p)))
    return "$".join(("scrypt", str(n), str(r), str(p), *parts))


def password_fits(password: str, kept: str) -> bool:
    """In: `kept`: a result of `hash_password`.

    >>> password_fits("sesame", hash_password("sesame")), password_fits("Sesame", hash_password("sesame"))
    (True, False)
    """
    parts = _scrypt_parts(kept)
    assert parts is not None
    n, r, p, salt, wanted = parts
    return hmac.compare_digest(_scrypt(password, salt, n, r, p), wanted)


def new_token() -> str:
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    return "sha256$" + hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name.upper(), pattern.upper()) for pattern in patterns)


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    secret = password.encode("utf-8", "surrogateescape")
    return hashlib.scrypt(secret, salt=salt, n=n, r=r, p=p, maxmem=256 * n * r, dklen=_HASH_BYTES)


def _scrypt_parts(text: str) -> tuple[int, int, int, bytes, bytes] | None:
    """None if the text is not a hash, or if checking it would take too much memory."""
    parts = text.split("$")
    if len(parts) != 6 or parts[0] != "scrypt":
        return None
    try:
        n, r, p = (int(part) for part in parts[1:4])
        salt, kept = (base64.b64decode(part, validate=True) for part in parts[4:])
    except ValueError:
        return None
    if n not in {1 << bits for bits in range(10, 18)} or r != _SCRYPT[1] or p != _SCRYPT[2] or len(kept) != _HASH_BYTES:
        return None
    return n, r, p, salt, kept


def _is_token_hash(text: str) -> bool:
    digits = text.removeprefix("sha256$")
    return text.startswith("sha256$") and len(digits) == 64 and all(digit in "0123456789abcdef" for digit in digits)


def _name_and_password(header: str) -> tuple[str, str] | None:
    scheme, _, given = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(given.strip(), validate=True).decode()
    except ValueError:
        return None
    name, separator, password = text.partition(":")
    return (name, password) if separator else None
