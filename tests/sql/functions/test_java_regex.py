"""Java's regular expressions mean in Python what they mean in Java."""

from __future__ import annotations

import re

import pytest

from millstream.sql.functions.java_regex import compile_pattern, replacement


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"(\w+) (\w*)", "steven zhang", "steven zhang"),
        (r"[a-z&&[^b]]+", "acb", "ac"),
        (r"[a[bc]x]+", "-abcx-", "abcx"),
        (r"[^a[bc]]+", "abcxyz", "xyz"),
        (r"\Qa.b\E+", "a.bbb", "a.bbb"),
        (r"(?<n>a)\k<n>", "baa", "aa"),
        (r"\p{Lu}+", "aÄBc", "ÄB"),
        (r"\p{Alpha}+", "1aÄ", "a"),
        (r"\P{Digit}+", "12ab3", "ab"),
        (r"x*+y", "xxy", "xxy"),
        (r"a(?i)b|c", "xC", "C"),
        (r"(?i:a)b", "Ab", "Ab"),
        (r"a.c", "a\rc", None),
        (r"(?s)a.c", "a\nc", "a\nc"),
        (r"end$", "end\n", "end"),
        (r"end\z", "end\n", None),
        (r"\u0041\x42\t?", "AB", "AB"),
        (r"\d+", "٣", None),
        (r"a{2,3}?", "aaa", "aa"),
        (r"(?x) a b # words", "ab", "ab"),
    ],
)
def test_a_pattern_finds_what_java_finds(pattern: str, text: str, found: str | None) -> None:
    match = compile_pattern(pattern).search(text)
    assert (match and match[0]) == found


@pytest.mark.parametrize("pattern", ["(", "a)", "[a", r"\y", "a{", r"\p{Foo}", "(?<1>a)", "*"])
def test_what_java_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(re.error):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "new", "text", "result"),
    [
        ("(k)=(v)", "$2=$1", "k=v", "v=k"),
        ("(?<x>a)", "${x}${x}", "ba", "baa"),
        ("a", r"\$1", "a", "$1"),
        ("(a)", "$12", "a", "a2"),
        ("x*", "-", "abxd", "-a-b--d-"),
    ],
)
def test_a_replacement_may_name_groups(pattern: str, new: str, text: str, result: str) -> None:
    assert compile_pattern(pattern).sub(replacement(pattern, new), text) == result
