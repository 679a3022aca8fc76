"""Settings of a session, as PostgreSQL clients SET and SHOW them. Few of them have an effect; the others are stored,
because drivers read back what they have set."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Final

from ...sql.settings.property_table import PROPERTIES
from .sqlstates import INVALID_VALUE, UNDEFINED_SETTING, PgRefused

SERVER_VERSION: Final = "15.0"
"""The version of PostgreSQL whose protocol and catalogs these are: clients choose their queries by it."""
UTC_NAMES: Final = ("utc", "etc/utc", "gmt", "z", "0", "+00", "+00:00")
STATEMENT_TIMEOUT: Final = "statement_timeout"

REPORTED: Final = (
    "server_version", "server_encoding", "client_encoding", "application_name", "DateStyle", "IntervalStyle",
    "TimeZone", "integer_datetimes", "standard_conforming_strings", "is_superuser", "session_authorization",
    "default_transaction_read_only", "in_hot_standby",
)  # fmt: skip
"""The settings that a client is sent after its login, and when they change."""

_DEFAULTS: Final = {
    "server_version": SERVER_VERSION, "server_version_num": "150000", "server_encoding": "UTF8",
    "client_encoding": "UTF8", "application_name": "", "DateStyle": "ISO, MDY", "IntervalStyle": "postgres",
    "TimeZone": "UTC", "integer_datetimes": "on", "standard_conforming_strings": "on", "is_superuser": "off",
    "session_authorization": "", "default_transaction_read_only": "off", "in_hot_standby": "off",
    "search_path": '"$user", public', "extra_float_digits": "1", "bytea_output": "hex", "client_min_messages": "notice",
    "statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0",
    "row_security": "on", "idle_session_timeout": "0", "transaction_isolation": "read committed",
    "transaction_read_only": "off",
    "default_transaction_isolation": "read committed", "max_identifier_length": "63", "lc_collate": "C",
    "lc_ctype": "C", "lc_messages": "C", "lc_monetary": "C", "lc_numeric": "C", "lc_time": "C",
    "max_connections": "1000", "port": "5432",
    "default_transaction_deferrable": "off", "datestyle": "ISO, MDY", "jit": "off", "synchronous_commit": "on",
    "max_index_keys": "32", "block_size": "8192", "ssl": "on", "escape_string_warning": "on", "wal_level": "replica",
    "enable_seqscan": "on", "geqo": "on", "cursor_tuple_fraction": "0.1", "work_mem": "4MB", "check_function_bodies":
    "on", "default_tablespace": "", "temp_tablespaces": "", "xmloption": "content", "backslash_quote": "safe_encoding",
    "quote_all_identifiers": "off", "role": "none", "constraint_exclusion": "partition",
}  # fmt: skip
_FIXED: Final = {
    "server_version", "server_version_num", "server_encoding", "integer_datetimes", "is_superuser", "in_hot_standby",
    "max_identifier_length", "max_connections", "port", "block_size", "max_index_keys", "lc_collate", "lc_ctype", "ssl",
}  # fmt: skip
_ALIASES: Final = {"time zone": "TimeZone", "transaction isolation level": "transaction_isolation", "names":
                   "client_encoding", "session authorization": "session_authorization"}  # fmt: skip
_OF_TRANSACTIONS: Final = ("transaction_read_only", "transaction_isolation")
_TRUE: Final = ("on", "true", "yes", "1")
_CHARACTERS_MAX: Final = 10_000
_SETTINGS_MAX: Final = 1000


class PgSettings:
    """The settings of one session. A property of ours (`auto.offset.reset`) may also be SET by its name: `properties`
    belongs to the session."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._properties = properties
        self._names = {name.lower(): name for name in _DEFAULTS}
        self._names["datestyle"] = "DateStyle"
        self._values = dict(_DEFAULTS)
        self._at_start, self._properties_at_start = dict(_DEFAULTS), dict(properties)
        self._before_local: dict[str, str | None] = {}  # what SET LOCAL has replaced in this transaction

    def get(self, name: str) -> str:
        """Raises `PgRefused` for an unknown setting."""
        own = self.own_property(name)
        if own is not None:
            return self._properties.get(own, PROPERTIES[own].default)
        found = self._values.get(self._known(name))
        if found is None:
            raise PgRefused(UNDEFINED_SETTING, f'unrecognized configuration parameter "{name}"')
        return found

    def set(self, name: str, value: str, *, local: bool = False) -> dict[str, str]:
        """Returns the settings to report to the client. In: `local`: until the transaction ends. Raises `PgRefused`."""
        known = self._known(name)
        if known in _FIXED:
            raise PgRefused("55P02", f'parameter "{known}" cannot be changed')
        if known not in _DEFAULTS and "." not in known:
            raise PgRefused(UNDEFINED_SETTING, f'unrecognized configuration parameter "{name}"')
        value = self._checked(known, value)
        if len(value) > _CHARACTERS_MAX or len(self._values) >= _SETTINGS_MAX + len(_DEFAULTS):
            raise PgRefused(INVALID_VALUE, "a setting is too long, or there are too many")
        if local:
            self._before_local.setdefault(known, self._values.get(known))
        else:
            self._before_local.pop(known, None)
        self._values[known] = value
        return {known: value} if known in REPORTED else {}

    def copy(self) -> PgSettings:
        """Settings that may be changed without changing these. Properties of ours are the same."""
        copied = copy.copy(self)
        copied._values, copied._before_local = dict(self._values), dict(self._before_local)
        return copied

    def set_modes(self, modes: Mapping[str, str]) -> dict[str, str]:
        """In: settings of a transaction, or its defaults. Returns the settings to report."""
        self._values |= modes
        return {name: value for name, value in modes.items() if name in REPORTED}

    def end_transaction(self) -> dict[str, str]:
        """The next one has the defaults, and what was set before SET LOCAL. Returns the settings to report."""
        before, self._before_local = self._before_local, {}
        for name, value in before.items():
            if value is None:
                del self._values[name]
            else:
                self._values[name] = value
        self._values |= {name: self._values[f"default_{name}"] for name in _OF_TRANSACTIONS}
        return {name: value for name, value in before.items() if name in REPORTED and value is not None}

    @property
    def is_read_only(self) -> bool:
        return self._values["transaction_read_only"].lower() in _TRUE

    def reset(self, name: str | None, *, local: bool = False) -> dict[str, str]:
        """Sets it as it was when the session began. In: `name`: None resets all, also properties of ours."""
        if name is not None:
            return self.set(name, self._at_start.get(self._known(name), ""), local=local)
        before = self._values
        self._values = {**self._at_start, **{each: before[each] for each in _OF_TRANSACTIONS}}
        self._before_local.clear()
        self._properties.clear()
        self._properties |= self._properties_at_start
        return {each: self._values[each] for each in REPORTED if self._values[each] != before[each]}

    def start_with(self, user: str, parameters: Mapping[str, str]) -> list[tuple[str, str]]:
        """In: the parameters of the startup message. Out: the settings that it asks to SET."""
        self._values["session_authorization"] = user
        found: list[tuple[str, str]] = []
        for name, value in parameters.items():
            if name not in ("user", "database", "options", "replication") and not name.startswith("_pq_."):
                found.append((name, value))
        return found + _options(parameters.get("options", ""))

    def began(self) -> None:
        """The settings are now those that RESET returns to."""
        self._at_start, self._properties_at_start = dict(self._values), dict(self._properties)

    def reported(self) -> dict[str, str]:
        return {name: self._values[name] for name in REPORTED}

    def changed_since(self, reported: Mapping[str, str]) -> dict[str, str]:
        """The settings to report to a client that was told `reported`."""
        return {name: value for name, value in self.reported().items() if reported.get(name) != value}

    def all(self) -> list[tuple[str, str]]:
        return sorted((name, value) for name, value in self._values.items() if name != "datestyle")

    @property
    def timeout_s(self) -> float | None:
        """The timeout of a statement."""
        return _seconds(self._values[STATEMENT_TIMEOUT]) or None

    def own_property(self, name: str) -> str | None:
        """The name of a property of ours, which the engine's SET sets; None for other settings."""
        return name.lower() if name.lower() in PROPERTIES and "." in name else None

    def _known(self, name: str) -> str:
        lower = name.lower()
        return _ALIASES.get(lower) or self._names.get(lower, lower)

    def _checked(self, name: str, value: str) -> str:
        if name == "TimeZone":
            if value.strip().lower() not in UTC_NAMES:
                return value  # stored: times here have no zone, and clients compute with the zone that they set
            return "UTC"
        if name == "client_encoding":
            if value.replace("-", "").replace("'", "").upper() not in ("UTF8", "UNICODE", "SQL_ASCII"):
                raise PgRefused(INVALID_VALUE, f"the encoding {value} is not supported", hint="Use UTF8.")
            return "UTF8"
        if name == STATEMENT_TIMEOUT and _seconds(value) is None:
            raise PgRefused(
                INVALID_VALUE, f"{value} is not a duration", hint="Write milliseconds, or '10s', or '5min'."
            )
        return value


_UNITS: Final = {"": 0.001, "us": 1e-6, "ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def _seconds(text: str) -> float | None:
    """`500`, `10s`, `5 min`; None if the text is not a duration."""
    digits = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text.strip()[len(digits) :].strip()
    try:
        return max(0.0, float(digits or "0")) * _UNITS[unit]
    except (ValueError, KeyError):
        return None


seconds_of = _seconds


def _options(text: str) -> list[tuple[str, str]]:
    """Parses `-c name=value --name=value`, where a backslash escapes a space."""
    words = [word.replace("\0", " ") for word in text.replace("\\ ", "\0").split()]
    given = [word.removeprefix("-c").removeprefix("--") for word in words if word != "-c"]
    pairs = (word.partition("=") for word in given)
    return [(name.replace("-", "_"), value) for name, sign, value in pairs if sign]
