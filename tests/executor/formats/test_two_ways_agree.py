"""The compiled path and the exact reading give the same rows, errors and bytes, whatever comes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
from drawn import drawn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.executor.formats import Decoded, Decoder, decoder, encoder, text_decoder, text_encoder
from millstream.executor.formats.limits import INTEGER_RANGES
from millstream.executor.formats.writing import wire_type
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec
from millstream.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Field,
    Map,
    Primitive,
    SqlType,
    Struct,
)

JSON = FormatSpec("JSON")
EXAMPLES = drawn(60)
BARE = FormatSpec("JSON", wrap_single=False)
PATIENT = settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])

primitives = st.sampled_from([BOOLEAN, INTEGER, BIGINT, DOUBLE, STRING, BYTES, TIME, DATE, TIMESTAMP])
decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Decimal(p, s)))
scalars: st.SearchStrategy[SqlType] = primitives | decimals
names = st.sampled_from(["A", "b", "Ab", "aB", "GRÖSSE", "with space", 'q"\\', "C", "D"])


def nested(inner: st.SearchStrategy[SqlType]) -> st.SearchStrategy[SqlType]:
    structs = st.lists(st.tuples(names, inner), min_size=1, max_size=3, unique_by=lambda field: field[0]).map(
        lambda fields: Struct(tuple(Field(name, type_) for name, type_ in fields))
    )
    return inner.map(Array) | inner.map(lambda value: Map(STRING, value)) | structs


types = st.recursive(scalars, nested, max_leaves=4)
columns = st.lists(st.tuples(names, types), max_size=4, unique_by=lambda column: column[0]).map(
    lambda pairs: [Column(name, type_) for name, type_ in pairs]
)
flat_columns = st.lists(st.tuples(names, scalars), min_size=1, max_size=4, unique_by=lambda column: column[0]).map(
    lambda pairs: [Column(name, type_) for name, type_ in pairs]
)

NUMBERS = [
    "0", "-0", "-0.0", "1", "-1", "1.0", "1.9", "-1.9", "1e2", "1E-2", "1.10", "123456789012345678901234567890",
    "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "1234567890123456789", "0.1", "0.30000000000000004", "1e22", "1e23",
    "9007199254740993", "1e400", "-1e400", "1e-400", "1e9999999", "1e-9999999", "1e99999999999999999999",
    "123456789.123456789", "86399999", "86400000", "9999999999999999999999999999999999999", "99.99", "99.995", "00",
    "01", "1.", ".5", "+1", "1e", "- 1", "0x10", "NaN", "Infinity", "-Infinity", "1" * 5000,
]  # fmt: skip
TEXTS = [
    "", " ", "a", "12", "-12", "+12", " 12", "1.5", "1.50", "1e3", "007", "true", "TRUE", "NaN", "-Infinity", "1e400",
    "ew==", "ew=", "e w==", "ex==", "AAAA", "grün", "日本", "😀", '"', "\\", "/", "\n\t\x01\x7f", "a\u2028b", "²", "١",
    "9223372036854775807", "99999999999999999999", "\ud800", "\ud83d\ude00",
]  # fmt: skip
RAW_STRINGS = ['"\\ud800"', '"\\ud83d\\ude00"', '"\\ude00\\ud83d"', '"\\u00e9\\/"', '"\\x"', '"\\u12"', '"a\nb"', '"a']

spelled_names = st.sampled_from(
    [
        "A",
        "a",
        "b",
        "B",
        "Ab",
        "ab",
        "AB",
        "GRÖSSE",
        "grösse",
        "größe",
        "with space",
        'q"\\',
        "C",
        "c",
        "D",
        "ı",
        "ſ",
        "",
    ]
)


def as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


leaves = (
    st.sampled_from(NUMBERS + RAW_STRINGS + ["null", "true", "false", "nul", "True"])
    | st.sampled_from(TEXTS).map(as_json)
    | st.sampled_from(TEXTS).map(json.dumps)
    | st.integers(-(10**20), 10**20).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
)
spaces = st.sampled_from(["", "", "", " ", "\n\t", "\r", "\u00a0"])


@st.composite
def texts_of_objects(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    members = draw(st.lists(st.tuples(spelled_names, inner), max_size=5))
    space = draw(spaces)
    return "{" + ",".join(f"{space}{as_json(name)}{space}:{space}{value}{space}" for name, value in members) + "}"


def containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return texts_of_objects(inner) | st.lists(inner, max_size=4).map(lambda members: f"[{','.join(members)}]")


documents = st.recursive(leaves, containers, max_leaves=8)
hostile = st.sampled_from(
    ["", " ", "{", "[", "{}x", "{} {}", "\ufeff{}", '{"A":1,}', "[" * 501 + "]" * 501, "[" * 70 + "]" * 70]
)
any_documents = (texts_of_objects(documents) | documents | hostile).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)
mutated = st.builds(
    lambda data, position, byte: (
        data[: position % (len(data) + 1)] + bytes([byte]) + data[position % (len(data) + 1) + 1 :]
    ),
    any_documents,
    st.integers(0, 10_000),
    st.integers(0, 255),
)


def json_of(type_: SqlType) -> st.SearchStrategy[str]:
    """JSON that mostly fits the type."""
    match type_:
        case Struct():
            fields = st.tuples(
                *(st.tuples(st.sampled_from([f.name, f.name.lower()]), json_of(f.type)) for f in type_.fields)
            )
            plain: st.SearchStrategy[str] = fields.map(
                lambda pairs: "{" + ",".join(f"{as_json(name)}:{value}" for name, value in pairs) + "}"
            )
        case Array():
            plain = st.lists(json_of(type_.element), max_size=4).map(lambda members: f"[{','.join(members)}]")
        case Map():
            plain = st.dictionaries(spelled_names, json_of(type_.value), max_size=3).map(
                lambda members: "{" + ",".join(f"{as_json(name)}:{value}" for name, value in members.items()) + "}"
            )
        case _:
            plain = st.integers(-1000, 1000).map(str) | leaves
    return st.one_of(plain, plain, plain, st.just("null"))


def by_both(make: Decoder, rows: Sequence[bytes | None]) -> tuple[Decoded, Decoded]:
    data = pa.array(rows, pa.binary())
    before = text_decoder.SMALL_BATCH
    try:
        text_decoder.SMALL_BATCH = 10**9  # pyrefly: ignore[bad-assignment]
        exact = make.decode(data)
        text_decoder.SMALL_BATCH = 0  # pyrefly: ignore[bad-assignment]
        return exact, make.decode(data)
    finally:
        text_decoder.SMALL_BATCH = before


def agree(declared: list[Column], make: Decoder, rows: Sequence[bytes | None]) -> None:
    exact, scanned = by_both(make, rows)
    assert exact.errors == scanned.errors
    assert exact.null_rows.equals(scanned.null_rows)
    for column, left, right in zip(declared, exact.columns, scanned.columns, strict=True):
        assert left.type == right.type == column.type.arrow
        right.validate(full=True)
        assert plain_values(column.type, left) == plain_values(column.type, right)


@PATIENT
@given(columns, st.lists(any_documents | mutated | st.none(), max_size=8))
def test_any_json_reads_the_same(declared: list[Column], rows: list[bytes | None]) -> None:
    agree(declared, decoder(JSON, declared), rows)


@PATIENT
@given(st.data(), columns)
def test_json_that_mostly_fits_reads_the_same(data: st.DataObject, declared: list[Column]) -> None:
    row = json_of(Struct(tuple(Field(column.name, column.type) for column in declared)))
    texts = data.draw(st.lists(row, min_size=1, max_size=6))
    agree(declared, decoder(JSON, declared), [text.encode("utf-8", "surrogatepass") for text in texts])


@PATIENT
@given(types, st.data())
def test_bare_json_reads_the_same(type_: SqlType, data: st.DataObject) -> None:
    rows = data.draw(
        st.lists(json_of(type_).map(lambda text: text.encode("utf-8", "surrogatepass")) | mutated, max_size=6)
    )
    agree([Column("V", type_)], decoder(BARE, [Column("V", type_)]), rows)


fields_of_lines = st.sampled_from(
    [*NUMBERS, *TEXTS, '"a"', '"a""b"', '"a"b', '"', '""', 'a"b', '"a,b"', '"1" ', '"\n"']
)


@PATIENT
@given(
    flat_columns,
    st.lists(st.lists(fields_of_lines, max_size=5), max_size=8),
    st.sampled_from([",", "|", "TAB", "SPACE", "ß"]),
)
def test_any_line_reads_the_same(declared: list[Column], lines: list[list[str]], delimiter: str) -> None:
    separator = {"TAB": "\t", "SPACE": " "}.get(delimiter, delimiter)
    rows = [separator.join(line).encode("utf-8", "surrogatepass") for line in lines]
    agree(declared, decoder(FormatSpec("DELIMITED", delimiter=delimiter), declared), rows)


def values_of(type_: SqlType) -> st.SearchStrategy[Any]:
    """Values of a type as `pyarrow.array` takes them, or None."""
    match type_:
        case Primitive(name="BOOLEAN"):
            plain: st.SearchStrategy[Any] = st.booleans()
        case Primitive(name="DOUBLE"):
            plain = st.floats() | st.sampled_from(
                [-0.0, 1e7, 1e-3, 9999999.0, 1e-4, 1e16, 5e-324, 1.7976931348623157e308]
            )
        case Primitive(name="STRING"):
            plain = st.text() | st.sampled_from(["", "-", "a,b", 'a"b', " a", "a ", "é", "\n", "#", "1\t"])
        case Primitive(name="BYTES"):
            plain = st.binary()
        case Primitive():
            low, high = INTEGER_RANGES[type_.name]
            factor = 1000 if type_.name in ("TIME", "TIMESTAMP") else 1
            plain = st.integers(low, high).map(lambda value: value * factor)
        case Decimal():
            limit = 10**type_.precision - 1
            plain = st.integers(-limit, limit).map(lambda value: Number(f"{value}e-{type_.scale}"))
        case Array():
            plain = st.lists(values_of(type_.element), max_size=4)
        case Map():
            plain = st.dictionaries(st.text(max_size=3), values_of(type_.value), max_size=3).map(
                lambda d: list(d.items())
            )
        case Struct():
            plain = st.fixed_dictionaries({field.name: values_of(field.type) for field in type_.fields})
        case _:
            raise AssertionError(type_)
    return st.one_of(plain, plain, plain, st.none())


def encode_both(spec: FormatSpec, declared: list[Column], arrays: list[pa.Array]) -> pa.BinaryArray:
    make = encoder(spec, declared)
    before = text_encoder.SMALL_BATCH
    try:
        text_encoder.SMALL_BATCH = 10**9  # pyrefly: ignore[bad-assignment]
        exact = make.encode(arrays)
        text_encoder.SMALL_BATCH = 0  # pyrefly: ignore[bad-assignment]
        compiled = make.encode(arrays)
    finally:
        text_encoder.SMALL_BATCH = before
    compiled.validate(full=True)
    assert exact.equals(compiled), (exact.to_pylist(), compiled.to_pylist())
    return compiled


@st.composite
def tables(draw: st.DrawFn, declared_columns: st.SearchStrategy[list[Column]]) -> tuple[list[Column], list[pa.Array]]:
    declared = draw(declared_columns.filter(len))
    count = draw(st.integers(0, 6))
    arrays = [
        pa.array(draw(st.lists(values_of(column.type), min_size=count, max_size=count)), column.type.arrow)
        for column in declared
    ]
    cut = draw(st.integers(0, count))
    return declared, [array[cut:] for array in arrays]


def plain_values(type_: SqlType, array: pa.Array) -> str:
    """A text that shows every difference; times as integers, since Python's end in the year 9999."""
    return repr(array.cast(wire_type(type_)).to_pylist())


