"""Accepts requests of the console's own pages. Browsers send the page's origin with each POST, and the API refuses
requests of web pages. Here the header is removed for our own pages; for all others it stays, and the request is
refused.

A page is our own if its origin has the host and port of the request's `host` header. `HostCheck` has made sure that
this name belongs to the server, so a name that was rebound to this machine does not get here.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

_PORTS: Final = {"http": 80, "https": 443}


class OwnOrigin:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and _is_own(scope):
            scope["headers"] = [(name, value) for name, value in scope["headers"] if name.lower() != b"origin"]
        await self._app(scope, receive, send)


def _is_own(scope: Scope) -> bool:
    origins, hosts, sites = (_values(scope, name) for name in (b"origin", b"host", b"sec-fetch-site"))
    if len(origins) != 1 or len(hosts) != 1:
        return False
    # Browsers send this header on TLS and on this machine. They know the real scheme, which a proxy hides from us.
    return all(site == "same-origin" for site in sites) and same_host(origins[0], hosts[0])


def same_host(origin: str, host: str) -> bool:
    """In: `origin` as browsers write it, `host` from the header.

    >>> [same_host("http://a.example", host) for host in ("a.example", "a.example:80", "a.example:8088", "b.example")]
    [True, True, False, False]
    >>> same_host("http://[::1]:8088", "[::1]:8088"), same_host("null", "null"), same_host("http://a:b@c", "c")
    (True, False, False)
    """
    try:
        page, ours = urlsplit(origin), urlsplit(f"//{host}")
        default = _PORTS[page.scheme]
        whole = page.scheme + "://" + page.netloc == origin and "@" not in origin and "@" not in host
        return whole and page.hostname == ours.hostname and (page.port or default) == (ours.port or default)
    except (ValueError, KeyError):
        return False


def _values(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for name, value in scope["headers"] if name.lower() == wanted]
