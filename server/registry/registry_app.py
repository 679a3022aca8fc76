"""The schema registry over HTTP, as an ASGI application: Confluent's routes, responses and error codes.

`planner/` defines schemas, ids and compatibility; this module serves clients. Serializers of Kafka clients register and
look up schemas here (`schema.registry.url`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

import orjson
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from millstream.errors import StatementError

from ...executor.formats.schema_records import codec_of
from ...planner.schemas import json_schemas, protobuf_text
from ...planner.schemas.compatibility import incompatibilities
from ...planner.schemas.registry import (
    GLOBAL,
    LEVELS,
    MODES,
    GivenSchema,
    Registry,
    SubjectClosed,
    Version,
    contract_of,
    topic_of,
)
from ...planner.specs import FormatSpec
from ...sql.settings.property import says_true
from ..catalog.schema_store import SchemaStore
from ..encoded_route import EncodedRoute
from ..http.context import rights_of
from ..http.errors import RequestRefused, error_code_of, message_of
from ..http.requests import read_object
from ..security.rights import EVERYTHING, Need, NotPermitted, Rights
from .bodies import (
    INVALID_SCHEMA,
    VERSION_MAX,
    RegistryRefusal,
    described,
    given_in,
    text_in,
    wanted_number,
)

BODY_BYTES_MAX: Final = 8 * 1024 * 1024

SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
SUBJECT_DELETED: Final = 40404
SUBJECT_NOT_DELETED: Final = 40405
VERSION_DELETED: Final = 40406
VERSION_NOT_DELETED: Final = 40407
LEVEL_NOT_FOUND: Final = 40408
MODE_NOT_FOUND: Final = 40409
INCOMPATIBLE: Final = 409
INVALID_VERSION: Final = 42202
INVALID_LEVEL: Final = 42203
INVALID_MODE: Final = 42204
NOT_IN_THIS_MODE: Final = 42205
REFERENCED: Final = 42206
BACKEND_FAILED: Final = 50001

_CONFIGURED: Final = ("compatibility", "compatibilityLevel")
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_FORMATS = {"AVRO": "AVRO", "PROTOBUF": "PROTOBUF"}

Answer = Callable[["_Asked"], Any]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request with its parsed body. `rights`: of the user. `properties`: the metadata properties in its query."""

    path: dict[str, str]
    query: dict[str, str]
    body: dict[str, Any]
    rights: Rights = EVERYTHING
    properties: tuple[tuple[str, str], ...] = ()

    def flag(self, name: str) -> bool:
        return says_true(self.query.get(name))

    @property
    def format(self) -> str:
        return self.query.get("format", "")

    def number(self, name: str, default: int) -> int:
        given = self.query.get(name, "")
        return int(given) if given.removeprefix("-").isdecimal() and given.isascii() else default

    def page(self, found: list[Any]) -> list[Any]:
        """The part of a list selected by `offset` and `limit`; a negative limit means no limit."""
        begin, limit = max(self.number("offset", 0), 0), self.number("limit", -1)
        return found[begin:] if limit < 0 else found[begin : begin + limit]


Asks = Literal["nothing", "subject", "insert", "ddl", "admin", "seen"]
"""What the user of a route needs. `subject`: the right to see the subject (`Rights.sees_subject`); `insert`, `ddl`:
that right on the subject's topic, or `admin` if the path names no subject. `seen`: no right, and the answer contains
only subjects that the user sees."""