@PATIENT
@given(tables(columns))
def test_written_json_is_the_same_and_reads_back(table: tuple[list[Column], list[pa.Array]]) -> None:
    declared, arrays = table
    written = encode_both(JSON, declared, arrays)
    for row in written.to_pylist():
        json.loads(row, parse_constant=lambda word: math.nan / 0)
    for decoded in by_both(decoder(JSON, declared), written.to_pylist()):
        assert decoded.errors == []
        for column, array, back in zip(declared, arrays, decoded.columns, strict=True):
            assert plain_values(column.type, array) == plain_values(column.type, back)


@PATIENT
@given(tables(types.map(lambda type_: [Column("V", type_)])))
def test_written_bare_json_reads_back(table: tuple[list[Column], list[pa.Array]]) -> None:
    declared, arrays = table
    written = encode_both(BARE, declared, arrays)
    for decoded in by_both(decoder(BARE, declared), written.to_pylist()):
        assert plain_values(declared[0].type, arrays[0]) == plain_values(declared[0].type, decoded.columns[0])


def without_emptiness(type_: SqlType, array: pa.Array) -> pa.Array:
    """DELIMITED cannot tell empty text from NULL."""
    if type_ not in (STRING, BYTES):
        return array
    return pa.array([value or None for value in array.to_pylist()], type_.arrow)


@PATIENT
@given(tables(flat_columns), st.sampled_from([",", "|", "-", "TAB", "SPACE", "ß"]))
def test_written_lines_are_the_same_and_read_back(table: tuple[list[Column], list[pa.Array]], delimiter: str) -> None:
    declared, arrays = table
    spec = FormatSpec("DELIMITED", delimiter=delimiter)
    written = encode_both(spec, declared, arrays)
    for decoded in by_both(decoder(spec, declared), written.to_pylist()):
        assert decoded.errors == []
        for column, array, back in zip(declared, arrays, decoded.columns, strict=True):
            wanted = without_emptiness(column.type, array)
            assert plain_values(column.type, wanted) == plain_values(column.type, back)
