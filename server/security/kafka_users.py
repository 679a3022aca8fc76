"""The server's users on the Kafka listener: by password or token (PLAIN), by SCRAM, by the name in a certificate."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Final

from ...logcore.protocol.security.users import ScramCredential
from .access import AccessSettings, Authenticator, User
from .scram_texts import scram_credential

_COMMON_NAME: Final = "CN="


class KafkaUsers:
    """The users of the configuration. Any thread may call it."""

    def __init__(self, settings: AccessSettings, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._scram: Mapping[tuple[str, str], ScramCredential] = {
            (name, kept.mechanism): kept
            for name, user in settings.users.items()
            for kept in map(scram_credential, user.scram)
        }

    def with_password(self, name: str, password: str) -> User | None:
        """The user with this name and password; a token may be used as the password."""
        if ":" not in name:
            pair = base64.b64encode(f"{name}:{password}".encode()).decode()
            found = self._authenticator.identify(f"Basic {pair}")
            if found is not None:
                return found
        by_token = self._authenticator.known(f"Bearer {password}")
        return by_token if by_token is not None and by_token.name == name else None

    def with_scram(self, name: str, mechanism: str) -> tuple[ScramCredential, User] | None:
        user, kept = self._authenticator.named(name), self._scram.get((name, mechanism))
        return None if user is None or kept is None else (kept, user)

    def named(self, name: str) -> User | None:
        return self._authenticator.named(name)

    def scram_iterations(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for (name, mechanism), kept in self._scram.items():
            found.setdefault(name, {})[mechanism] = kept.iterations
        return found

    def of_certificate(self, names: Sequence[str]) -> User | None:
        """The user whose name is the certificate's common name."""
        known = (self._authenticator.named(name.removeprefix(_COMMON_NAME)) for name in names if _is_common(name))
        return next((user for user in known if user is not None), None)


def _is_common(name: str) -> bool:
    return name.startswith(_COMMON_NAME)