def schema_registry_app(store: SchemaStore, lock: contextlib.AbstractContextManager[Any]) -> ASGIApp:
    """The application. In: `lock`: held by all other code that registers schemas (the engine's lock)."""
    pages = _Pages(store)

    def route(path: str, method: str, answer: Answer, asks: Asks) -> EncodedRoute:
        return EncodedRoute(path, _endpoint(answer, lock, asks), methods=[method], name=asks)

    routes = [
        route("/", "GET", lambda asked: {}, "nothing"),
        route("/subjects", "GET", pages.subjects, "seen"),
        route("/subjects/{subject}", "POST", pages.look_up, "subject"),
        route("/subjects/{subject}", "DELETE", pages.delete_subject, "ddl"),
        route("/subjects/{subject}/versions", "GET", pages.versions, "subject"),
        route("/subjects/{subject}/versions", "POST", pages.register, "insert"),
        route("/subjects/{subject}/versions/{version}", "GET", pages.version, "subject"),
        route("/subjects/{subject}/versions/{version}", "DELETE", pages.delete_version, "ddl"),
        route("/subjects/{subject}/versions/{version}/schema", "GET", pages.version_text, "subject"),
        route("/subjects/{subject}/versions/{version}/referencedby", "GET", pages.referenced_by, "subject"),
        route("/schemas", "GET", pages.schemas, "seen"),
        route("/schemas/types", "GET", lambda asked: ["JSON", "PROTOBUF", "AVRO"], "nothing"),
        route("/subjects/{subject}/metadata", "GET", pages.with_metadata, "subject"),
        route("/contexts", "GET", pages.contexts, "seen"),
        route("/schemas/guids/{guid}", "GET", pages.schema_of_guid, "seen"),
        route("/schemas/ids/{id}", "GET", pages.schema, "seen"),
        route("/schemas/ids/{id}/schema", "GET", pages.schema_text, "seen"),
        route("/schemas/ids/{id}/subjects", "GET", pages.schema_subjects, "seen"),
        route("/schemas/ids/{id}/versions", "GET", pages.schema_versions, "seen"),
        route("/compatibility/subjects/{subject}/versions", "POST", pages.compatibility, "subject"),
        route("/compatibility/subjects/{subject}/versions/{version}", "POST", pages.compatibility, "subject"),
        route("/config", "GET", pages.level, "nothing"),
        route("/config", "PUT", pages.set_level, "ddl"),
        route("/config", "DELETE", pages.forget_level, "ddl"),
        route("/config/{subject}", "GET", pages.level, "subject"),
        route("/config/{subject}", "PUT", pages.set_level, "ddl"),
        route("/config/{subject}", "DELETE", pages.forget_level, "ddl"),
        route("/mode", "GET", pages.mode, "nothing"),
        route("/mode", "PUT", pages.set_mode, "ddl"),
        route("/mode/{subject}", "GET", pages.mode, "subject"),
        route("/mode/{subject}", "PUT", pages.set_mode, "ddl"),
        route("/mode/{subject}", "DELETE", pages.forget_mode, "ddl"),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _no_route})


def _check_rights(asked: _Asked, asks: Asks) -> None:
    """Raises `NotPermitted`."""
    subject, rights = asked.path.get("subject"), asked.rights
    if asks in ("nothing", "seen"):
        return
    if subject is None or asks == "admin":
        rights.require_administrator()
    elif asks == "subject" or asks == "insert":
        _check_seen(rights, subject, alone=asks == "insert")
    else:
        rights.require([Need("ddl", topic_of(subject), f"subject {subject}")])
    references = asked.body.get("references")
    for reference in cast("list[Any]", references) if isinstance(references, list) else ():
        if isinstance(reference, dict):
            _check_seen(rights, str(cast("dict[str, Any]", reference).get("subject")))


def _check_seen(rights: Rights, subject: str, *, alone: bool = False) -> None:
    """In: `alone`: only users who may write records may register their schema."""
    if alone or not rights.sees_subject(subject):
        rights.require([Need("insert" if alone else "read", topic_of(subject), f"subject {subject}")])


