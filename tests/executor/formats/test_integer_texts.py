"""Digits are read eight at a time where bytes stand behind them: every length, and a wrong character at every place."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millstream.executor.formats import Decoder, decoder
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec
from millstream.sql.types import BIGINT

LENGTHS = range(1, 21)
MANY = 20  # few rows are read one by one
PLAIN = b'{"V":7}'


@pytest.fixture(scope="module")
def reader() -> Decoder:
    return decoder(FormatSpec("JSON"), [Column("V", BIGINT)])


def read(reader: Decoder, text: str, *, last: bool) -> int | None:
    """The value of one row among others: in their middle, or where the bytes end. None: it was refused."""
    row = f'{{"V":{text}}}'.encode()
    rows = [*[PLAIN] * MANY, row, *([] if last else [PLAIN] * MANY)]
    decoded = reader.decode(pa.array(rows, pa.binary()))
    refused = {error.row for error in decoded.errors}
    assert refused <= {MANY}
    values = decoded.columns[0].to_pylist()
    assert [value for number, value in enumerate(values) if number != MANY] == [7] * (len(rows) - 1)
    return None if refused else values[MANY]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_number_of_any_length_is_exact(reader: Decoder, length: int, last: bool) -> None:
    for digits in ("1" + "0" * (length - 1), "9" * length, "1234567890123456789012"[:length]):
        for text in (digits, f"-{digits}", f'"{digits}"', f'"-{digits}"'):
            number = int(text.strip('"'))
            expected = number if -(2**63) <= number < 2**63 else None
            assert read(reader, text, last=last) == expected, text


@pytest.mark.parametrize("wrong", ["/", ":", "0x", ".", "-", "+", " ", "\x7f", "é", "٣"])
@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 17, 18])
def test_what_is_no_digit_is_found_wherever_it_stands(reader: Decoder, length: int, wrong: str) -> None:
    alone = [read(reader, f'"{text}"', last=True) for text in placed(wrong, length)]
    assert [read(reader, f'"{text}"', last=False) for text in placed(wrong, length)] == alone
    one_by_one = [reader.decode(pa.array([f'{{"V":"{text}"}}'.encode()])) for text in placed(wrong, length)]
    assert alone == [None if found.errors else found.columns[0].to_pylist()[0] for found in one_by_one]
    assert None in alone


def placed(wrong: str, length: int) -> list[str]:
    return ["5" * at + wrong + "5" * (length - 1 - at) for at in range(length)]


@pytest.mark.parametrize("text", ["9223372036854775807", "-9223372036854775808"])
def test_the_ends_of_the_range(reader: Decoder, text: str) -> None:
    for last in (False, True):
        assert read(reader, text, last=last) == int(text)
        beyond = str(int(text) + (1 if text[0] != "-" else -1))
        assert read(reader, beyond, last=last) is None
