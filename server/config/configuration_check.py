"""Checks a configuration file before a server uses it: all problems at once, each with its line; and finds the origin
of each effective value."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError

from millstream.errors import InvalidProperty, did_you_mean

from ...sql.settings.property import text_of
from ...sql.settings.property_table import PROPERTIES
from ...sql.settings.secret_values import HIDDEN
from ..security.tls import CannotUseTls
from .configuration import Configuration, InvalidConfiguration, flat, load_configuration, translated
from .configuration_reference import is_secret, properties, settings
from .properties import find_property
from .validation_reasons import reason_of

Level = Literal["error", "warning", "note"]

_KEY = r"(?:[A-Za-z0-9_-]+|\"(?:[^\"\\]|\\.)*\"|'[^']*')"
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]\]?")
_ENTRY = re.compile(rf"(\s*)({_DOTTED})\s*=")
_POSITION = re.compile(r"\(at line (\d+), column (\d+)\)")
_OTHER_VARIABLES: Final = ("MILLSTREAM_CONFIG", "MILLSTREAM_KAFKA", "MILLSTREAM_SHARED")
_JAVA_HINT: Final = 'Convert a file of ksqlDB to TOML: NAME = "VALUE", with the properties below [properties].'
_KSQLDB_KEYS: Final = ("listeners", "ssl")


@dataclass(frozen=True, slots=True)
class ConfigurationFinding:
    """A finding about one name. `line`, `column`: from 1; 0 if it is not in a file. A note is not an error."""

    level: Level
    name: str
    message: str
    hint: str = ""
    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class Effective:
    """The value of a setting or property, as text, and where it comes from."""

    name: str
    value: str
    source: str


def check_file(file: Path, environment: Mapping[str, str] | None = None) -> list[ConfigurationFinding]:
    """All findings about the file and the environment variables. Raises `InvalidConfiguration` if the file cannot be
    read."""
    text = _read(file)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _POSITION.search(str(error))
        line, column = (int(found[1]), int(found[2])) if found else (0, 0)
        message = f"not valid TOML: {_POSITION.sub('', str(error)).strip()}"
        return [
            ConfigurationFinding("error", "", message, _JAVA_HINT if file.suffix == ".properties" else "", line, column)
        ]
    places = _places(text)
    findings = [*_property_findings(table, places), *_setting_findings(table, file, places)]
    findings += check_variables(environment)
    return sorted(findings, key=lambda each: (each.line, each.column, each.name))


def check_variables(environment: Mapping[str, str] | None = None) -> list[ConfigurationFinding]:
    """Findings about environment variables that no server reads."""
    return list(_variable_findings(os.environ if environment is None else environment))


def effective(file: Path | None, flags: Mapping[str, Any]) -> list[Effective]:
    """The values that a server would run with. Secrets are masked. Raises `InvalidConfiguration`."""
    configuration = load_configuration(file, flags)
    text = "" if file is None else _read(file)
    places = _places(text)
    named = translated(tomllib.loads(text), file) if file is not None else {}
    in_file = flat({name: value for name, value in named.items() if name != "properties"})
    found: list[Effective] = []
    for name, value in _leaves(configuration, ""):
        found.append(
            Effective(name, HIDDEN if value and is_secret(name) else value, _source(name, flags, in_file, places, file))
        )
    for entry in properties():
        given = configuration.engine_properties.get(entry.name)
        source = "default" if given is None else _property_source(entry.name, file, places)
        value = entry.default if given is None else given
        found.append(
            Effective(f"properties.{entry.name}", HIDDEN if value and is_secret(entry.name) else value, source)
        )
    for name in sorted(configuration.engine_properties.keys() - {entry.name for entry in properties()}):
        value = HIDDEN if is_secret(name) else configuration.engine_properties[name]
        found.append(Effective(f"properties.{name}", value, _property_source(name, file, places)))
    return found


# ------------------------------------------------------------------ what is wrong


def _property_findings(table: Mapping[str, Any], places: _Places) -> Iterator[ConfigurationFinding]:
    given = table.get("properties", {})
    if not isinstance(given, Mapping):
        return
    seen: dict[str, str] = {}
    for name, value in flat(given).items():
        line, column = places.of(f"properties.{name}")
        try:
            entry = find_property(name)
            entry.check(text_of(value))
        except InvalidProperty as error:
            yield ConfigurationFinding("error", name, error.message, error.hint or "", line, column)
            continue
        if entry.name in seen:
            yield ConfigurationFinding("warning", name, f"{name} and {seen[entry.name]} are the same property",
                          "Only the last one counts.", line, column)  # fmt: skip
        seen[entry.name] = name
        if entry.name != name:
            yield ConfigurationFinding(
                "note", name, f"{name} is ksqlDB's name for {entry.name}", line=line, column=column
            )
        elif not entry.effective and entry.name in PROPERTIES:
            yield ConfigurationFinding("note", name, f"{name} is accepted, and has no effect", line=line, column=column)


def _setting_findings(table: dict[str, Any], file: Path, places: _Places) -> Iterator[ConfigurationFinding]:
    rest = {name: value for name, value in table.items() if name != "properties"}
    if not isinstance(table.get("properties", {}), Mapping):
        yield ConfigurationFinding(
            "error", "properties", "properties is a table: write [properties]", "", *places.of("properties")
        )
    for name in [name for name in rest if name not in Configuration.model_fields]:
        yield from _misplaced(name, rest, places)
    for name in _KSQLDB_KEYS:
        if name in rest:
            ours = {"listeners": "http", "ssl": "tls"}[name]
            yield ConfigurationFinding("note", name, f"{name} is ksqlDB's name for {ours}", "", *places.of(name))
    try:
        named = translated(rest, file)
        Configuration.model_validate({"data": ".", **named})
        yield from _tls_findings(named, places)
    except InvalidConfiguration as error:
        yield ConfigurationFinding("error", "", error.message, error.hint or "")
    except ValidationError as error:
        for each in error.errors():
            yield _of_validation(each, places)


def _tls_findings(named: dict[str, Any], places: _Places) -> Iterator[ConfigurationFinding]:
    """What a server would find when it reads the certificates and keys. Their password may be in the environment."""
    try:
        configuration = Configuration(from_file=named, data=Path())
    except (ValidationError, SettingsError, InvalidProperty):
        return  # the file by itself is right
    tls, kafka, cluster = configuration.tls, configuration.kafka_tls, configuration.cluster_tls
    contexts = {
        "tls": None if tls is None else tls.context,
        "kafka_tls": None if kafka is None else kafka.context,
        "cluster_tls": None if cluster is None else cluster.serving,
    }
    for name, context in contexts.items():
        try:
            if context is not None:
                context()
        except CannotUseTls as error:
            message = f'"{name}": {error.message}'
            yield ConfigurationFinding("error", name, message, error.hint or "", *places.of(name))


def _misplaced(name: str, rest: dict[str, Any], places: _Places) -> Iterator[ConfigurationFinding]:
    """Findings about top-level names that are not settings: properties that belong below [properties], and misspelled
    names."""
    value = rest[name]
    if name in _KSQLDB_KEYS or name.startswith("ssl."):
        return
    del rest[name]
    for full in flat({name: value}) if isinstance(value, Mapping) else {name: value}:
        line, column = places.of(full)
        try:
            entry = find_property(full)
            hint = f"Write it below [properties]{'' if entry.name == full else f', as {entry.name}'}."
            yield ConfigurationFinding("error", full, f'"{full}" is a property, not a setting', hint, line, column)
        except InvalidProperty:
            known = [*(setting.name for setting in settings()), *Configuration.model_fields]
            hint = did_you_mean(full, known) or "`millstream config reference` lists the settings."
            yield ConfigurationFinding("error", full, f'"{full}" is not a setting of the server', hint, line, column)


def _of_validation(error: ErrorDetails, places: _Places) -> ConfigurationFinding:
    name = ".".join(map(str, error["loc"]))
    line, column = places.of(name)
    message = reason_of(error)
    if error["type"] == "extra_forbidden":
        parent, _, last = name.rpartition(".")
        beside = [_last(setting.name) for setting in settings() if _matches(setting.name.rpartition(".")[0], parent)]
        unknown = f'"{name}" is not a setting of the server'
        return ConfigurationFinding("error", name, unknown, did_you_mean(last, beside) or "", line, column)
    unit = next((setting.unit for setting in settings() if _matches(setting.name, name)), "")
    if error["type"] == "missing":
        return ConfigurationFinding("error", name, f'"{name}" must be given', line=line, column=column)
    wanted = f" It is in {unit}, as a plain number." if unit and "int" in error["type"] else ""
    about = f'"{name}": ' if name else ""
    return ConfigurationFinding(
        "error", name, f"{about}{message[0].lower()}{message[1:]}", wanted.strip(), line, column
    )


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _matches(pattern: str, name: str) -> bool:
    """`access.users.<name>.roles` matches `access.users.ada.roles.0`."""
    wanted, given = pattern.split("."), name.split(".")
    pairs = zip(wanted, given, strict=False)
    return len(wanted) <= len(given) and all(want in (have, "<name>") for want, have in pairs)


def _variable_findings(environment: Mapping[str, str]) -> Iterator[ConfigurationFinding]:
    known = {setting.variable for setting in settings() if setting.variable is not None}
    known |= {f"MILLSTREAM_{name.upper()}" for name in Configuration.model_fields}
    for name in sorted(environment):
        if not name.startswith("MILLSTREAM_") or name in known or name in _OTHER_VARIABLES:
            continue
        if name.startswith(tuple(f"{each}__" for each in known)):
            continue
        yield ConfigurationFinding("warning", name, f"the variable {name} of the environment is unknown",
                      did_you_mean(name, sorted(known)) or "")  # fmt: skip


# ------------------------------------------------------------------ what is in effect


def _leaves(model: BaseModel, prefix: str) -> Iterator[tuple[str, str]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if prefix or name != "properties":
            yield from _leaf(f"{prefix}{name}", value)


def _leaf(name: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case BaseModel():
            yield from _leaves(value, f"{name}.")
        case dict():
            for key, item in value.items():
                yield from _leaf(f"{name}.{key}", item)
        case SecretStr():
            yield name, HIDDEN
        case tuple():
            yield name, ", ".join(map(str, value))
        case None:
            yield name, ""
        case _:
            yield name, text_of(value)


def _source(name: str, flags: Mapping[str, Any], in_file: Mapping[str, Any], places: _Places, file: Path | None) -> str:
    if flags.get(name) is not None:
        return f"flag --{name.replace('_', '-')}"
    variable = f"MILLSTREAM_{name.upper().replace('.', '__')}"
    if os.environ.get(variable):
        return f"variable {variable}"
    top = f"MILLSTREAM_{name.partition('.')[0].upper()}"
    if os.environ.get(top):
        return f"variable {top}"
    if name in in_file:
        line, _ = places.of(name)
        return f"{file}{f', line {line}' if line else ''}"
    return "default"


def _property_source(name: str, file: Path | None, places: _Places) -> str:
    for written in places.under("properties"):
        if find_property(written).name == name:
            return f"{file}, line {places.of(f'properties.{written}')[0]}"
    return "variable MILLSTREAM_PROPERTIES" if os.environ.get("MILLSTREAM_PROPERTIES") else "setting executor"


# ------------------------------------------------------------------ where it stands


class _Places:
    """Line and column of each key of a TOML text, by its dotted name."""

    def __init__(self, by_name: Mapping[str, tuple[int, int]]) -> None:
        self._by_name = by_name

    def of(self, name: str) -> tuple[int, int]:
        """The position of the name, or of its longest known prefix; (0, 0) if there is none."""
        parts = name.split(".")
        while parts:
            if ".".join(parts) in self._by_name:
                return self._by_name[".".join(parts)]
            parts.pop()
        return 0, 0

    def under(self, table: str) -> list[str]:
        return [name.removeprefix(f"{table}.") for name in self._by_name if name.startswith(f"{table}.")]


def _places(text: str) -> _Places:
    """The positions of all keys. It may also find keys inside multi-line values; nobody looks those up."""
    found: dict[str, tuple[int, int]] = {}
    prefix = ""
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header is not None:
            prefix = _plain(header[1])
            found.setdefault(prefix, (number, header.start(1) + 1))
            continue
        entry = _ENTRY.match(line)
        if entry is not None:
            name = _plain(entry[2])
            found.setdefault(f"{prefix}.{name}" if prefix else name, (number, len(entry[1]) + 1))
    return _Places(found)


def _plain(dotted: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in re.findall(_KEY, dotted))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InvalidConfiguration(f"the configuration file {file} cannot be read: {reason.lower()}") from None
