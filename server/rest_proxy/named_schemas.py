"""The schema of a produced key or value: by id, by version, by text (which is registered), or the latest one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal

from ...planner.schemas.registry import Version, subject_of, topic_of
from ...planner.specs import RecordSchema
from ..catalog.schema_store import SchemaStore
from ..registry.bodies import RegistryRefusal, given_schema
from ..registry.registry_app import register_version
from ..security.rights import Need, Rights
from .embedded_formats import FORMAT_OF_KIND, EmbeddedFormat, check_usable
from .proxy_errors import BAD_REQUEST, INVALID_SCHEMA, SERIALIZATION, ProxyRefusal

Part = Literal["key", "value"]
Strategy = Literal["TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME"]

STRATEGIES: Final[tuple[Strategy, ...]] = ("TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME")


@dataclass(frozen=True, slots=True)
class SchemaChoice:
    """How a request names a schema; missing parts are None. `format`: needed only with `text`."""

    schema_id: int | None = None
    version: int | None = None
    text: str | None = None
    format: EmbeddedFormat | None = None
    subject: str | None = None
    strategy: Strategy = "TOPIC_NAME"


@dataclass(frozen=True, slots=True)
class ChosenSchema:
    """`subject`, `version`: for the response."""

    subject: str
    version: int
    record: RecordSchema
    format: EmbeddedFormat


class NamedSchemas:
    """Any thread may call any method. State: none; the registry is the engine's.

    In: `lock`: held by all code that registers schemas.
    """

    def __init__(self, store: SchemaStore, lock: AbstractContextManager[Any]) -> None:
        self._store, self._lock = store, lock

    def record_schema(self, schema_id: int) -> RecordSchema | None:
        return self._store.schema(schema_id)

    def choose(self, topic: str, part: Part, choice: SchemaChoice, rights: Rights) -> ChosenSchema:
        """The chosen schema. A schema of a subject that the user does not see counts as missing, as in the registry.
        Raises `ProxyRefusal`, `NotPermitted`, `RegistryRefusal`, `InvalidSchema`."""
        _check_combination(choice)
        try:
            version = self._found(topic, part, choice, rights)
        except RegistryRefusal as error:
            raise ProxyRefusal(
                INVALID_SCHEMA if error.number == INVALID_SCHEMA else SERIALIZATION,
                f"Error serializing message. Error when registering schema. {error.message}",
            ) from None
        format = FORMAT_OF_KIND[version.kind]
        record = self._store.registry.record_schema(version)
        check_usable(format, record)
        return ChosenSchema(version.subject, version.version, record, format)

    def _found(self, topic: str, part: Part, choice: SchemaChoice, rights: Rights) -> Version:
        registry = self._store.registry
        if choice.text is not None:
            assert choice.format is not None and choice.format.kind is not None
            subject = choice.subject or _subject(topic, part, choice)
            rights.require([Need("insert", topic_of(subject), f"subject {subject}")])
            with self._lock:
                return register_version(self._store, subject, given_schema(choice.format.kind, choice.text))
        if choice.schema_id is not None:
            subject = choice.subject or subject_of(topic, part)
            known = [version for version in registry.versions.values() if version.id == choice.schema_id]
            seen = [version for version in known if rights.sees_subject(version.subject)]
            of_subject = [version for version in seen if version.subject == subject]
            if not seen:
                raise ProxyRefusal(
                    SERIALIZATION,
                    f"Error serializing message. Error when fetching schema by id. schemaId = {choice.schema_id}",
                )
            return (of_subject or seen)[0]
        subject = choice.subject or _subject(topic, part, choice)
        versions = registry.of_subject(subject) if rights.sees_subject(subject) else []
        if choice.version is None and versions:
            return versions[-1]
        for version in versions:
            if version.version == choice.version:
                return version
        what = "latest schema version" if choice.version is None else f"schema by version {choice.version}"
        raise ProxyRefusal(SERIALIZATION, f"Error serializing message. Error when fetching {what}. subject = {subject}")


def _check_combination(choice: SchemaChoice) -> None:
    """Raises `ProxyRefusal`."""
    named = [choice.schema_id, choice.version, choice.text]
    if sum(each is not None for each in named) > 1:
        raise ProxyRefusal(BAD_REQUEST, "Bad Request: give one of schema_id, schema_version and schema")
    if choice.text is not None and (choice.format is None or choice.format.kind is None):
        raise ProxyRefusal(
            BAD_REQUEST, "Bad Request: a schema needs a type that has schemas: AVRO, JSONSCHEMA, PROTOBUF"
        )


def _subject(topic: str, part: Part, choice: SchemaChoice) -> str:
    if choice.strategy == "TOPIC_NAME":
        return subject_of(topic, part)
    raise ProxyRefusal(
        BAD_REQUEST, f"Bad Request: subject_name_strategy {choice.strategy} is not supported: give the subject itself"
    )
