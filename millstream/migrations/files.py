"""A migration project: its properties file, and its migrations, files such as V000001__name.sql."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from millstream.errors import ServerError

from ..commands.addresses import with_identity

CONFIG_NAME: Final = "ksql-migrations.properties"
VERSION_MAX: Final = 999_999

_FILE = re.compile(r"V(\d{6})__(.*)\.sql", re.IGNORECASE)
_SERVER = "ksql.server.url"
_REPLICAS = "ksql.migrations.topic.replicas"
_DEFAULTS: Final[Mapping[str, str]] = {
    _SERVER: "",
    "ksql.migrations.dir.override": "",
    "ksql.migrations.stream.name": "MIGRATION_EVENTS",
    "ksql.migrations.table.name": "MIGRATION_SCHEMA_VERSIONS",
    "ksql.migrations.stream.topic.name": "",
    "ksql.migrations.table.topic.name": "",
    _REPLICAS: "1",
    "ksql.auth.basic.username": "",
    "ksql.auth.basic.password": "",
}


class BadMigration(ServerError):
    """A migration or its project is invalid."""

    code = "BAD_MIGRATION"


@dataclass(frozen=True, slots=True)
class Migration:
    """One file. `name` is its description with spaces; `checksum` the MD5 of its bytes, as ksql-migrations has it."""

    version: int
    name: str
    path: Path
    text: str = field(repr=False)
    checksum: str


@dataclass(frozen=True, slots=True)
class MigrationProject:
    """The properties file. `ignored`: unknown names in it (settings of Kafka clients)."""

    folder: Path
    properties: Mapping[str, str]
    ignored: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        """The URL, with user and password if they are set."""
        url, user = self.properties[_SERVER], self.properties["ksql.auth.basic.username"]
        return with_identity(url, user, self.properties["ksql.auth.basic.password"]) if user else url

    @property
    def migrations_folder(self) -> Path:
        named = self.properties["ksql.migrations.dir.override"]
        return Path(named) if named else self.folder / "migrations"

    def migrations(self) -> list[Migration]:
        """All files, by version. Raises `BadMigration`."""
        try:
            paths = sorted(self.migrations_folder.iterdir())
        except OSError as error:
            raise BadMigration(
                f"the folder {self.migrations_folder} cannot be read: {_reason(error)}",
                hint="`millstream migrate new-project` creates one.",
            ) from None
        found: dict[int, Migration] = {}
        for path in (path for path in paths if path.suffix.lower() == ".sql"):
            migration = _read(path)
            if migration.version in found:
                raise BadMigration(f"{path.name} and {found[migration.version].path.name} have the same version")
            found[migration.version] = migration
        return [found[version] for version in sorted(found)]


def _read(path: Path) -> Migration:
    match = _FILE.fullmatch(path.name)
    if match is None or not int(match[1]):
        raise BadMigration(f"{path.name} is no name of a migration", hint="Call it V000001__what_it_does.sql.")
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadMigration(f"{path.name} is not UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise BadMigration(f"{path.name} cannot be read: {_reason(error)}") from None
    checksum = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return Migration(int(match[1]), match[2].replace("_", " "), path, text, checksum)


def load_project(config_file: Path) -> MigrationProject:
    """Raises `BadMigration`."""
    try:
        given = java_properties(config_file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadMigration(
            f"{config_file} cannot be read: {_reason(error)}",
            hint="Give --config-file, or create a project with `millstream migrate new-project DIR URL`.",
        ) from None
    except UnicodeDecodeError as error:
        raise BadMigration(f"{config_file} is not UTF-8: {error.reason} at byte {error.start}") from None
    if not given.get(_SERVER):
        raise BadMigration(f"{config_file} names no server", hint=f"Add a line {_SERVER}=http://127.0.0.1:8088.")
    replicas = given.get(_REPLICAS, "1")
    if not replicas.isascii() or not replicas.isdecimal():
        raise BadMigration(f'{config_file}: {_REPLICAS} is "{replicas}", not a number')
    ignored = tuple(name for name in given if name not in _DEFAULTS)
    known = {name: value for name, value in given.items() if name in _DEFAULTS}
    return MigrationProject(config_file.resolve().parent, {**_DEFAULTS, **known}, ignored)


def java_properties(text: str) -> dict[str, str]:
    """The subset of Java's format that settings need: NAME=VALUE or NAME: VALUE, # and ! start comments."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            name, value = [*re.split(r"\s*[=:]\s*|\s+", stripped, maxsplit=1), ""][:2]
            found[name] = value
    return found


def new_project(folder: Path, server: str) -> list[Path]:
    """Creates the folder, the properties file and `migrations/`; returns the last two. Raises `BadMigration` if the
    project exists."""
    config, migrations = folder / CONFIG_NAME, folder / "migrations"
    if config.exists():
        raise BadMigration(f"{config} exists already")
    try:
        migrations.mkdir(parents=True, exist_ok=True)
        config.write_text(f"{_SERVER}={server}\n", encoding="utf-8")
    except OSError as error:
        raise BadMigration(f"{folder} cannot be created: {_reason(error)}") from None
    return [config, migrations]


def create_file(project: MigrationProject, description: str, version: int | None = None) -> Path:
    """Creates an empty migration with this version, or the next one. Raises `BadMigration`."""
    taken = {migration.version: migration for migration in project.migrations()}
    chosen = max(taken, default=0) + 1 if version is None else version
    if not 1 <= chosen <= VERSION_MAX:
        raise BadMigration(f"{chosen} is not a version: expected 1 to {VERSION_MAX}")
    if chosen in taken:
        raise BadMigration(f"version {chosen} exists already: {taken[chosen].path.name}")
    words = re.sub(r"[^\w-]+", "_", description.strip()).strip("_")
    if not words:
        raise BadMigration("a migration needs a description", hint="For example: create add_users.")
    path = project.migrations_folder / f"V{chosen:06d}__{words}.sql"
    try:
        path.touch(exist_ok=False)
    except OSError as error:
        raise BadMigration(f"{path.name} cannot be created: {_reason(error)}") from None
    return path


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