def _endpoint(
    answer: Answer, lock: contextlib.AbstractContextManager[Any], asks: Asks
) -> Callable[[Request], Awaitable[Response]]:
    def locked(asked: _Asked) -> Any:
        _check_rights(asked, asks)
        with lock:
            return answer(asked)

    async def endpoint(request: Request) -> Response:
        try:
            body = await read_object(request, BODY_BYTES_MAX) if request.method in ("POST", "PUT") else {}
            path, query = cast("dict[str, str]", request.path_params), request.query_params
            properties = tuple(zip(query.getlist("key"), query.getlist("value"), strict=False))
            asked = _Asked(path, dict(query), body, rights_of(request.scope), properties)
            return _json(await run_in_threadpool(locked, asked))
        except (RequestRefused, NotPermitted) as error:
            return _error(error_code_of(error), error.message)
        except RegistryRefusal as error:
            return _error(error.number, error.message)
        except SubjectClosed as error:
            return _error(NOT_IN_THIS_MODE, error.message)
        except StatementError as error:
            return _error(INVALID_SCHEMA, error.message)
        except RecursionError:
            return _error(INVALID_SCHEMA, "the schema is nested too deeply")
        except Exception as error:
            return _error(BACKEND_FAILED, message_of(error))

    return endpoint


def _json(value: Any, status: int = 200) -> Response:
    return Response(value if isinstance(value, bytes) else _written(value), status, media_type=_MEDIA_TYPE)


def _written(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # an unpaired surrogate, from a name in a schema
        return json.dumps(value).encode()


def _error(number: int, message: str) -> Response:
    status = number if number < 1000 else number // 100
    return _json({"error_code": number, "message": message}, status)


def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, f"{request.method} {request.url.path} is nothing that a schema registry has")


def register_version(store: SchemaStore, subject: str, given: GivenSchema, schema_id: int | None = None) -> Version:
    """The version of the subject with this schema; registers it if it is new. The caller holds the lock. Raises
    `RegistryRefusal`, `InvalidSchema`, `SubjectClosed`."""
    registry = store.registry
    known = registry.find(subject, given)
    if known is not None:
        return known
    registry.check_mode(subject, "READWRITE")
    version = registry.new_version(subject, given, schema_id)
    _check(version, registry)
    problems = incompatibilities(version, registry)
    if problems:
        raise RegistryRefusal(
            INCOMPATIBLE,
            f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
            f"[{'; '.join(problems)}; compatibility: {registry.level(subject)}]",
        )
    store.append([version])
    return version


def _import_version(store: SchemaStore, subject: str, given: GivenSchema, body: dict[str, Any]) -> Version:
    """Registers a schema as it is in another registry: earlier versions may be missing, and compatibility is not
    checked. Without an id: the existing version."""
    registry, schema_id = store.registry, wanted_number(body, "id")
    known = registry.find(subject, given)
    if schema_id is None and known is not None:
        return known
    if schema_id is None:
        raise RegistryRefusal(
            NOT_IN_THIS_MODE,
            f'Subject {subject} is in import mode: a schema brings its "id", and may bring its "version"',
        )
    version = registry.new_version(
        subject, given, schema_id, wanted_number(body, "version"), str(body.get("guid") or "")
    )
    _check(version, registry)
    if registry.versions.get((subject, version.version)) != version:
        store.append([version])
    return version


