"""URIs as Java's `java.net.URI` reads them (RFC 2396, with characters beyond ASCII allowed)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

_LEGAL = re.compile(
    r"(?:[A-Za-z0-9\-_.!~*'();/?:@&=+$,\[\]#]|%[0-9A-Fa-f]{2}|[^\x00-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000])*"
)
_PARTS = re.compile(r"(?:(?P<scheme>[^:/?#]+):)?(?P<rest>[^#]*)(?:#(?P<fragment>.*))?$", re.DOTALL)
_HIERARCHY = re.compile(r"(?://(?P<authority>[^/?]*))?(?P<path>[^?]*)(?:\?(?P<query>.*))?$", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*")
_SERVER = re.compile(r"(?:[^@]*@)?(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[A-Za-z0-9.\-]*)(?::(?P<port>\d*))?")
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9\-]*[A-Za-z0-9])?\.)*[A-Za-z](?:[A-Za-z0-9\-]*[A-Za-z0-9])?\.?|\d{1,3}(?:\.\d{1,3}){3}|\[.*\]"
)


class InvalidUri(ValueError):
    """The text is no URI."""


@dataclass(frozen=True, slots=True)
class Uri:
    """The parts, with escapes decoded; None where a part is missing."""

    scheme: str | None
    host: str | None
    port: int | None
    path: str | None
    query: str | None
    fragment: str | None


def parse_uri(text: str) -> Uri:
    """The parts of `text`.

    >>> parse_uri("http://me@confluent.io:8080/a%20b?q=1#top")
    Uri(scheme='http', host='confluent.io', port=8080, path='/a b', query='q=1', fragment='top')

    Raises `InvalidUri`.
    """
    if not text or not _LEGAL.fullmatch(text) or text.count("#") > 1:
        raise InvalidUri(text)
    parts = _PARTS.match(text)
    assert parts is not None
    scheme, rest, fragment = parts["scheme"], parts["rest"], _decoded(parts["fragment"])
    if scheme is not None and not _SCHEME.fullmatch(scheme):
        raise InvalidUri(text)
    if scheme is not None and not rest:
        raise InvalidUri(text)
    if scheme is not None and not rest.startswith("/"):
        return Uri(scheme, None, None, None, None, fragment)
    hierarchy = _HIERARCHY.match(rest)
    assert hierarchy is not None
    if hierarchy["authority"] == "" and not hierarchy["path"]:
        raise InvalidUri(text)
    host, port = _server(hierarchy["authority"])
    return Uri(scheme, host, port, _decoded(hierarchy["path"]), _decoded(hierarchy["query"]), fragment)


def _server(authority: str | None) -> tuple[str | None, int | None]:
    """Host and port, where the authority is a server's; a name that no host may have gives neither."""
    match = _SERVER.fullmatch(authority) if authority else None
    if match is None or not _HOST.fullmatch(match["host"]):
        return None, None
    return match["host"], int(match["port"]) if match["port"] else None


def _decoded(part: str | None) -> str | None:
    return None if part is None else unquote(part, errors="replace")
