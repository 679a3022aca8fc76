"""The interface to users that the log's listener needs. The server defines the users and their rights.

Without `Users` nobody logs in, and every client may do everything that is not reserved for Millstream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from .accesses import Access


class Principal(Protocol):
    """An authenticated user."""

    @property
    def name(self) -> str: ...

    @property
    def is_administrator(self) -> bool:
        """Then it may do everything, whatever ACLs say."""
        ...

    def has(self, access: Access, name: str, host: str, /) -> bool:
        """Whether it may do this with the resource of this name. In: `host`: the address that the client comes from."""
        ...


class ScramCredential(NamedTuple):
    """What a server stores of a password for SCRAM (RFC 5802); nobody can log in with it."""

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


class Users(Protocol):
    """Any thread may call its methods."""

    def with_password(self, name: str, password: str) -> Principal | None:
        """The user with this password; may take a while."""
        ...

    def with_scram(self, name: str, mechanism: str) -> tuple[ScramCredential, Principal] | None:
        """The user and the stored credential; the caller checks the proof."""
        ...

    def of_certificate(self, names: Sequence[str], /) -> Principal | None:
        """In: the names in a client's certificate, like `CN=ana` and `DNS:ana.example`; an authority that the listener
        trusts has signed it."""
        ...

    def named(self, name: str) -> Principal | None:
        """The user of this name, who has authenticated in another way."""
        ...

    def scram_iterations(self) -> Mapping[str, Mapping[str, int]]:
        """For each user with SCRAM, and each mechanism, the number of iterations of the password's hash."""
        ...


class NoUsers:
    """Only clients that know the log's secret get in."""

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
