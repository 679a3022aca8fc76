"""Java's regular expressions in the spelling of Python's `re`: the pattern and the replacement text translated.
`matching.py` matches them.

Most is spelled alike. Different are: named groups, `\\Q…\\E`, `\\p{…}`, `\\h`, `\\R`, `\\z`, class intersections
and nested classes, flags in the middle, what a dot leaves out, and `$1` in replacements. Classes are ASCII's, as in
Java. Not translated: lookbehind of variable width, `\\G`, and `\\X`; such a pattern raises.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from ..bounds import FUNCTION_SECONDS, BoundExceeded
from ..matching import AT_END, Match, Pattern

_POSIX = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": r"\x00-\x7f", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~", "Graph": "!-~", "Print": " -~", "Blank": r" \t", "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F", "Space": r" \t\n\x0b\f\r",
}  # fmt: skip
_JAVA_NAMES = {"javaLowerCase": "Ll", "javaUpperCase": "Lu", "IsAlphabetic": "L", "IsLetter": "L", "IsDigit": "Nd",
               "IsUppercase": "Lu", "IsLowercase": "Ll", "IsPunctuation": "P", "IsWhite_Space": "Z"}  # fmt: skip
_SCRIPTS = {
    "IsLatin": "LATIN",
    "IsGreek": "GREEK",
    "IsCyrillic": "CYRILLIC",
    "IsHan": "CJK UNIFIED",
    "InGreek": "GREEK",
}
_SETS = {
    "d": "0-9", "w": "a-zA-Z0-9_", "s": r" \t\n\x0b\f\r", "h": r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000",
    "v": r"\n\x0b\f\r\x85\u2028\u2029",
}  # fmt: skip
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_COUNTS = re.compile(r"\d+(,\d*)?\}")
_PATTERN_MAX = 10_000  # characters: translating and compiling take time that nothing stops
_DOT = r"[^\n\r\x85\u2028\u2029]"


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Pattern:
    """What matches what `pattern` matches in Java. Raises `re.error` where there is no such pattern, and
    `BoundExceeded` for one that is too long."""
    if len(pattern) > _PATTERN_MAX:
        raise BoundExceeded(
            f"a pattern of {len(pattern):,} characters; {_PATTERN_MAX:,} are the most", FUNCTION_SECONDS
        )
    translation = _Translation(pattern)
    text = translation.translate()
    re.compile(text, re.ASCII)  # it is what says that a pattern is wrong
    return Pattern(
        text,
        linear=translation.linear,
        ignores_case=translation.ignores_case,
        whole_unicode=translation.whole_unicode,
    )


@lru_cache(maxsize=1024)
def replacement(pattern: str, text: str) -> Callable[[Match], str]:
    """What `text`, a Java replacement, makes of a match: `$1`, `${name}`, and a backslash before a plain sign."""
    parts = list(_replacement_parts(text, compile_pattern(pattern).groups))

    def expand(match: Match) -> str:
        return "".join(part[0] if isinstance(part, tuple) else match[part] or "" for part in parts)

    return expand


def _replacement_parts(text: str, groups: int) -> list[tuple[str] | int | str]:
    parts: list[tuple[str] | int | str] = []
    at = 0
    while at < len(text):
        sign = text[at]
        if sign == "\\":
            parts.append((text[at + 1],))
            at += 2
        elif sign == "$" and text[at + 1] == "{":
            end = text.index("}", at)
            parts.append(text[at + 2 : end])
            at = end + 1
        elif sign == "$":
            end = at + 2
            number = int(text[at + 1])
            if number > groups:
                raise re.error(f"no group {number}")
            while end < len(text) and text[end].isdigit() and int(text[at + 1 : end + 1]) <= groups:
                end += 1
            parts.append(int(text[at + 1 : end]))
            at = end
        else:
            parts.append((sign,))
            at += 1
    return parts


class _LeastWidth:
    """Whether one of the alternatives of a group may match without a character. In doubt it may."""

    def __init__(self) -> None:
        self._consuming: list[
            bool
        ] = []  # of the alternative that is read, whether each part takes a character at least
        self._some_empty = False

    @property
    def may_be_empty(self) -> bool:
        return self._some_empty or not any(self._consuming)

    def add(self, consumes: bool) -> None:
        self._consuming.append(consumes)

    def add_sign(self, sign: str) -> None:
        """A character that stands for itself, an anchor, or a quantifier, which is about the part before it."""
        if sign in "*?+":
            self.repeat(at_least_once=sign == "+")
        else:
            self.add(sign not in "^$")

    def repeat(self, *, at_least_once: bool) -> None:
        if not at_least_once:
            self._consuming[-1:] = [False]

    def next_alternative(self) -> None:
        self._some_empty = self.may_be_empty
        self._consuming = []


class _Translation:
    """One walk over a pattern. `flags` are those in force; what opens in a group ends with it.

    `linear`: no group that may match nothing is repeated: what such a group holds in the end, RE2 says differently.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.linear = True
        self.may_be_empty = False  # what `_alternatives` read last can match the empty text
        self.ignores_case = False
        self.whole_unicode = False

    def translate(self) -> str:
        body = self._alternatives(frozenset())
        if self.at < len(self.pattern):
            raise re.error("unmatched )")
        return body

    def _take(self) -> str:
        if self.at >= len(self.pattern):
            raise re.error("the pattern ends early")
        sign = self.pattern[self.at]
        self.at += 1
        return sign

    def _skip(self, text: str) -> bool:
        if not self.pattern.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def _alternatives(self, flags: frozenset[str]) -> str:
        """Up to the closing parenthesis of the group, or the end."""
        out: list[str] = []
        opened: list[str] = []  # flag groups that last to the end of each alternative
        width = _LeastWidth()
        while self.at < len(self.pattern) and self.pattern[self.at] != ")":
            sign = self._take()
            if sign == "(":
                text, flags, opens = self._group(flags)
                out.append(text)
                opened += [text] * opens
                width.add(not self.may_be_empty and not opens)
                self.linear = self.linear and not (self.may_be_empty and self._is_repeated())
            elif sign == "|":
                out.append(")" * len(opened) + "|" + "".join(opened))
                width.next_alternative()
            elif sign == "[":
                out.append(self._class())
                width.add(True)
            elif sign == "\\":
                width.add(self.pattern[self.at : self.at + 1] not in tuple("bBAzZQk123456789"))
                out.append(self._escape())
            elif sign == ".":
                out.append("." if "s" in flags else r"[^\n]" if "d" in flags else _DOT)
                width.add(True)
            elif sign == "$" and "m" not in flags:
                out.append(AT_END)
                width.add(False)
            elif sign == "#" and "x" in flags:
                while self.at < len(self.pattern) and self._take() != "\n":
                    pass
            elif sign.isspace() and "x" in flags:
                continue
            elif sign == "{":
                out.append(sign + self._counts())
                width.repeat(at_least_once=out[-1][1] != "0")
            else:
                out.append(sign)
                width.add_sign(sign)
        self.may_be_empty = width.may_be_empty
        return "".join(out) + ")" * len(opened)

    def _counts(self) -> str:
        """After `{`, up to the closing brace."""
        counts = _COUNTS.match(self.pattern, self.at)
        if counts is None:
            raise re.error("illegal repetition")
        self.at = counts.end()
        return counts[0]

    def _is_repeated(self) -> bool:
        return self.pattern[self.at : self.at + 1] in ("*", "+", "{")

    def _group(self, flags: frozenset[str]) -> tuple[str, frozenset[str], int]:
        """After `(`: its text, the flags from here on, and how many groups it leaves open."""
        if not self._skip("?"):
            head = "("
        elif named := re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>").match(self.pattern, self.at):
            self.at = named.end()
            head = f"(?P<{named[1]}>"
        elif other := re.compile(r"[:=!>]|<[=!]").match(self.pattern, self.at):
            self.at = other.end()
            head = f"(?{other[0]}"
        else:
            return self._flag_group(flags)
        body = self._alternatives(flags)
        self._close()
        return f"{head}{body})", flags, 0

    def _flag_group(self, flags: frozenset[str]) -> tuple[str, frozenset[str], int]:
        match = re.compile(r"([idmsuxU]*)(?:-([idmsuxU]*))?([:)])").match(self.pattern, self.at)
        if match is None:
            raise re.error("unknown group")
        self.at = match.end()
        inner = (flags | set(match[1])) - set(match[2] or "")
        self.ignores_case = self.ignores_case or "i" in inner
        on = "".join(flag for flag in "im" if flag in match[1]) + ("s" if "s" in match[1] else "")
        off = "".join(flag for flag in "ims" if flag in (match[2] or ""))
        if "U" in match[1] or ("u" in match[1] and "i" in inner):
            on += "u"
            self.whole_unicode = True
        head = f"(?{on}{'-' + off if off else ''}:" if on or off else "(?:"
        if match[3] == ")":
            return head, inner, 1
        body = self._alternatives(inner)
        self._close()
        return f"{head}{body})", flags, 0

    def _close(self) -> None:
        if not self._skip(")"):
            raise re.error("unclosed group")

    def _escape(self) -> str:
        sign = self._take()
        if sign in "dwshvDWSHV":
            return f"[{'^' if sign.isupper() else ''}{_SETS[sign.lower()]}]"
        if sign in "bBA" or sign in "123456789":
            return "\\" + sign
        if sign == "z":
            return r"\Z"
        if sign == "Z":
            return AT_END
        if sign == "R":
            return r"(?>\r\n|[\n\x0b\f\r\x85\u2028\u2029])"
        if sign == "k":
            name = re.compile(r"<(\w+)>").match(self.pattern, self.at)
            if name is None:
                raise re.error(r"\k needs a name")
            self.at = name.end()
            return f"(?P={name[1]})"
        if sign == "Q":
            return re.escape(self._quote())
        if sign in "pP":
            return f"[{'^' if sign == 'P' else ''}{self._property()}]"
        return re.escape(self._character(sign))

    def _quote(self) -> str:
        end = self.pattern.find(r"\E", self.at)
        text = self.pattern[self.at :] if end < 0 else self.pattern[self.at : end]
        self.at = len(self.pattern) if end < 0 else end + 2
        return text

    def _character(self, sign: str) -> str:
        """The character that an escape stands for."""
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        code = re.compile({"x": r"([0-9a-fA-F]{2})|\{([0-9a-fA-F]+)\}", "u": "([0-9a-fA-F]{4})", "0": "([0-7]{1,3})"}
                          .get(sign, "(?!)")).match(self.pattern, self.at)  # fmt: skip
        if code is not None:
            self.at = code.end()
            return chr(int(code[code.lastindex or 1], 8 if sign == "0" else 16))
        if sign == "c":
            return chr(ord(self._take()) ^ 64)
        if sign.isascii() and sign.isalpha():
            raise re.error(f"unknown escape \\{sign}")
        return sign

    def _property(self) -> str:
        name = self._take()
        if name == "{":
            end = self.pattern.find("}", self.at)
            if end < 0:
                raise re.error("unclosed property")
            name, self.at = self.pattern[self.at : end], end + 1
        return _property_set(name)

    def _class(self) -> str:
        """After `[`: the class as one Python class, or as a lookahead and a class where sets are intersected."""
        negated = self._skip("^")
        members: list[str] = []
        conditions: list[str] = []
        nested: list[str] = []
        first = True
        while first or not self._skip("]"):
            first = False
            if self._skip("&&"):
                conditions.append(_one_of(members, nested))
                members, nested = [], []
            elif self._skip("["):
                nested.append(self._class())
            else:
                members.append(self._member())
        conditions.append(_one_of(members, nested))
        conditions = [condition for condition in conditions if condition]
        if not nested and len(conditions) == 1:
            return f"[{'^' if negated else ''}{''.join(members)}]"
        positive = "".join(f"(?={condition})" for condition in conditions)
        return f"(?:(?!{positive})[\\s\\S])" if negated else f"(?:{positive}[\\s\\S])"

    def _member(self) -> str:
        sign = self._take()
        if sign != "\\":
            return "\\" + sign if sign in "[\\^&~|" else sign
        sign = self._take()
        if sign in "dwshv":
            return _SETS[sign]
        if sign in "DWS":
            return _complement(_SETS[sign.lower()])
        if sign in "HV":
            raise re.error(f"\\{sign} cannot stand in a class here")
        if sign == "Q":
            return "".join(re.escape(character) for character in self._quote())
        if sign == "p":
            return self._property()
        if sign == "P":
            return _complement(self._property())
        return re.escape(self._character(sign))


