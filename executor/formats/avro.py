"""AVRO: turns one record's bytes into plain values and back, with the schema that the record names.

A reader returns values as the record's own schema defines them; `typed_values.py` converts them to a column's type.
"""

from __future__ import annotations

import binascii
import functools
import io
from collections.abc import Iterator, Sequence
from decimal import Context
from decimal import Decimal as Number
from typing import Any, cast

import fastavro
import pyarrow as pa
from fastavro import _read_py
from fastavro.schema import SchemaParseException, UnknownType

from ...planner.formats.avro import AVRO
from ...planner.schema import Column
from ...planner.schemas import avro_schemas
from ...planner.schemas.registry import InvalidSchema
from ...planner.specs import FormatSpec, RecordSchema
from .avro_binary import BRANCH_VALUE, BinarySchema, Convert, SchemaWalk, unchanged
from .avro_json import JsonReading, JsonWriting
from .avro_leaves import number_of, of_type, real, sized, symbol, unwanted, whole
from .coding import RecordPart, codes
from .compiled.avro_scan import FlatRecord, flat_record, scan
from .reading import describe, fold
from .record_codec import Scanned
from .schema_records import SchemaCoding, SchemaReader
from .wire import HEADER_BYTES, SchemaLookup, Unreadable, Unwritable, header, schema_id_of

_INNER = ("type", "items", "values")
_MISSING = object()
_WIDE = Context(prec=100)
_DEPTH_MAX = 1000
"""How deeply a record may be nested for fastavro's compiled reader, which else ends the process. The reader in Python
raises an error."""


@functools.lru_cache(maxsize=256)
def avro_codec(schema: RecordSchema) -> AvroCodec:
    """Raises `InvalidSchema`."""
    return AvroCodec(schema)


class AvroCodec:
    """Reads and writes records of one schema."""

    def __init__(self, schema: RecordSchema) -> None:
        self._header = header(schema.id)
        named: dict[str, Any] = {}
        names: dict[str, Any] = {}
        binary = BinarySchema()
        nodes: list[Any] = []
        try:
            for _, text in schema.references:
                node = avro_schemas.load(text)
                nodes.append(node)
                avro_schemas.named_types(node, names)
                fastavro.parse_schema(binary.of(node), named_schemas=named)
            node = avro_schemas.load(schema.text)
            nodes.append(node)
            avro_schemas.named_types(node, names)
            self._parsed = fastavro.parse_schema(binary.of(node), named_schemas=named)
        except UnknownType as error:
            raise InvalidSchema(f"the AVRO schema {schema.id} cannot be used: there is no type {error.name}") from None
        except (SchemaParseException, KeyError, TypeError, ValueError) as error:
            raise InvalidSchema(f"the AVRO schema {schema.id} cannot be used: {error}") from None
        _refuse_endless(node, names)
        self._holds_itself = _holds_itself(node, names, {})
        self._schemas = nodes  # their unions are known by their identity
        self._from_avro = _Reading(names, binary).convert(node) or unchanged
        self._to_avro = _Writing(names, binary).convert(node) or unchanged
        self._to_json = JsonReading(names, binary).convert(node) or unchanged
        self._from_json = JsonWriting(names, binary).convert(node) or unchanged

    def read(self, data: bytes) -> Any:
        """The plain value after the header. Raises `Unreadable`."""
        return self._converted(data, self._from_avro)

    def write(self, value: Any) -> bytes:
        """The header and the bytes of a plain value. Fields are found by name, in any case. Raises `Unwritable`."""
        return self._written(self._to_avro(value))

    def json_of(self, data: bytes) -> Any:
        """The value after the header, in Avro's JSON encoding: values of unions have the name of their type. Raises
        `Unreadable`."""
        return self._converted(data, self._to_json)

    def from_json(self, value: Any) -> bytes:
        """The header and the bytes of a value that is in Avro's JSON encoding. Raises `Unwritable`."""
        return self._written(self._from_json(value))

    def _converted(self, data: bytes, convert: Convert) -> Any:
        try:
            return convert(self._read(data))
        except RecursionError:
            raise Unreadable("the AVRO record is nested too deeply") from None

    def _read(self, data: bytes) -> Any:
        stream = io.BytesIO(data)
        stream.seek(HEADER_BYTES)
        reader: Any = fastavro.schemaless_reader
        if self._holds_itself and len(data) > _DEPTH_MAX:  # each level takes a byte
            reader = _read_py.schemaless_reader
        try:
            value = reader(stream, self._parsed, None, return_record_name=True, return_record_name_override=True)
        except RecursionError:
            raise
        except (
            Exception
        ) as error:  # depending on the bytes, fastavro raises any error: EOFError, IndexError, MemoryError, …
            said = str(error).split(" from <")[0] or type(error).__name__  # without the address of the stream
            raise Unreadable(f"the bytes do not fit their AVRO schema: {said}") from None
        if stream.tell() != len(data):
            raise Unreadable(f"{len(data) - stream.tell()} bytes are left behind the AVRO record")
        return value

    def _written(self, value: Any) -> bytes:
        stream = io.BytesIO()
        stream.write(self._header)
        try:
            fastavro.schemaless_writer(stream, self._parsed, value)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, ArithmeticError) as error:
            raise Unwritable(f"a value does not fit the AVRO schema: {error}") from None
        return stream.getvalue()


