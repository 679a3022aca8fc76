"""The schema registry's state: subjects, their versions, ids, references and compatibility levels.

It is immutable, like the catalog: a change makes a new one. It results from the records of the topic `_schemas`, which
are those of Confluent's Schema Registry; the server and the executor read and write that topic. From schemas to columns
and back: `avro_schemas.py`, `json_schemas.py` and `protobuf_schemas.py`.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, cast

from millstream.errors import StatementError

from ..formats.format import SchemaKind
from ..specs import RecordSchema
from .invalid_schema import InvalidSchema
from .schema_forms import canonical, normal

KINDS: tuple[SchemaKind, ...] = ("AVRO", "JSON", "PROTOBUF")
LEVELS = (
    "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE",
)  # fmt: skip
MODES = ("READWRITE", "READONLY", "IMPORT")
GLOBAL = ""  # the subject of the level and mode for subjects that have none of their own


class SubjectClosed(StatementError):
    """The mode of a subject does not allow the change."""

    code = "SUBJECT_CLOSED"


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one refers to. `name`: its name in the text of the other one."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class GivenSchema:
    """A schema that a client registers or looks up.

    `metadata`, `rule_set`: what clients store with it, as JSON; empty if not given. `normal`: schemas with the same
    normal form count as the same.
    """

    kind: SchemaKind
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str = ""
    rule_set: str = ""
    normal: bool = False


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject. Versions begin at 1. The same schema has the same id in all subjects.

    `metadata`, `rule_set`: see `GivenSchema`. `foreign_guid`: its GUID in another registry, if it comes from there.
    """

    subject: str
    version: int
    id: int
    kind: SchemaKind
    text: str
    references: tuple[Reference, ...] = ()
    deleted: bool = False
    metadata: str = ""
    rule_set: str = ""
    foreign_guid: str = ""

    @property
    def given(self) -> GivenSchema:
        return GivenSchema(self.kind, self.text, self.references, self.metadata, self.rule_set)

    @property
    def guid(self) -> str:
        """A GUID that is the same for the same schema in every subject, and in every registry of ours."""
        named = json.dumps([self.kind, self.text, [astuple(r) for r in self.references], self.metadata, self.rule_set])
        return self.foreign_guid or str(uuid.UUID(bytes=hashlib.md5(named.encode(), usedforsecurity=False).digest()))


def subject_of(topic: str, part: Literal["key", "value"]) -> str:
    """The subject of a topic's keys or values."""
    return f"{topic}-{part}"


def topic_of(subject: str) -> str:
    """The topic whose records have schemas of this subject; the subject itself if it has another kind of name.

    >>> topic_of("clicks-value"), topic_of("clicks-key"), topic_of("com.example.Click")
    ('clicks', 'clicks', 'com.example.Click')
    """
    topic, separator, part = subject.rpartition("-")
    return topic if separator and topic and part in ("key", "value") else subject


