"""Functions about texts; several take BYTES too. Lengths and positions count characters (Unicode code points)."""

from __future__ import annotations

from functools import partial

from sqlglot import exp

from ..types import STRING
from .function import BoundCall, Function, scalar, variant
from .growth import (
    CONCAT_TEXTS,
    JOIN_TEXTS,
    LPAD_TEXT,
    RPAD_TEXT,
    few_joined,
    replace_text,
    small_padding,
    small_replacement,
)
from .letter_case import CAPITALS, SMALL_LETTERS
from .string_rows import (
    CONCAT_BYTES,
    FIND_NTH,
    JOIN_BYTES,
    LPAD_BYTES,
    MASK_WITH,
    RPAD_BYTES,
    encode,
    from_bytes,
    initcap,
    mask_all,
    masker,
    split_bytes,
    split_to_map,
    substring_bytes,
    to_bytes,
    unescape,
)
from .udf import PythonFunction

string_function = partial(scalar, category="STRING")

_MARKS = "upper STRING, lower STRING, digit STRING, other STRING"


def _mask_function(name: str, python: PythonFunction, doc: str, example: dict[str, str]) -> Function:
    return string_function(
        name,
        signatures=[
            "(text STRING, count INTEGER) -> STRING",
            f"(text STRING, count INTEGER, {_MARKS}) -> STRING",
        ],
        doc=f"{doc} The marks are for upper case, lower case, digits and the rest; NULL leaves them unchanged.",
        python=python,
        examples={**example, f"{name.upper()}(NULL, 1)": "NULL"},
    )


_BLANKS = "".join(map(chr, range(1, 33)))
_START = (
    "CASE WHEN :position < 0 "
    "THEN CASE WHEN length(:text) + :position < 0 THEN 1 ELSE length(:text) + :position + 1 END "
    "WHEN :position < 1 THEN 1 ELSE :position END"
)
_LENGTH = "CASE WHEN :length < 0 THEN 0 ELSE :length END"


def _is_count(argument: exp.Expression) -> bool:
    """Whether the argument is written as a number of at least 1."""
    return isinstance(argument, exp.Literal) and not argument.is_string and int(argument.this) >= 1


