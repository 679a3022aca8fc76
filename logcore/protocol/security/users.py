"""Users, as far as the log's listener wants to know them. Who they are and what they may do, the server says.

Without `Users` nobody logs in, and everybody may do what Millstream does not keep for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

Right = Literal["read", "insert", "ddl", "admin", "group", "transaction"]
"""Of topics: `read`, `insert`, and `ddl` for creating, changing and deleting; of consumer groups and transactional ids
to use them; `admin` for what is nobody's own."""


class Principal(Protocol):
    """Somebody who has shown who they are."""

    @property
    def name(self) -> str: ...

    def may(self, verb: Right, name: str, /) -> bool: ...


class ScramCredential(NamedTuple):
    """What a server keeps of a password for SCRAM (RFC 5802); nobody can log in with it."""

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


class Users(Protocol):
    """Any thread may call it."""

    def with_password(self, name: str, password: str) -> Principal | None:
        """May take a while."""
        ...

    def with_scram(self, name: str, mechanism: str) -> tuple[ScramCredential, Principal] | None:
        """What fits is for the caller to check."""
        ...

    def of_certificate(self, names: Sequence[str], /) -> Principal | None:
        """In: the names in a client's certificate, as in `CN=ana` and `DNS:ana.example`; it was signed by whom the
        listener trusts."""
        ...

    def named(self, name: str) -> Principal | None:
        """Who shows in another way that they are this user."""
        ...

    def scram_iterations(self) -> Mapping[str, Mapping[str, int]]:
        """Of users that can log in by SCRAM: per mechanism, how often their password was hashed."""
        ...


class NoUsers:
    """Only those get in who know the log's secret."""

    def with_password(self, name: str, password: str) -> None:
        return None

    def with_scram(self, name: str, mechanism: str) -> None:
        return None

    def of_certificate(self, names: Sequence[str], /) -> None:
        return None

    def named(self, name: str) -> None:
        return None

    def scram_iterations(self) -> Mapping[str, Mapping[str, int]]:
        return {}