def _nothing() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Registry:
    """`versions`: by subject and number. Deleted ones stay, because records contain their ids. `levels`, `modes`: by
    subject. `highest_id`: the highest id ever given. Records may contain ids of permanently deleted schemas, so no id
    is used again."""

    versions: Mapping[tuple[str, int], Version] = field(default_factory=_nothing)
    levels: Mapping[str, str] = field(default_factory=_nothing)
    modes: Mapping[str, str] = field(default_factory=_nothing)
    highest_id: int = 0

    def subjects(self, *, deleted: bool = False) -> list[str]:
        return list(dict.fromkeys(v.subject for v in self.versions.values() if deleted or not v.deleted))

    def of_subject(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """The subject's versions, oldest first."""
        found = [v for v in self.versions.values() if v.subject == subject and (deleted or not v.deleted)]
        return sorted(found, key=lambda version: version.version)

    def latest(self, subject: str) -> Version | None:
        versions = self.of_subject(subject)
        return versions[-1] if versions else None

    def by_id(self, schema_id: int) -> Version | None:
        return next((version for version in self.versions.values() if version.id == schema_id), None)

    def level(self, subject: str) -> str:
        return self.levels.get(subject, self.levels.get(GLOBAL, "BACKWARD"))

    def mode(self, subject: str) -> str:
        """READWRITE; READONLY: no changes are allowed; IMPORT: schemas come from another registry with their ids and
        version numbers, and their compatibility is not checked."""
        return self.modes.get(subject, self.modes.get(GLOBAL, "READWRITE"))

    def check_mode(self, subject: str, *allowed: str) -> None:
        """Raises `SubjectClosed` if the subject's mode is not `allowed`."""
        mode = self.mode(subject)
        if mode not in allowed:
            named = {"READONLY": "read-only", "IMPORT": "import", "READWRITE": "read-write"}[mode]
            raise SubjectClosed(
                f"{f'Subject {subject}' if subject else 'The schema registry'} is in {named} mode",
                hint="PUT /mode (or /mode/SUBJECT) of the schema registry changes it.",
            )

    def find(self, subject: str, given: GivenSchema, *, deleted: bool = False) -> Version | None:
        """The newest version of `subject` with this schema. Metadata and rules are compared only if they are given."""
        versions = reversed(self.of_subject(subject, deleted=deleted))
        return next((version for version in versions if self._is(version, given)), None)

    def new_version(
        self,
        subject: str,
        given: GivenSchema,
        schema_id: int | None = None,
        number: int | None = None,
        guid: str = "",
    ) -> Version:
        """The version that this schema has in `subject`, or would get: see `with_version`. Metadata and rules that are
        not given are copied from the latest version.

        In: `number`: None for the one after the last. `guid`: see `Version.foreign_guid`. Raises `InvalidSchema` if
        `schema_id` or `number` belongs to another schema.
        """
        known = self.find(subject, given) if number is None else self.versions.get((subject, number))
        if known is not None and self._is(known, given) and schema_id in (None, known.id):
            return replace(known, deleted=False)
        if number is not None and known is not None:
            raise InvalidSchema(f"version {number} of subject {subject} is another schema")
        given = self._inherited(subject, given)
        if schema_id is None:
            same = (v for v in self.versions.values() if self._is(v, given) and self._says(v, given))
            chosen = next((version.id for version in same), self.highest_id + 1)
        else:
            chosen, taken = schema_id, self.by_id(schema_id)
            if taken is not None and not self._is(taken, given):
                raise InvalidSchema(f"the schema id {schema_id} belongs to another schema")
        if number is None:
            number = max((v.version for v in self.of_subject(subject, deleted=True)), default=0) + 1
        return Version(
            subject, number, chosen, given.kind, given.text, given.references,
            metadata=given.metadata, rule_set=given.rule_set, foreign_guid=guid,
        )  # fmt: skip

    def _is(self, version: Version, given: GivenSchema) -> bool:
        if version.kind != given.kind or version.references != given.references:
            return False
        if given.metadata not in ("", version.metadata) or given.rule_set not in ("", version.rule_set):
            return False
        if version.text == given.text or canonical(version.kind, version.text) == canonical(given.kind, given.text):
            return True
        if not given.normal:
            return False
        texts = self.resolve(given.references)
        return normal(version.kind, version.text, texts) == normal(given.kind, given.text, texts)

    @staticmethod
    def _says(version: Version, given: GivenSchema) -> bool:
        return (version.metadata, version.rule_set) == (given.metadata, given.rule_set)

    def _inherited(self, subject: str, given: GivenSchema) -> GivenSchema:
        latest = self.latest(subject)
        if latest is None:
            return given
        return replace(given, metadata=given.metadata or latest.metadata, rule_set=given.rule_set or latest.rule_set)

    def with_version(self, version: Version) -> Registry:
        versions = MappingProxyType({**self.versions, (version.subject, version.version): version})
        return replace(self, versions=versions, highest_id=max(self.highest_id, version.id))

    def with_ids_used(self, highest_id: int) -> Registry:
        """The registry, in which new schemas get only ids above this one."""
        return replace(self, highest_id=max(self.highest_id, highest_id))

    def with_level(self, subject: str, level: str | None) -> Registry:
        """The registry with this level; with None the subject no longer has a level of its own."""
        levels = {name: known for name, known in self.levels.items() if name != subject}
        return replace(self, levels=MappingProxyType(levels if level is None else {**levels, subject: level}))

    def with_mode(self, subject: str, mode: str | None) -> Registry:
        """The registry with this mode; with None the subject no longer has a mode of its own."""
        modes = {name: known for name, known in self.modes.items() if name != subject}
        return replace(self, modes=MappingProxyType(modes if mode is None else {**modes, subject: mode}))

    def without(self, subject: str, number: int) -> Registry:
        """The registry without the version, as after a permanent delete."""
        kept = {key: version for key, version in self.versions.items() if key != (subject, number)}
        return replace(self, versions=MappingProxyType(kept))

    def record_schema(self, version: Version, message: str = "", *, given: bool = False) -> RecordSchema:
        """The schema for reading and writing records. Raises `InvalidSchema` if a reference is missing."""
        return RecordSchema(version.id, version.kind, version.text, self.resolve(version.references), message, given)

    def resolve(self, references: tuple[Reference, ...]) -> tuple[tuple[str, str], ...]:
        """(name, text) of all schemas that are referred to, imported ones first. Raises `InvalidSchema`."""
        found: dict[str, str] = {}
        self._collect(references, found)
        return tuple(found.items())

    def _collect(self, references: tuple[Reference, ...], found: dict[str, str]) -> None:
        for reference in references:
            version = self.versions.get((reference.subject, reference.version))
            if version is None:
                raise InvalidSchema(
                    f'the schema refers to version {reference.version} of "{reference.subject}", which does not exist'
                )
            if reference.name not in found:
                self._collect(version.references, found)
                found[reference.name] = version.text


# ------------------------------------------------------------------ the topic's records

Record = tuple[bytes, bytes | None]


def version_record(version: Version) -> Record:
    """The record of this version in `_schemas`."""
    key = {"keytype": "SCHEMA", "subject": version.subject, "version": version.version, "magic": 1}
    value: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    if version.kind != "AVRO":
        value["schemaType"] = version.kind
    if version.references:
        value["references"] = [{"name": r.name, "subject": r.subject, "version": r.version} for r in version.references]
    value |= contract_of(version)
    if version.foreign_guid:
        value["guid"] = version.foreign_guid
    value |= {"schema": version.text, "deleted": version.deleted}
    return _json(key), _json(value)


def contract_of(version: Version) -> dict[str, Any]:
    """`metadata` and `ruleSet` as JSON, without those that are empty."""
    said = {"metadata": version.metadata, "ruleSet": version.rule_set}
    return {name: json.loads(text) for name, text in said.items() if text}


def contract_text(said: Any) -> str:
    """One of them as text, as `Version` keeps it."""
    return json.dumps(said, separators=(",", ":"), sort_keys=True) if said else ""


def removal_record(subject: str, number: int) -> Record:
    """The tombstone of a version."""
    return _json({"keytype": "SCHEMA", "subject": subject, "version": number, "magic": 1}), None


def ids_record(highest_id: int) -> Record:
    """The record of the highest id that was given, which compaction keeps after schemas were removed. Other readers of
    the topic skip all records with this key."""
    return _json({"keytype": "NOOP", "magic": 0}), _json({"highestId": highest_id})


def level_record(subject: str, level: str | None) -> Record:
    key = {"keytype": "CONFIG", "subject": subject or None, "magic": 0}
    return _json(key), None if level is None else _json({"compatibilityLevel": level})


def mode_record(subject: str, mode: str | None) -> Record:
    key = {"keytype": "MODE", "subject": subject or None, "magic": 0}
    return _json(key), None if mode is None else _json({"mode": mode})


def apply_record(registry: Registry, key: bytes | None, value: bytes | None) -> Registry:
    """The registry after one record of the topic. Records of other kinds change nothing. Raises ValueError, KeyError,
    TypeError, AttributeError or RecursionError for a record that no registry has written."""
    about = json.loads(key) if key else {}
    said = cast("dict[str, Any] | None", json.loads(value) if value else None)
    match about.get("keytype"):
        case "SCHEMA" if said is None:
            return registry.without(about["subject"], about["version"])
        case "SCHEMA":
            return registry.with_version(_version(said or {}))
        case "CONFIG":
            level = None if said is None else said.get("compatibilityLevel")
            return registry.with_level(about.get("subject") or GLOBAL, level if level in LEVELS else None)
        case "MODE":
            mode = None if said is None else said.get("mode")
            return registry.with_mode(about.get("subject") or GLOBAL, mode if mode in MODES else None)
        case "NOOP" if said is not None and isinstance(said.get("highestId"), int):
            return registry.with_ids_used(said["highestId"])
        case "DELETE_SUBJECT" if said is not None:
            for version in registry.of_subject(about["subject"]):
                if version.version <= said["version"]:
                    registry = registry.with_version(replace(version, deleted=True))
            return registry
        case _:
            return registry


def _version(said: Mapping[str, Any]) -> Version:
    references = tuple(Reference(r["name"], r["subject"], r["version"]) for r in said.get("references") or ())
    kind = cast(SchemaKind, said.get("schemaType") or "AVRO")
    texts, numbers = (said["subject"], said["schema"]), (said["version"], said["id"])
    if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
        raise TypeError("a version has a subject and a schema, which are texts, and the numbers version and id")
    if kind not in KINDS:
        raise ValueError(f"there is no kind of schema {kind}")
    return Version(
        said["subject"], said["version"], said["id"], kind, said["schema"], references, bool(said.get("deleted")),
        contract_text(said.get("metadata")), contract_text(said.get("ruleSet")), str(said.get("guid") or ""),
    )  # fmt: skip


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
