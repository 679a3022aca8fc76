"""The bodies of requests to the schema registry, and schemas in its answers."""

from __future__ import annotations

from typing import Any, Final, cast

from millstream.errors import ServerError

from ...planner.schemas import protobuf_printing, protobuf_text
from ...planner.schemas.registry import (
    KINDS,
    GivenSchema,
    Reference,
    Registry,
    SchemaKind,
    Version,
    contract_of,
    contract_text,
)
from ...planner.schemas.schema_forms import canonical

INVALID_SCHEMA: Final = 42201
VERSION_MAX: Final = 2**31 - 1


class RegistryRefusal(ServerError):
    """A request that the schema registry refuses; clients interpret `number`."""

    code = "SCHEMA_REGISTRY"

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number

    @property
    def status(self) -> int:
        return self.number if self.number < 1000 else self.number // 100


def given_in(body: dict[str, Any], registry: Registry, *, normal: bool) -> GivenSchema:
    """The schema in a request. Raises `RegistryRefusal`, `InvalidSchema`."""
    kind, text = body.get("schemaType") or "AVRO", body.get("schema")
    if kind not in KINDS:
        raise RegistryRefusal(INVALID_SCHEMA, f"Invalid schema type {kind}; the types are {', '.join(KINDS)}")
    if not isinstance(text, str) or not text.strip():
        raise RegistryRefusal(INVALID_SCHEMA, "Empty schema")
    metadata, rule_set = (_contract(body, name) for name in ("metadata", "ruleSet"))
    return given_schema(kind, text, _references(body, registry), metadata, rule_set, normal=normal)


def given_schema(
    kind: SchemaKind,
    text: str,
    references: tuple[Reference, ...] = (),
    metadata: str = "",
    rule_set: str = "",
    *,
    normal: bool = False,
) -> GivenSchema:
    """Converts a PROTOBUF descriptor to text, and marks it to be compared with known schemas by its normal form. Raises
    `InvalidSchema`."""
    descriptor = protobuf_printing.descriptor_in(text) if kind == "PROTOBUF" else None
    if descriptor is not None:
        text, normal = protobuf_printing.text_of(descriptor), True
    canonical(kind, text)
    return GivenSchema(kind, text, references, metadata, rule_set, normal)


def _contract(body: dict[str, Any], name: str) -> str:
    said = body.get(name)
    if said is not None and not isinstance(said, dict):
        raise RegistryRefusal(INVALID_SCHEMA, f'"{name}" is an object')
    return contract_text(cast("dict[str, Any] | None", said))


def _references(body: dict[str, Any], registry: Registry) -> tuple[Reference, ...]:
    """The references of a request; version -1 is the latest one."""
    try:
        return tuple(
            Reference(str(r["name"]), str(r["subject"]), _known_number(int(r["version"]), str(r["subject"]), registry))
            for r in body.get("references") or ()
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise RegistryRefusal(INVALID_SCHEMA, "a reference has a name, a subject and a version") from None


def _known_number(number: int, subject: str, registry: Registry) -> int:
    latest = registry.latest(subject) if number == -1 else None
    return number if latest is None else latest.version


def wanted_number(body: dict[str, Any], name: str) -> int | None:
    """The number, None if there is none: clients send 0 or -1 for no number."""
    wanted = body.get(name)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted <= 0:
        return None
    if wanted > VERSION_MAX:
        raise RegistryRefusal(INVALID_SCHEMA, f'"{name}" is at most {VERSION_MAX}')
    return wanted


def described(version: Version, registry: Registry, format: str = "") -> dict[str, Any]:
    """A version as JSON. In: `format`: with `serialized`, PROTOBUF is a descriptor in Base64."""
    found: dict[str, Any] = {
        "subject": version.subject, "version": version.version, "id": version.id, "guid": version.guid,
    }  # fmt: skip
    if version.kind != "AVRO":
        found["schemaType"] = version.kind
    if version.references:
        found["references"] = [{"name": r.name, "subject": r.subject, "version": r.version} for r in version.references]
    return {**found, **contract_of(version), "schema": text_in(version, registry, format)}


def text_in(version: Version, registry: Registry, format: str) -> str:
    if version.kind != "PROTOBUF" or format != "serialized":
        return version.text
    file = protobuf_text.load(version.text, registry.resolve(version.references))
    return protobuf_printing.base64_of(file.descriptor)
