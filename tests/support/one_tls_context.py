"""One TLS context for all of httpx's clients that name none: reading the certificates of all authorities takes 50 ms of
CPU, and `httpx.get` does so each time. The tests ask servers hundreds of times while they wait, mostly without TLS.
"""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import Any

import httpx
from httpx._transports import default


def share_tls_context() -> None:
    """From now on, in this process."""
    default.create_ssl_context = _context


def _context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    if verify is True and cert is None:
        return _authorities(trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return httpx.create_ssl_context(verify, cert, trust_env)


@cache
def _authorities(trust_env: bool, *_named: str | None) -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=trust_env)