def _plain_substring(_call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression | None:
    if all(map(_is_count, arguments[1:])):
        return exp.Anonymous(this="substring", expressions=[argument.copy() for argument in arguments])
    return None


def _elements(call: BoundCall) -> str:
    """The variadic arguments as a list; a list of nothing needs a type."""
    return "list_value(:items)" if len(call.parameters) > 1 else f"CAST(list_value() AS {STRING.duckdb}[])"


FUNCTIONS: tuple[Function, ...] = (
    string_function(
        "Chr",
        signatures=[
            variant(
                "(code INTEGER) -> STRING",
                sql="CASE WHEN :code BETWEEN 0 AND 55295 OR :code BETWEEN 57344 AND 1114111 THEN chr(:code) END",
            ),
            variant("(code STRING) -> STRING", python=unescape),
        ],
        doc="The character with this Unicode code point: a number, or a text like '\\u004b'.",
        examples={"CHR(75)": "'K'", "CHR('\\u004b')": "'K'", "CHR('75')": "NULL", "CHR(CAST(NULL AS INTEGER))": "NULL"},
    ),
    string_function(
        "concat",
        signatures=[
            variant("(items STRING...) -> STRING", render=few_joined, python=CONCAT_TEXTS),
            variant("(items BYTES...) -> BYTES", python=CONCAT_BYTES),
        ],
        doc="The values joined into one; NULLs are left out.",
        examples={"CONCAT('a', NULL, 'b')": "'ab'", "CONCAT(CAST(NULL AS STRING), NULL)": "''"},
    ),
    string_function(
        "concat_ws",
        signatures=[
            variant(
                "(separator STRING, first STRING, items STRING...) -> STRING",
                render=few_joined,
                python=JOIN_TEXTS,
            ),
            variant("(separator BYTES, first BYTES, items BYTES...) -> BYTES", python=JOIN_BYTES),
        ],
        doc="The values joined, with the separator between; NULLs are skipped, a NULL separator gives NULL.",
        examples={"CONCAT_WS(', ', 'a', NULL, 'b')": "'a, b'", "CONCAT_WS(NULL, 'a', 'b')": "NULL"},
    ),
    string_function(
        "elt",
        signature="(n INTEGER, items STRING...) -> STRING",
        doc="The n-th of the values, from 1; NULL if there is none.",
        sql=lambda call: f"list_extract({_elements(call)}, CASE WHEN :n >= 1 THEN :n END)",
        examples={"ELT(2, 'a', 'b')": "'b'", "ELT(3, 'a', 'b')": "NULL", "ELT(NULL, 'a')": "NULL"},
    ),
    string_function(
        "encode",
        signature="(text STRING, input_encoding STRING, output_encoding STRING) -> STRING",
        doc="A text in one encoding brought to another: 'hex', 'utf8', 'ascii' or 'base64'.",
        python=encode,
        examples={
            "ENCODE('4578616d706C6521', 'hex', 'utf8')": "'Example!'",
            "ENCODE('Ü', 'utf8', 'hex')": "'c39c'",
            "ENCODE('abc', 'hex', 'morse')": "NULL",
            "ENCODE(NULL, 'hex', 'utf8')": "NULL",
        },
    ),
    string_function(
        "field",
        signature="(text STRING, items STRING...) -> INTEGER",
        doc="The position of `text` among the values, from 1; 0 where it is not there, or NULL.",
        sql=lambda call: (
            f"CAST(CASE WHEN :text IS NULL THEN 0 ELSE coalesce(list_position({_elements(call)}, :text), 0) END "
            "AS INTEGER)"
        ),
        examples={"FIELD('b', 'a', 'b')": "2", "FIELD('c', 'a', NULL)": "0", "FIELD(NULL, 'a')": "0"},
    ),
    string_function(
        "from_bytes",
        signature="(value BYTES, encoding STRING) -> STRING",
        doc="Bytes as a text in an encoding: 'hex', 'utf8', 'ascii' or 'base64'.",
        python=from_bytes,
        examples={"FROM_BYTES(TO_BYTES('Hi', 'utf8'), 'hex')": "'4869'", "FROM_BYTES(NULL, 'hex')": "NULL"},
    ),
    string_function(
        "initcap",
        signature="(text STRING) -> STRING",
        doc="Each word with a capital first letter, the others small; blanks at the start are dropped.",
        python=initcap,
        examples={"INITCAP('the   Quick br0wn fOx')": "'The   Quick Br0wn Fox'", "INITCAP(NULL)": "NULL"},
    ),
    string_function(
        "instr",
        signatures=[
            variant("(text STRING, part STRING) -> INTEGER", sql="CAST(coalesce(instr(:text, :part), 0) AS INTEGER)"),
            variant("(text STRING, part STRING, position INTEGER) -> INTEGER", python=FIND_NTH),
            variant("(text STRING, part STRING, position INTEGER, occurrence INTEGER) -> INTEGER", python=FIND_NTH),
        ],
        doc="Where `part` is in `text`, from 1, or 0; from `position` on (backwards from the end if negative), "
        "the n-th `occurrence`.",
        examples={
            "INSTR('CORPORATE FLOOR', 'OR')": "2",
            "INSTR('CORPORATE FLOOR', 'OR', 3, 2)": "14",
            "INSTR('CORPORATE FLOOR', 'OR', -3)": "5",
            "INSTR(NULL, 'OR')": "0",
        },
    ),
    string_function(
        "lcase",
        signature="(text STRING) -> STRING",
        doc="The text in small letters; Σ at the end of a word becomes ς.",
        sql=SMALL_LETTERS,
        examples={
            "LCASE('AbC')": "'abc'",
            "LCASE('ΟΔΟΣ ΣΑΣ')": "'οδος σας'",
            "LEN(LCASE('İ'))": "2",
            "LCASE(NULL)": "NULL",
        },
    ),
    string_function(
        "len",
        signatures=[
            variant("(text STRING) -> INTEGER", sql="CAST(length(:text) AS INTEGER)"),
            variant("(value BYTES) -> INTEGER", sql="CAST(octet_length(:value) AS INTEGER)"),
        ],
        doc="The number of characters, or of bytes.",
        examples={"LEN('abc')": "3", "LEN(TO_BYTES('0a0b', 'hex'))": "2", "LEN(CAST(NULL AS STRING))": "NULL"},
    ),
    string_function(
        "LPad",
        signatures=[
            variant("(text STRING, length INTEGER, padding STRING) -> STRING", render=small_padding, python=LPAD_TEXT),
            variant("(value BYTES, length INTEGER, padding BYTES) -> BYTES", python=LPAD_BYTES),
        ],
        doc="Pad on the left with `padding` up to `length`; cut it there if longer. NULL for an empty padding.",
        examples={"LPAD('7', 3, '0')": "'007'", "LPAD('hello', 2, '.')": "'he'", "LPAD(NULL, 2, '.')": "NULL"},
    ),
    string_function(
        "mask",
        signatures=[
            variant("(text STRING) -> STRING", python=mask_all),
            variant(f"(text STRING, {_MARKS}) -> STRING", python=MASK_WITH),
        ],
        doc="Each character replaced by a mark for its kind: upper case, lower case, digit or other.",
        examples={
            "MASK('My Test $123')": "'Xx-Xxxx--nnn'",
            "MASK('My Test $123', '*', NULL, '1', NULL)": "'*y *est $111'",
            "MASK(NULL)": "NULL",
        },
    ),
    _mask_function(
        "mask_keep_left",
        masker("mask_keep_left", lambda text, count: min(count, len(text)), masks_left=False),
        "Mask all but the first `count` characters.",
        {"MASK_KEEP_LEFT('My Test $123', 4)": "'My Txxx--nnn'"},
    ),
    _mask_function(
        "mask_keep_right",
        masker("mask_keep_right", lambda text, count: max(len(text) - count, 0), masks_left=True),
        "Mask all but the last `count` characters.",
        {"MASK_KEEP_RIGHT('My Test $123', 4)": "'Xx-Xxxx-$123'"},
    ),
    _mask_function(
        "mask_left",
        masker("mask_left", lambda text, count: min(count, len(text)), masks_left=True),
        "Mask the first `count` characters.",
        {"MASK_LEFT('My Test $123', 4)": "'Xx-Xest $123'"},
    ),
    _mask_function(
        "mask_right",
        masker("mask_right", lambda text, count: max(len(text) - count, 0), masks_left=False),
        "Mask the last `count` characters.",
        {"MASK_RIGHT('My Test $123', 4)": "'My Test -nnn'"},
    ),
    string_function(
        "md5",
        signature="(text STRING) -> STRING",
        doc="The MD5 hash, in hexadecimal.",
        sql="md5(:text)",
        examples={"MD5('a')": "'0cc175b9c0f1b6a831c399e269772661'", "MD5(NULL)": "NULL"},
    ),
    string_function(
        "replace",
        signatures=[
            variant("(text STRING, old STRING, new STRING) -> STRING", render=small_replacement, python=replace_text)
        ],
        doc="The text with every `old` replaced by `new`.",
        examples={"REPLACE('foo bar', 'foo', 'b')": "'b bar'", "REPLACE('foo', NULL, 'b')": "NULL"},
    ),
    string_function(
        "RPad",
        signatures=[
            variant("(text STRING, length INTEGER, padding STRING) -> STRING", render=small_padding, python=RPAD_TEXT),
            variant("(value BYTES, length INTEGER, padding BYTES) -> BYTES", python=RPAD_BYTES),
        ],
        doc="Pad on the right with `padding` up to `length`; cut it there if longer. NULL for an empty padding.",
        examples={"RPAD('Foo', 7, 'Bar')": "'FooBarB'", "RPAD('Foo', 7, '')": "NULL", "RPAD(NULL, 2, '.')": "NULL"},
    ),
    string_function(
        "split",
        signatures=[
            variant(
                "(text STRING, delimiter STRING) -> ARRAY<STRING>",
                sql="CASE WHEN :delimiter IS NOT NULL THEN CASE WHEN :text = '' THEN list_value('') "
                "ELSE string_split(:text, :delimiter) END END",
            ),
            variant("(value BYTES, delimiter BYTES) -> ARRAY<BYTES>", python=split_bytes),
        ],
        doc="The parts between delimiters; every character (or byte) for an empty delimiter.",
        examples={
            "SPLIT('a$$b.c', '$$')": "ARRAY['a', 'b.c']",
            "SPLIT('abc', '')": "ARRAY['a', 'b', 'c']",
            "SPLIT('', ',')": "ARRAY['']",
            "SPLIT('a', NULL)": "NULL",
        },
    ),
    string_function(
        "split_to_map",
        signature="(text STRING, entry_delimiter STRING, key_delimiter STRING) -> MAP<STRING, STRING>",
        doc="The map written as keys and values; the last of equal keys counts.",
        python=split_to_map,
        examples={
            "SPLIT_TO_MAP('apple:green/cherry:red', '/', ':')": "MAP('apple' := 'green', 'cherry' := 'red')",
            "SPLIT_TO_MAP('a:b', '', ':')": "NULL",
            "SPLIT_TO_MAP(NULL, '/', ':')": "NULL",
        },
    ),
    string_function(
        "substring",
        signatures=[
            variant(
                "(text STRING, position INTEGER) -> STRING", render=_plain_substring, sql=f"substring(:text, {_START})"
            ),
            variant(
                "(text STRING, position INTEGER, length INTEGER) -> STRING",
                render=_plain_substring,
                sql=f"substring(:text, {_START}, {_LENGTH})",
            ),
            variant("(value BYTES, position INTEGER) -> BYTES", python=substring_bytes),
            variant("(value BYTES, position INTEGER, length INTEGER) -> BYTES", python=substring_bytes),
        ],
        doc="The part from `position` (from 1, or from the end if negative), `length` characters or all the rest.",
        examples={
            "SUBSTRING('stream', 1, 4)": "'stre'",
            "SUBSTRING('stream', -3)": "'eam'",
            "SUBSTRING('stream', 0, 2)": "'st'",
            "SUBSTRING('stream', NULL)": "NULL",
        },
    ),
    string_function(
        "to_bytes",
        signature="(text STRING, encoding STRING) -> BYTES",
        doc="The bytes that a text says in an encoding: 'hex', 'utf8', 'ascii' or 'base64'.",
        python=to_bytes,
        examples={"FROM_BYTES(TO_BYTES('SGk=', 'base64'), 'utf8')": "'Hi'", "TO_BYTES(NULL, 'hex')": "NULL"},
    ),
    string_function(
        "trim",
        signature="(text STRING) -> STRING",
        doc="The text without blanks at its ends.",
        sql=f"trim(:text, {exp.Literal.string(_BLANKS).sql('duckdb')})",
        examples={"TRIM('  a b ')": "'a b'", "TRIM(NULL)": "NULL"},
    ),
    string_function(
        "ucase",
        signature="(text STRING) -> STRING",
        doc="The text in capital letters; ß becomes SS.",
        sql=CAPITALS,
        examples={"UCASE('AbC')": "'ABC'", "UCASE('Straße')": "'STRASSE'", "UCASE(NULL)": "NULL"},
    ),
    string_function(
        "UUID",
        signatures=[
            variant("() -> STRING", sql="CAST(uuid() AS VARCHAR)", volatile=True),
            variant(
                "(value BYTES) -> STRING",
                sql="CASE WHEN octet_length(:value) = 16 THEN regexp_replace(lower(hex(:value)), "
                r"'^(.{8})(.{4})(.{4})(.{4})(.{12})$', '\1-\2-\3-\4-\5') END",
            ),
        ],
        doc="A new random UUID for each row; with 16 bytes, those as a UUID.",
        examples={
            "LEN(UUID())": "36",
            "UUID(TO_BYTES('237e9877e79b12d4a765321741963000', 'hex'))": "'237e9877-e79b-12d4-a765-321741963000'",
            "UUID(CAST(NULL AS BYTES))": "NULL",
        },
    ),
)