def _refuse_endless(node: Any, names: dict[str, Any]) -> None:
    """Raises `InvalidSchema` for arrays of items that take no bytes: a record of ten bytes could have any number of
    them."""
    for part in _parts(node):
        if part.get("type") == "array" and _takes_no_bytes(part["items"], names, ()):
            raise InvalidSchema("the AVRO schema has an array of items that take no bytes")


def _parts(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, list):
        for branch in cast(list[Any], node):
            yield from _parts(branch)
    elif isinstance(node, dict):
        said = cast(dict[str, Any], node)
        yield said
        for inner in (said.get("type"), said.get("items"), said.get("values"), said.get("fields")):
            yield from _parts(inner)


def _takes_no_bytes(node: Any, names: dict[str, Any], above: tuple[str, ...]) -> bool:
    if isinstance(node, str):
        known = node in names and node not in above
        return node == "null" or (known and _takes_no_bytes(names[node], names, (*above, node)))
    if isinstance(node, list):
        return False  # the number of the branch takes a byte
    match node["type"]:
        case "record" | "error":
            return all(_takes_no_bytes(field["type"], names, above) for field in node["fields"])
        case "fixed":
            return node["size"] == 0
        case "array" | "map" | "enum":
            return False
        case inner:
            return _takes_no_bytes(inner, names, above)


def _holds_itself(node: Any, names: dict[str, Any], done: dict[int, bool]) -> bool:
    """Whether a record of the schema may contain itself, at any depth. In: `done`: for each record that was met,
    whether all of it was looked at."""
    node = names.get(node, node) if isinstance(node, str) else node
    if isinstance(node, list):
        return any(_holds_itself(branch, names, done) for branch in cast(list[Any], node))
    if not isinstance(node, dict):
        return False
    said = cast(dict[str, Any], node)
    if id(said) in done:
        return not done[id(said)]
    is_record = said["type"] in ("record", "error")
    if is_record:
        done[id(said)] = False
    inside = [field["type"] for field in said["fields"]] if is_record else [said.get(m) for m in _INNER if m in said]
    found = any(_holds_itself(inner, names, done) for inner in inside)
    if is_record:
        done[id(said)] = True
    return found