def _one_of(members: list[str], nested: list[str]) -> str:
    options = ([f"[{''.join(members)}]"] if members else []) + nested
    return options[0] if len(options) == 1 else f"(?:{'|'.join(options)})" if options else ""


@lru_cache(maxsize=128)
def _property_set(name: str) -> str:
    """The inside of a class with the characters of a Unicode category, a script or a POSIX class."""
    if name in _POSIX:
        return _POSIX[name]
    if name in _SCRIPTS:
        return _ranges(lambda c: unicodedata.name(c, "").startswith(_SCRIPTS[name]))
    category = _JAVA_NAMES.get(name, name.removeprefix("Is").removeprefix("general_category=").removeprefix("gc="))
    if not re.fullmatch("[LMNPSZC][a-z]?", category):
        raise re.error(f"unknown character property {name}")
    return _ranges(lambda c: unicodedata.category(c).startswith(category))


@lru_cache(maxsize=128)
def _complement(inside: str) -> str:
    pattern = re.compile(f"[{inside}]")
    return _ranges(lambda c: pattern.match(c) is None)


def _ranges(belongs: Callable[[str], bool]) -> str:
    out: list[str] = []
    start: int | None = None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and belongs(chr(code))
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            out.append(f"\\U{start:08x}" if start == code - 1 else f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    return "".join(out)
