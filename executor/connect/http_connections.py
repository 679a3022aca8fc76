"""Connections to external HTTP servers. Each uses the IP address that was checked, so no host name can lead
elsewhere."""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult, quote, urlsplit

from .connector_errors import ConnectorFailed, InvalidConnector

WAIT_AND_TRY_AGAIN: Final = frozenset({408, 425, 429})
"""Statuses below 500 that are temporary."""
_ASCII: Final = "".join(map(chr, range(0x21, 0x7F)))


def checked_address(url: str, name: str) -> SplitResult:
    """Checks and splits a URL. In: `name`: the name of the setting. Raises `InvalidConnector`."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass
    raise InvalidConnector(f"{name} must begin with http:// or https:// and a host", setting=name)


def request_target(parts: SplitResult) -> str:
    """Path and query of the address. Spaces, and letters that are not ASCII, are escaped as UTF-8, as browsers do.

    >>> request_target(urlsplit("http://h/größe?a=b c&d=%20"))
    '/gr%C3%B6%C3%9Fe?a=b%20c&d=%20'
    """
    return escaped(f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}", _ASCII)


def escaped(text: str, kept: str = " " + _ASCII.replace("%", "")) -> str:
    """The text with %XX for all characters but those that are `kept`: without it, what a header may hold."""
    return quote(text, safe=kept)


def given_headers(headers: Sequence[str]) -> dict[str, str]:
    """Parses headers of the form `name: value`. Raises `InvalidConnector`, which does not repeat the value."""
    found: dict[str, str] = {}
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not name.strip() or any(sign in header for sign in "\r\n\0"):
            raise InvalidConnector("headers must be name: value", setting="headers")
        if not name.isascii() or not _is_latin(value):
            raise InvalidConnector(
                "the name of a header must be ASCII, and its value Latin-1",
                setting="headers",
                hint="Escape other letters as the receiver expects them.",
            )
        found[name.strip()] = value.strip()
    return found


def _is_latin(text: str) -> bool:
    return all(ord(letter) < 256 for letter in text)


def opened_connection(
    parts: SplitResult, timeout_s: float, setting: str, *, loopback: bool = True, link_local: bool = False
) -> http.client.HTTPConnection:
    """Opens a connection. In: `loopback`, `link_local`: whether such addresses are allowed. Raises OSError,
    `ConnectorFailed`."""
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    _check(str(address[0]), setting, loopback=loopback, link_local=link_local)
    opened = socket.socket(family, kind, protocol)
    opened.settimeout(timeout_s)
    try:
        opened.connect(address)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # head and body of a request are two writes
        if parts.scheme == "https":
            opened = ssl.create_default_context().wrap_socket(opened, server_hostname=host)
    except BaseException:
        opened.close()
        raise
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    connection.auto_open = 0  # opening it again would resolve the name again, and not use TLS
    connection.sock = opened
    return connection


def _check(address: str, setting: str, *, loopback: bool, link_local: bool) -> None:
    ip = ipaddress.ip_address(address.partition("%")[0])
    inner = getattr(ip, "ipv4_mapped", None) or ip
    if inner.is_link_local and not link_local:
        raise ConnectorFailed(
            f"{setting} leads to the link-local address {address}, where a cloud keeps its credentials",
            hint="Use an address of the network.",
        )
    if (inner.is_loopback or inner.is_unspecified) and not loopback:
        raise ConnectorFailed(
            f"{setting} leads to the address {address} of this machine",
            hint="ALTER CONNECTOR … WITH ('allow.local.addresses'='true') allows it.",
        )
