"""Java's regular expressions mean in Python what they mean in Java."""

from __future__ import annotations

import random
import re

import pytest

from millstream.sql.functions.bounds import BoundExceeded, CallBounds, bounded_by
from millstream.sql.functions.java.java_regex import _Translation, compile_pattern, replacement


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


ATOMS = ["a", "b", ".", r"\w", r"\W", r"\s", r"\d", "[ab]", "[^a]", "[a-c&&[^b]]", "é", r"\b", "^", "$", r"\Z", r"\R",
         r"\n", r"[\S]", "(?i)", r"\h", r"\p{Lu}", ""]  # fmt: skip
QUANTIFIERS = ["*", "+", "?", "*?", "+?", "??", "{1,2}", "", "{2}", "{0,2}"]


def _pattern(chance: random.Random, depth: int) -> str:
    kind = chance.random()
    if depth == 0 or kind < 0.35:
        return chance.choice(ATOMS)
    if kind < 0.55:
        return _pattern(chance, depth - 1) + _pattern(chance, depth - 1)
    if kind < 0.7:
        either = f"{_pattern(chance, depth - 1)}|{_pattern(chance, depth - 1)}"
        return f"({either})" if kind < 0.65 else either
    if kind < 0.9:
        return f"({_pattern(chance, depth - 1)}){chance.choice(QUANTIFIERS)}"
    return chance.choice(ATOMS[:12]) + chance.choice(QUANTIFIERS[:5])


def test_every_match_is_the_one_that_backtracking_finds() -> None:
    """RE2 and `regex` against `re`, over patterns and texts so short that `re` ends."""
    chance = random.Random(11)
    linear = 0
    for _ in range(1_000):
        pattern = _pattern(chance, 4)
        try:
            backtracking = re.compile(_Translation(pattern).translate(), re.ASCII)
        except re.error:
            continue
        compiled = compile_pattern(pattern)
        linear += compiled._linear is not None
        for _ in range(4):
            text = "".join(chance.choice("aabbAcé \n\r1\x0b\u2028K\u212a") for _ in range(chance.randrange(7)))
            wanted = [(match.span(), match.groups()) for match in backtracking.finditer(text)]
            found = [
                ((match.start(), match.end()), tuple(match[group] for group in range(1, compiled.groups + 1)))
                for match in compiled.finditer(text)
            ]
            assert found == wanted, (pattern, text)
    assert linear > 400


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)*$", "(a|aa)+b|$", "(.*)*x", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_what_backtracking_never_ends_with_is_matched_in_linear_time(pattern: str) -> None:
    compiled = compile_pattern(pattern)
    with bounded_by(CallBounds(seconds=30)):
        assert all(match[0] != "a" for match in compiled.finditer("a" * 500 + "!"))


@pytest.mark.parametrize("pattern", ["^(a|aa|b?)+(?!c)$", "(a+a+)+b(?=c)"])
def test_what_only_backtracking_can_match_ends_with_its_time(pattern: str) -> None:
    with (
        bounded_by(CallBounds(seconds=0.1)),
        pytest.raises(BoundExceeded, match=r"functions\.max\.seconds = 0\.1"),
    ):
        list(compile_pattern(pattern).finditer("a" * 3_000 + "!"))


def test_a_replacement_that_grows_too_large_is_refused() -> None:
    with (
        bounded_by(CallBounds(value_bytes=1_000)),
        pytest.raises(BoundExceeded, match=r"millstream\.value\.max\.bytes"),
    ):
        compile_pattern("a").sub(replacement("a", "b" * 100), "a" * 100)
