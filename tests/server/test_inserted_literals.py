"""A literal that is a value as it stands is what it would be if it were computed, and nothing else is taken as one."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import StatementError
from millstream.planner.declarations import values
from millstream.testing import Sandbox

TYPES = ("INT", "BIGINT", "DOUBLE", "STRING", "BOOLEAN", "DECIMAL(9, 2)", "DATE", "TIMESTAMP", "BYTES", "ARRAY<INT>")
LITERALS = (
    "NULL", "(NULL)", "true", "FALSE", "0", "-0", "(7)", "-(7)", "007", "2147483647", "2147483648", "-2147483648",
    "-2147483649", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "1.5", "-1.5", "-0.0", "0.1", "1234567.12345678", "12345678.5", "0.123456789", "1.50", "2.0", "1e3", "1E-3", ".5",
    "'a'", "''", "' b '", "'7'", "'-7'", "-'7'", "'it''s'", "'é😀'", "'true'", "'2024-02-03'", "'YQ=='", "'0x1F'",
    "'1.5'", "'NaN'", "1 + 1", "ARRAY[1]",
)  # fmt: skip


def inserted(sandbox: Sandbox, type_: str, literal: str) -> Any:
    try:
        sandbox.execute(f"INSERT INTO s (k, v) VALUES (1, {literal});")
    except StatementError as refused:
        return refused.message, refused.hint
    return repr(sandbox.consume("s")[-1]["value"]["V"])


@pytest.mark.parametrize("type_", TYPES)
def test_a_plain_literal_is_what_is_computed(type_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[list[Any]] = []
    for _ in range(2):
        with Sandbox() as sandbox:
            sandbox.execute(f"CREATE STREAM s (k INT KEY, v {type_}) {WITH}")
            found.append([inserted(sandbox, type_, literal) for literal in LITERALS])
        monkeypatch.setattr(values, "_plain", lambda _node, _type: None)
    for literal, plain, computed in zip(LITERALS, *found, strict=True):
        assert plain == computed, literal


WITH = "WITH (kafka_topic='s', value_format='JSON', partitions=1);"


@pytest.mark.parametrize(
    ("type_", "literal", "is_plain"),
    [
        ("INT", "2147483647", True),
        ("BIGINT", "-9223372036854775808", True),
        ("DOUBLE", "1234567.12345678", True),
        ("DOUBLE", "12345678.5", False),
        ("DOUBLE", "0.123456789", False),
        ("DOUBLE", "1e3", False),
        ("STRING", "'a'", True),
        ("STRING", "CAST(7 AS STRING)", False),
        ("STRING", f"'{'x' * 100_000}'", True),
        ("INT", "1.0", False),
        ("INT", "'7'", False),
        ("BOOLEAN", "true", True),
        ("BOOLEAN", "'true'", False),
        ("INT", "1 + 1", False),
    ],
)
def test_only_what_nobody_reads_otherwise_is_plain(
    type_: str, literal: str, is_plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    compile_expression = values.compile_expression

    def noted(node: Any, scope: Any) -> Any:
        computed.append(str(node))
        return compile_expression(node, scope)

    monkeypatch.setattr(values, "compile_expression", noted)
    with Sandbox() as sandbox:
        sandbox.execute(f"CREATE STREAM s (k INT KEY, v {type_}) {WITH}")
        sandbox.execute(f"INSERT INTO s (k, v) VALUES (1, {literal});")
    assert bool(computed) != is_plain


def test_rows_may_mix_plain_and_computed_values() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(f"CREATE STREAM s (k INT KEY, v INT, t STRING) {WITH}")
        sandbox.execute("INSERT INTO s (k, v, t) VALUES (1, 2, 'a'), (1 + 1, NULL, 'b' + 'c'), (3, 4 * 5, NULL);")
        found = [(record["key"], record["value"]) for record in sandbox.consume("s")]
        assert [value for _, value in found] == [{"V": 2, "T": "a"}, {"V": None, "T": "bc"}, {"V": 20, "T": None}]
        assert [key for key, _ in found] == [1, 2, 3]