class _Reading(SchemaWalk):
    """From fastavro's values to plain ones."""

    def _array(self, item: Convert | None) -> Convert | None:
        return item and (lambda value: [item(member) for member in value])

    def _map(self, member: Convert | None) -> Convert | None:
        return member and (lambda value: {key: member(inner) for key, inner in value.items()})

    def _leaf(self, kind: str, node: Any) -> Convert | None:
        if kind not in ("bytes", "fixed") or isinstance(node, str) or node.get("logicalType") != "decimal":
            return None
        scale = int(node.get("scale", 0))
        return lambda value: Number(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _WIDE)

    def _union(self, branches: list[Any]) -> Convert | None:
        others = [branch for branch in branches if branch != "null"]
        if len(others) == 1:
            inner = self.convert(others[0])
            return inner and (lambda value: None if value is None else inner(value))
        if not others:
            return None
        keys = self._binary.branches[id(branches)]
        known = {
            key: (avro_schemas.branch_name(branch), self.convert(branch))
            for key, branch in zip(keys, others, strict=True)
        }
        nothing = {name: None for name, _ in known.values()}

        def convert(value: Any) -> Any:
            """The struct that represents the union: only the field of the branch has a value."""
            if value is None:
                return None
            key, wrapped = value
            name, inner = known[key]
            chosen = wrapped[BRANCH_VALUE]
            return {**nothing, name: chosen if inner is None else inner(chosen)}

        return convert

    def _record(self, node: dict[str, Any]) -> Convert | None:
        inside = {f["name"]: inner for f in node["fields"] if (inner := self.convert(f["type"])) is not None}
        if not inside:
            return None

        def convert(value: dict[str, Any]) -> dict[str, Any]:
            for name, change in inside.items():
                value[name] = change(value[name])
            return value

        return convert


class _Writing(SchemaWalk):
    """From plain values to fastavro's. The functions raise `Unwritable`."""

    def _array(self, item: Convert | None) -> Convert:
        each = item or unchanged
        return lambda value: [each(member) for member in of_type(list, value, "an array")]

    def _map(self, member: Convert | None) -> Convert:
        each = member or unchanged
        return lambda value: {str(key): each(inner) for key, inner in of_type(dict, value, "a map").items()}

    def _leaf(self, kind: str, node: Any) -> Convert:
        return _leaf(kind, {} if isinstance(node, str) else node)

    def _union(self, branches: list[Any]) -> Convert:
        others = [branch for branch in branches if branch != "null"]
        nullable = len(others) < len(branches)
        converts = [self.convert(branch) or unchanged for branch in others]
        names = [fold(avro_schemas.branch_name(branch)) for branch in others]
        texts = [_is_text(self._resolve(branch)) for branch in others]
        keys = self._binary.branches.get(id(branches), ())

        def convert(value: Any) -> Any:
            chosen, value = _branch_set(names, value) if len(names) > 1 and isinstance(value, dict) else (None, value)
            if value is None:
                if nullable:
                    return None
                raise Unwritable("a value is missing where the AVRO schema allows no null")
            if len(converts) == 1:
                return converts[0](value)
            if chosen is None:
                chosen, written = _first_that_fits(converts, texts, value)
            else:
                written = converts[chosen](value)
            return keys[chosen], {BRANCH_VALUE: written}

        return convert

    def _record(self, node: dict[str, Any]) -> Convert:
        fields = [
            (
                f["name"],
                fold(f["name"]),
                self.convert(f["type"]) or unchanged,
                "default" in f,
                self._nullable(f["type"]),
            )
            for f in node["fields"]
        ]

        def convert(value: Any) -> dict[str, Any]:
            given: dict[str, Any] = of_type(dict, value, "a record")
            folded: dict[str, Any] | None = None
            result: dict[str, Any] = {}
            for name, folded_name, inner, defaulted, nullable in fields:
                member = given.get(name, _MISSING)
                if member is _MISSING:
                    if folded is None:
                        folded = {fold(key): value for key, value in given.items()}
                    member = folded.get(folded_name, _MISSING)
                if member is _MISSING or (member is None and not nullable):
                    if defaulted:
                        continue  # fastavro writes the default
                    if not nullable:
                        raise Unwritable(f"the field {name} has no value, and the AVRO schema has no default for it")
                    member = None
                result[name] = inner(member)
            return result

        return convert

    def _nullable(self, node: Any) -> bool:
        node = self._resolve(node)
        return node == "null" or (isinstance(node, list) and "null" in node)