class _Pages:
    def __init__(self, store: SchemaStore) -> None:
        self._store = store

    @property
    def _registry(self) -> Registry:
        return self._store.registry

    # -------------------------------------------------------------- subjects and versions

    def subjects(self, asked: _Asked) -> list[str]:
        prefix = asked.query.get("subjectPrefix", "")
        subjects = self._registry.subjects(deleted=asked.flag("deleted") or asked.flag("deletedOnly"))
        live = set(self._registry.subjects()) if asked.flag("deletedOnly") else ()
        found = [subject for subject in subjects if asked.rights.sees_subject(subject) and subject not in live]
        return asked.page(sorted(subject for subject in found if subject.startswith(prefix)))

    def versions(self, asked: _Asked) -> list[int]:
        return asked.page([version.version for version in self._of_subject(asked)])

    def version(self, asked: _Asked) -> dict[str, Any]:
        return described(self._version(asked), self._registry, asked.format)

    def version_text(self, asked: _Asked) -> bytes:
        return text_in(self._version(asked), self._registry, asked.format).encode()

    def with_metadata(self, asked: _Asked) -> dict[str, Any]:
        """The latest version whose metadata has all properties of the query."""
        for version in reversed(self._of_subject(asked)):
            said = contract_of(version).get("metadata", {}).get("properties") or {}
            if all(said.get(key) == value for key, value in asked.properties):
                return described(version, self._registry, asked.format)
        raise RegistryRefusal(SCHEMA_NOT_FOUND, "Schema not found")

    def contexts(self, asked: _Asked) -> list[str]:
        """The default context, and those in names of subjects: `:.CONTEXT:SUBJECT`."""
        seen = filter(asked.rights.sees_subject, self._registry.subjects())
        named = {subject.split(":")[1] for subject in seen if subject.startswith(":.") and subject.count(":") > 1}
        return asked.page([".", *sorted(named - {"."})])

    def referenced_by(self, asked: _Asked) -> list[int]:
        found = self._referring(self._version(asked))
        return sorted({version.id for version in found if asked.rights.sees_subject(version.subject)})

    def look_up(self, asked: _Asked) -> dict[str, Any]:
        subject = asked.path["subject"]
        self._of_subject(asked)
        found = self._registry.find(subject, self._given(asked), deleted=asked.flag("deleted"))
        if found is None:
            raise RegistryRefusal(SCHEMA_NOT_FOUND, "Schema not found")
        return described(found, self._registry, asked.format)

    def register(self, asked: _Asked) -> dict[str, Any]:
        subject, given = asked.path["subject"], self._given(asked)
        if self._registry.mode(subject) == "IMPORT":
            made = _import_version(self._store, subject, given, asked.body)
        else:
            made = register_version(self._store, subject, given, wanted_number(asked.body, "id"))
        return described(made, self._registry, asked.format)

    def _given(self, asked: _Asked) -> GivenSchema:
        return given_in(asked.body, self._registry, normal=asked.flag("normalize"))

    def delete_subject(self, asked: _Asked) -> list[int]:
        subject, permanent = asked.path["subject"], asked.flag("permanent")
        every = self._registry.of_subject(subject, deleted=True)
        live = [version for version in every if not version.deleted]
        if not every:
            raise RegistryRefusal(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")
        if permanent and live:
            raise RegistryRefusal(
                SUBJECT_NOT_DELETED, f"Subject '{subject}' was not deleted first before being permanently deleted"
            )
        if not permanent and not live:
            raise RegistryRefusal(
                SUBJECT_DELETED, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
            )
        self._delete(every if permanent else live, permanent)
        return [version.version for version in (every if permanent else live)]

    def delete_version(self, asked: _Asked) -> int:
        permanent = asked.flag("permanent")
        version = self._version(asked, deleted=True)
        if version.deleted and not permanent:
            raise RegistryRefusal(
                VERSION_DELETED,
                f"Subject '{version.subject}' Version {version.version} was soft deleted. Set permanent=true to delete "
                "permanently",
            )
        if permanent and not version.deleted:
            raise RegistryRefusal(
                VERSION_NOT_DELETED,
                f"Subject '{version.subject}' Version {version.version} was not deleted first before being permanently "
                "deleted",
            )
        self._delete([version], permanent)
        return version.version

    def _delete(self, versions: list[Version], permanent: bool) -> None:
        self._registry.check_mode(versions[0].subject, "READWRITE", "IMPORT")
        for version in versions:
            if any(other not in versions for other in self._referring(version)):
                raise RegistryRefusal(
                    REFERENCED,
                    f"One or more references exist to the schema {version.subject} version {version.version}",
                )
        if permanent:
            self._store.remove(versions[0].subject, [version.version for version in versions])
        else:
            self._store.append([replace(version, deleted=True) for version in versions])

    def _referring(self, version: Version) -> list[Version]:
        return [
            other
            for other in self._registry.versions.values()
            if not other.deleted
            and any(r.subject == version.subject and r.version == version.version for r in other.references)
        ]

    def _of_subject(self, asked: _Asked) -> list[Version]:
        subject = asked.path["subject"]
        found = self._registry.of_subject(subject, deleted=asked.flag("deleted"))
        if not found:
            raise RegistryRefusal(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")
        return found

    def _version(self, asked: _Asked, *, deleted: bool = False) -> Version:
        subject, wanted = asked.path["subject"], asked.path["version"]
        found = self._registry.of_subject(subject, deleted=deleted or asked.flag("deleted"))
        if not found:
            raise RegistryRefusal(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")
        if wanted in ("latest", "-1"):
            return found[-1]
        if not wanted.isdecimal() or not 1 <= int(wanted) <= VERSION_MAX:
            raise RegistryRefusal(
                INVALID_VERSION,
                f"The specified version '{wanted}' is not a valid version id. Allowed values are between [1, 2^31-1] "
                'and the string "latest"',
            )
        for version in found:
            if version.version == int(wanted):
                return version
        raise RegistryRefusal(VERSION_NOT_FOUND, f"Version {wanted} not found.")

    # -------------------------------------------------------------- ids

    def schemas(self, asked: _Asked) -> list[dict[str, Any]]:
        registry, prefix = self._registry, asked.query.get("subjectPrefix", "")
        found = [
            version
            for subject in sorted(registry.subjects(deleted=asked.flag("deleted")))
            if subject.startswith(prefix) and asked.rights.sees_subject(subject)
            for version in registry.of_subject(subject, deleted=asked.flag("deleted"))
            if not asked.flag("latestOnly") or version == registry.latest(subject)
        ]
        return [described(version, registry, asked.format) for version in asked.page(found)]

    def schema(self, asked: _Asked) -> dict[str, Any]:
        """The schema, in the version of the query's subject if that subject has it."""
        found, subject = self._with_id(asked), asked.query.get("subject")
        version = next((version for version in found if version.subject == subject), found[0])
        return _of_schema(described(version, self._registry, asked.format))

    def schema_of_guid(self, asked: _Asked) -> dict[str, Any]:
        wanted = asked.path["guid"].lower()
        for version in self._registry.versions.values():
            if version.guid == wanted and asked.rights.sees_subject(version.subject):
                return _of_schema(described(version, self._registry, asked.format), with_id=True)
        raise RegistryRefusal(SCHEMA_NOT_FOUND, f"Schema {wanted} not found")

    def schema_text(self, asked: _Asked) -> bytes:
        return text_in(self._with_id(asked)[0], self._registry, asked.format).encode()

    def schema_subjects(self, asked: _Asked) -> list[str]:
        return asked.page(sorted({version.subject for version in self._places(asked)}))

    def schema_versions(self, asked: _Asked) -> list[dict[str, Any]]:
        return asked.page([{"subject": found.subject, "version": found.version} for found in self._places(asked)])

    def _places(self, asked: _Asked) -> list[Version]:
        """The versions with the requested schema id."""
        subject = asked.query.get("subject")
        found = [version for version in self._with_id(asked) if not version.deleted or asked.flag("deleted")]
        return [version for version in found if subject in (None, version.subject)]

    def _with_id(self, asked: _Asked) -> list[Version]:
        wanted = asked.path["id"]
        of_id = [v for v in self._registry.versions.values() if wanted.isdecimal() and v.id == int(wanted)]
        found = [version for version in of_id if asked.rights.sees_subject(version.subject)]
        if not found:
            raise RegistryRefusal(SCHEMA_NOT_FOUND, f"Schema {wanted} not found")
        return found

    # -------------------------------------------------------------- compatibility

    def compatibility(self, asked: _Asked) -> dict[str, Any]:
        """Checks compatibility. With a version: as if that was the latest one; without: as if the schema was
        registered."""
        subject, registry = asked.path["subject"], self._registry
        given = self._given(asked)
        version = Version(subject, VERSION_MAX, 0, given.kind, given.text, given.references)
        _check(version, registry)
        level = registry.level(subject)
        if "version" in asked.path:
            other = self._version(asked)
            registry = Registry({(subject, other.version): other, **_without_subject(registry, subject)})
        problems = incompatibilities(version, registry, level=level)
        answer: dict[str, Any] = {"is_compatible": not problems}
        return {**answer, "messages": problems} if asked.flag("verbose") else answer

    def level(self, asked: _Asked) -> dict[str, str]:
        subject = asked.path.get("subject", GLOBAL)
        registry = self._registry
        if subject and subject not in registry.levels and not asked.flag("defaultToGlobal"):
            raise RegistryRefusal(
                LEVEL_NOT_FOUND, f"Subject '{subject}' does not have subject-level compatibility configured"
            )
        return {"compatibilityLevel": registry.level(subject)}

    def set_level(self, asked: _Asked) -> dict[str, str]:
        level = str(asked.body.get("compatibility", "")).upper()
        unknown = [name for name, value in asked.body.items() if value and name not in _CONFIGURED]
        if unknown:
            raise RegistryRefusal(
                INVALID_LEVEL, f"This schema registry has no {', '.join(unknown)}; a subject has its compatibility only"
            )
        if level not in LEVELS:
            raise RegistryRefusal(INVALID_LEVEL, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}")
        subject = asked.path.get("subject", GLOBAL)
        self._registry.check_mode(subject, "READWRITE", "IMPORT")
        self._store.set_level(subject, level)
        return {"compatibility": level}

    def forget_level(self, asked: _Asked) -> dict[str, str]:
        subject = asked.path.get("subject", GLOBAL)
        self._registry.check_mode(subject, "READWRITE", "IMPORT")
        before = self._registry.level(subject)
        self._store.set_level(subject, None)
        return {"compatibility": before, "compatibilityLevel": before}

    # -------------------------------------------------------------- modes

    def mode(self, asked: _Asked) -> dict[str, str]:
        subject = asked.path.get("subject", GLOBAL)
        if subject and subject not in self._registry.modes and not asked.flag("defaultToGlobal"):
            raise RegistryRefusal(MODE_NOT_FOUND, f"Subject '{subject}' does not have subject-level mode configured")
        return {"mode": self._registry.mode(subject)}

    def set_mode(self, asked: _Asked) -> dict[str, str]:
        subject, mode = asked.path.get("subject", GLOBAL), str(asked.body.get("mode", "")).upper()
        if mode not in MODES:
            raise RegistryRefusal(INVALID_MODE, f"Invalid mode. Valid values are {', '.join(MODES)}")
        if mode == "IMPORT" and not asked.flag("force") and self._has_schemas(subject):
            raise RegistryRefusal(
                NOT_IN_THIS_MODE,
                "Cannot import since found existing subjects. Set force=true to import into subjects that have schemas",
            )
        self._store.set_mode(subject, mode)
        return {"mode": mode}

    def forget_mode(self, asked: _Asked) -> dict[str, str]:
        subject = asked.path["subject"]
        before = self._registry.mode(subject)
        self._store.set_mode(subject, None)
        return {"mode": before}

    def _has_schemas(self, subject: str) -> bool:
        return bool(self._registry.of_subject(subject) if subject else self._registry.subjects())


def _of_schema(said: dict[str, Any], *, with_id: bool = False) -> dict[str, Any]:
    """The members of an answer that concern the schema, not its place in a subject."""
    places = ("subject", "version") if with_id else ("subject", "version", "id")
    return {name: value for name, value in said.items() if name not in places}


def _without_subject(registry: Registry, subject: str) -> dict[tuple[str, int], Version]:
    return {key: version for key, version in registry.versions.items() if version.subject != subject}


def _check(version: Version, registry: Registry) -> None:
    """Raises `InvalidSchema` if records cannot be read or written with the schema."""
    schema = registry.record_schema(version)
    if version.kind == "JSON":
        json_schemas.sql_type(version.text, str, schema.references)
    elif version.kind == "PROTOBUF" and not protobuf_text.load(version.text, schema.references).messages:
        return  # other schemas import its enums
    else:
        codec_of(FormatSpec(_FORMATS[version.kind]), schema)
