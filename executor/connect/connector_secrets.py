"""Secrets of connectors: references `${secret:name:key}`, `${file:/path:key}` and `${env:NAME}` in settings, and how
secret values are kept out of all texts that are shown. A secret value in a statement is stored as `${sealed:…}`.

References are resolved only in the task. `Secrets.scrub` removes the resolved values from errors and log lines, and
also the values of settings that are secret by declaration or by name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from millstream.errors import MillstreamError

from ...sql.settings.secret_values import HIDDEN, REFERENCE, is_secret_name, replaced
from .connector_errors import InvalidConnector
from .secret_vault import KnownSecrets, SecretVault

_SEALED: Final = re.compile(r"\$\{sealed:[^}]*\}")
_IN_ADDRESS: Final = re.compile(
    r"//[^/@:\s]*:(?P<password>(?:(?!//)\S)+)(?=@)|[?&;](?P<name>[\w.%\[\]-]+)=(?P<value>[^&;#\s]+)"
)
"""A password before the last @, which may contain characters that should have been escaped; or a parameter."""
_PARAMETERS: Final = frozenset({"sig", "signature", "key", "auth"})
"""Names of secret parameters in addresses, in addition to those with a telling name (`is_secret_name`)."""
_QUOTED: Final = re.compile(r"=\s*\"([^\"]*)\"")  # a password as in sasl.jaas.config
_PART_MIN: Final = 6  # the minimal length of a secret part, as of a header `Authorization: …`
_FILE_BYTES_MAX: Final = 1024 * 1024


def refers(value: str) -> bool:
    """Whether the value contains a reference."""
    return REFERENCE.search(value) is not None


def shown_value(name: str, value: str, *, secret: bool = False) -> str:
    """The value as it may be shown: with references as they are written, without secrets and passwords in addresses.
    In: `secret`: whether the value is secret even if its name does not say so.

    >>> shown_value("database.password", "x"), shown_value("database.password", "${env:PASSWORD}")
    ('********', '${env:PASSWORD}')
    >>> shown_value("connection.url", "postgresql://ana:x@db/shop")
    'postgresql://ana:********@db/shop'
    >>> shown_value("connection.url", "postgresql:///shop?user=ana&password=x&sslmode=disable")
    'postgresql:///shop?user=ana&password=********&sslmode=disable'
    """
    if secret or is_secret_name(name):
        return value if REFERENCE.fullmatch(value) and not _SEALED.fullmatch(value) else HIDDEN
    shown = _SEALED.sub(HIDDEN, value)
    return replaced(shown, ((start, end, HIDDEN) for start, end in _secrets_in_address(shown)))


def _secrets_in_address(value: str) -> Iterator[tuple[int, int]]:
    """The start and end of each password in the addresses of the value."""
    for found in _IN_ADDRESS.finditer(value):
        group = "password" if found["password"] is not None else "value"
        secret = group == "password" or is_secret_name(found["name"]) or found["name"].lower() in _PARAMETERS
        if secret and not refers(found[group]):
            yield found.span(group)


def secrets_of(config: Mapping[str, str]) -> set[str]:
    """The secrets of the catalog to which the settings may refer: names, as written and in upper case."""
    found: set[str] = set()
    for value in config.values():
        for reference in REFERENCE.finditer(value):
            if reference[1] == "secret":
                name = reference[2].partition(":")[0]
                found |= {name, name.upper()}
    return found


def sealed_value(name: str, value: str, vault: SecretVault, *, secret: bool) -> str:
    """The value of a setting as it may be stored: secret parts that are not references are sealed, for this setting
    only. In: `secret`: whether the whole value is secret. Raises `SecretKeyMissing`."""

    def sealed(text: str) -> str:
        return f"${{sealed:{vault.seal(name, {'': text})}}}"

    if secret or is_secret_name(name):
        return value if refers(value) or not value else sealed(value)
    return replaced(value, ((start, end, sealed(value[start:end])) for start, end in _secrets_in_address(value)))


def secret_parts(name: str, value: str, *, secret: bool) -> set[str]:
    """The texts that no error and no log line may contain: a secret value and its parts, and passwords in addresses, in
    all forms in which they may be written. In: `secret`: whether the value is secret even if its name does not say
    so."""
    in_address = {value[start:end] for start, end in _secrets_in_address(value)}
    found = set(in_address)
    for each in in_address:  # with an unescaped @ or /, a library takes the rest for the host, and may show it
        found |= {part for part in re.split("[@/]", each) if len(part) >= _PART_MIN}
    if secret or is_secret_name(name):
        parts = (*re.split(r"[,:]\s*", value), *_QUOTED.findall(value))
        found |= {value, *(part for part in parts if len(part) >= _PART_MIN)}
    return found.union(*(_written(each) for each in found))


def _written(secret: str) -> set[str]:
    """The forms in which libraries and responses may write the secret.

    >>> sorted(_written("a%40'b"))
    ['a%2540%27b', "a%40'b", "a@'b"]
    """
    texts = {secret, unquote(secret), unquote_plus(secret)}
    escaped = {json.dumps(text, ensure_ascii=ascii)[1:-1] for text in texts for ascii in (False, True)}
    return texts | escaped | {repr(text)[1:-1] for text in texts} | {quote(secret, ""), quote_plus(secret)}


class Secrets:
    """State: the known secret values of one connector. In: `known`: the secrets to which `${secret:…}` refers."""

    def __init__(self, known: KnownSecrets) -> None:
        self._known = known
        self._values: set[str] = set()

    def resolve(self, config: Mapping[str, str], secret_names: Iterable[str] = ()) -> dict[str, str]:
        """The settings with each reference replaced. Raises `InvalidConnector`, which names the setting."""
        resolved = {name: self._resolved(name, value) for name, value in config.items()}
        named = set(secret_names)
        for name, value in resolved.items():
            self._values |= secret_parts(name, value, secret=name in named)
        return resolved

    def scrub(self, text: str) -> str:
        """The text without any secret value."""
        for value in sorted(filter(None, self._values), key=len, reverse=True):
            text = text.replace(value, HIDDEN)
        return text

    def _resolved(self, name: str, value: str) -> str:
        def look_up(found: re.Match[str]) -> str:
            secret = self._looked_up(name, found[1], found[2])
            self._values.add(secret)
            return secret

        return REFERENCE.sub(look_up, value)

    def _looked_up(self, name: str, kind: str, reference: str) -> str:
        match kind:
            case "env":
                return _from_environment(name, reference)
            case "file":
                return _from_file(name, reference)
            case _:
                pass
        try:
            if kind == "sealed":
                return self._known.vault.unseal(name, reference)[""]
            return self._known.value(reference)
        except MillstreamError as error:
            raise InvalidConnector(f"{name}: {error.message}", setting=name, hint=error.hint) from None


def _from_environment(name: str, variable: str) -> str:
    found = os.environ.get(variable)
    if found is None:
        raise InvalidConnector(
            f"{name} refers to the environment variable {variable}, which is not set",
            setting=name,
            hint="Set it in the environment of the server, and RESTART the connector.",
        )
    return found


def _from_file(name: str, reference: str) -> str:
    """The value of the line `key=value` of the file; without a key, the whole file."""
    path, colon, key = reference.rpartition(":")
    if not colon:
        path, key = reference, ""
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(_FILE_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidConnector(
            f"{name} refers to the file {path}, which cannot be read: {reason}", setting=name
        ) from None
    if not key:
        return text.strip()
    for line in text.splitlines():
        found, equals, value = line.partition("=")
        if equals and found.strip() == key:
            return value.strip()
    raise InvalidConnector(f"{name} refers to {key} in the file {path}, which has no line {key}=…", setting=name)