def _branch_set(names: list[str], value: dict[Any, Any]) -> tuple[int | None, Any]:
    """The branch of a union that the value sets, and its value, if it is the struct that represents the union; else
    None and the value. A struct that sets no branch is NULL."""
    given = {fold(str(key)): member for key, member in value.items() if member is not None}
    if len(given) == 1 and next(iter(given)) in names:
        ((name, member),) = given.items()
        return names.index(name), member
    if {fold(str(key)) for key in value} != set(names):
        return None, value
    if given:
        several = ", ".join(str(key) for key, member in value.items() if member is not None)
        raise Unwritable(f"a union of the AVRO schema takes one value, and {several} have one each")
    return None, None


def _is_text(node: Any) -> bool:
    return (node if isinstance(node, str) else node["type"]) in ("string", "enum")


def _first_that_fits(converts: list[Convert], texts: list[bool], value: Any) -> tuple[int, Any]:
    """In: `texts`: which branches are texts. Numbers fit these too, and some texts fit bytes: they come last then."""
    problem = Unwritable("no branch of a union takes a value")
    for number in sorted(range(len(converts)), key=lambda number: texts[number] != isinstance(value, str)):
        try:
            return number, converts[number](value)
        except (Unwritable, ValueError, TypeError, ArithmeticError) as error:
            problem = Unwritable(str(error))
    raise problem


def _leaf(kind: str, node: dict[str, Any]) -> Convert:
    match kind:
        case "null":
            return lambda value: None
        case "boolean":
            return lambda value: of_type(bool, value, "a boolean")
        case "int" | "long":
            return lambda value: whole(kind, value)
        case "float" | "double":
            return lambda value: real(kind, value)
        case "bytes" | "fixed" if node.get("logicalType") == "decimal":
            return _decimal_writer(node)
        case "bytes":
            return _bytes
        case "fixed":
            return lambda value: sized(node, _bytes(value))
        case "enum":
            return lambda value: symbol(node, _text(value))
        case _:
            return _text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, Number)):
        return str(value)
    raise unwanted("a text", value)


def _bytes(value: Any) -> bytes:
    """Bytes, or their base64 text."""
    if isinstance(value, bytes):
        return value
    try:
        return binascii.a2b_base64(of_type(str, value, "bytes"), strict_mode=True)
    except binascii.Error:
        raise Unwritable(f"the AVRO schema wants bytes, {describe(value)} is not base64") from None


def _decimal_writer(node: dict[str, Any]) -> Convert:
    scale, size = int(node.get("scale", 0)), node.get("size") if node["type"] == "fixed" else None
    precision = int(node.get("precision", 0))

    def convert(value: Any) -> bytes:
        number = number_of(value).scaleb(scale, _WIDE)
        unscaled = int(number)
        if unscaled != number or (precision and abs(unscaled) >= 10**precision):
            raise Unwritable(f"the number {value} does not fit into the AVRO decimal ({precision}, {scale})")
        return unscaled.to_bytes(size or (unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)

    return convert


class AvroReader(SchemaReader):
    """Reads flat records of one schema by one compiled pass."""

    def __init__(self, coding: SchemaCoding, spec: FormatSpec, schemas: SchemaLookup) -> None:
        super().__init__(coding, spec, schemas)
        self._flat: dict[int, FlatRecord | None] = {}

    def scan(self, rows: pa.BinaryArray, columns: Sequence[Column]) -> Scanned | None:
        flat = self._flat_record(rows, columns)
        return None if flat is None else scan(flat, rows)

    def _flat_record(self, rows: pa.BinaryArray, columns: Sequence[Column]) -> FlatRecord | None:
        """The plan to read the batch in one pass; None if its first record's schema or the columns do not allow it."""
        first = next((row.as_py() for row in rows if row.is_valid), None)
        try:
            schema_id = schema_id_of(first or b"")
        except Unreadable:
            return None
        if schema_id not in self._flat:
            schema = self.schema(schema_id)
            if schema is None:
                return None  # it may be registered later
            self._flat[schema_id] = flat_record(schema, columns) if schema.kind == AVRO.schema_kind else None
        return self._flat[schema_id]


@codes(AVRO.name)
class AvroCoding(SchemaCoding):
    def codec(self, spec: FormatSpec, schema: RecordSchema) -> AvroCodec:
        return avro_codec(schema)

    def reader(self, part: RecordPart) -> AvroReader:
        return AvroReader(self, part.spec, part.schemas)
