"""Which codec a format's name stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.errors import FormatError

from ...planner.formats import FORMATS
from ...planner.schema import Column
from ...planner.specs import FormatSpec, KeyWindow
from ...sql.types import Array, Map, Struct
from .codec import Decoder, Encoder
from .delimited import Delimited, delimiter_of
from .json_format import BareJson, WrappedJson
from .json_sr import JsonSrDecoder, JsonSrEncoder
from .kafka import TYPES, KafkaDecoder, KafkaEncoder
from .none import NoneCodec
from .record_codec import RecordDecoder, RecordEncoder
from .text_decoder import TextDecoder
from .text_encoder import BareValue, DelimitedLine, JsonObject, TextEncoder
from .windows import WindowedDecoder, WindowedEncoder
from .wire import SchemaLookup, no_schemas


def decoder(
    spec: FormatSpec,
    columns: Sequence[Column],
    *,
    needed: Sequence[bool] | None = None,
    window: KeyWindow | None = None,
    schemas: SchemaLookup = no_schemas,
) -> Decoder:
    """A decoder of `columns`; those that are not `needed` are all NULL, and what is wrong with them goes unseen.

    `schemas`: finds the schemas that records name.

    Raises: FormatError where the format does not exist or cannot hold the columns.
    """
    held = [column for column in columns if column.role != "HEADERS"]
    _check(spec, held)
    wanted = [column.role != "HEADERS" and (needed is None or needed[number]) for number, column in enumerate(columns)]
    read = [column for column, want in zip(columns, wanted, strict=True) if want]
    match spec.name:
        case "JSON_SR":
            inner: Decoder = JsonSrDecoder(decoder(replace(spec, name="JSON"), columns, needed=needed))
        case "AVRO" | "PROTOBUF" | "PROTOBUF_NOSR":
            inner = RecordDecoder(spec, columns, wanted, schemas, bare=_is_bare(spec, held))
        case "JSON" if _is_bare(spec, held):
            inner = TextDecoder(BareJson(held[0], bool(read)), columns, wanted)
        case "JSON":
            inner = TextDecoder(WrappedJson(read), columns, wanted)
        case "DELIMITED":
            held_wanted = [want for column, want in zip(columns, wanted, strict=True) if column.role != "HEADERS"]
            inner = TextDecoder(Delimited(held, held_wanted, delimiter_of(spec.delimiter)), columns, wanted)
        case "KAFKA":
            inner = KafkaDecoder(columns, wanted)
        case _:
            inner = NoneCodec()
    return inner if window is None else WindowedDecoder(inner, window)


def encoder(spec: FormatSpec, columns: Sequence[Column], window: KeyWindow | None = None) -> Encoder:
    """An encoder of `columns`, in their order.

    Raises: FormatError where the format does not exist or cannot hold the columns.
    """
    numbers = [number for number, column in enumerate(columns) if column.role != "HEADERS"]
    held = [columns[number] for number in numbers]
    _check(spec, held)
    match spec.name:
        case "JSON_SR":
            assert spec.schema is not None, "the planner gives every source of this format a schema"
            inner: Encoder = JsonSrEncoder(encoder(replace(spec, name="JSON"), columns), spec.schema.id)
        case "AVRO" | "PROTOBUF" | "PROTOBUF_NOSR":
            inner = RecordEncoder(spec, held, numbers, bare=_is_bare(spec, held))
        case "JSON" if _is_bare(spec, held):
            inner = TextEncoder(BareValue(), held, numbers)
        case "JSON":
            inner = TextEncoder(JsonObject([column.name for column in held]), held, numbers)
        case "DELIMITED":
            inner = TextEncoder(DelimitedLine(delimiter_of(spec.delimiter)), held, numbers)
        case "KAFKA":
            inner = KafkaEncoder(held[0] if held else None, numbers[0] if numbers else 0)
        case _:
            inner = NoneCodec()
    return inner if window is None else WindowedEncoder(inner, window)


def _is_bare(spec: FormatSpec, held: Sequence[Column]) -> bool:
    return not spec.wrap_single and len(held) == 1


def _check(spec: FormatSpec, held: Sequence[Column]) -> None:
    match spec.name:
        case "JSON" | "JSON_SR" | "AVRO" | "PROTOBUF" | "PROTOBUF_NOSR":
            pass
        case "DELIMITED":
            for column in held:
                if isinstance(column.type, (Array, Map, Struct)):
                    raise _unfit(spec, column)
        case "KAFKA":
            for column in held:
                if str(column.type) not in TYPES:
                    raise _unfit(spec, column)
            if len(held) > 1:
                raise FormatError(
                    f"the KAFKA format holds one column, not {len(held)}", hint="Use JSON or DELIMITED instead."
                )
        case "NONE":
            if held:
                raise FormatError(f"the NONE format holds no columns, not {len(held)}")
        case _:
            raise FormatError(f"unknown format {spec.name}", hint=f"The formats are {', '.join(FORMATS)}.")


def _unfit(spec: FormatSpec, column: Column) -> FormatError:
    return FormatError(f"the {spec.name} format cannot hold column `{column.name}` of type {column.type}")
