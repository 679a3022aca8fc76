"""JSON objects that follow each other in a stream of bytes, separated by nothing or white space."""

from __future__ import annotations

import re
from typing import Final

from .proxy_errors import BAD_REQUEST, ProxyRefusal

_OUTSIDE: Final = re.compile(rb'["{}]')
_INSIDE: Final = re.compile(rb'["\\]')
_BLANK: Final = b" \t\r\n"


class ObjectSplitter:
    """Finds the end of each object by its braces; it does not check whether the objects are valid JSON.

    State: the bytes of the incomplete object, how far they are scanned, and the open braces and quotes at that
    position.

    >>> splitter = ObjectSplitter(100)
    >>> splitter.feed(b'{"a": "}"} {"b"')
    ([b'{"a": "}"}'], None)
    >>> splitter.feed(b': {}}{}')
    ([b'{"b": {}}', b'{}'], None)
    """

    def __init__(self, bytes_max: int) -> None:
        """In: `bytes_max`: limit of one object."""
        self._bytes_max = bytes_max
        self._rest = bytearray()
        self._at = 0
        self._depth = 0
        self._in_text = False

    @property
    def is_between(self) -> bool:
        """Whether no object is incomplete."""
        return not self._rest

    def feed(self, data: bytes) -> tuple[list[bytes], ProxyRefusal | None]:
        """The objects that end in this data, and the error after them."""
        self._rest += data
        found: list[bytes] = []
        begin = 0
        while True:
            if not self._depth:
                begin = self._at = self._next_begin(self._at)
                if begin == len(self._rest):
                    break
                if self._rest[begin] != ord("{"):
                    return found, ProxyRefusal(BAD_REQUEST, "Bad Request: the body is not a sequence of JSON objects")
            end = self._next_end()
            if (len(self._rest) if end is None else end) - begin > self._bytes_max:
                return found, ProxyRefusal(413, f"a record is larger than {self._bytes_max} bytes")
            if end is None:
                break
            found.append(bytes(self._rest[begin:end]))
            begin = end
        del self._rest[:begin]
        self._at -= begin
        return found, None

    def _next_begin(self, at: int) -> int:
        while at < len(self._rest) and self._rest[at] in _BLANK:
            at += 1
        return at

    def _next_end(self) -> int | None:
        """The position after the brace that closes the object; None if it has not arrived yet."""
        while True:
            sign = (_INSIDE if self._in_text else _OUTSIDE).search(self._rest, self._at)
            if sign is None:
                self._at = len(self._rest)
                return None
            if sign[0] == b"\\" and sign.end() == len(self._rest):
                self._at = sign.start()  # the escaped character has not arrived yet
                return None
            self._at = sign.end()
            match sign[0]:
                case b"\\":
                    self._at += 1
                case b'"':
                    self._in_text = not self._in_text
                case b"{":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if not self._depth:
                        return self._at
