"""httpx's clients in tests share one TLS context, as far as they name none."""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi
import httpx
import pytest
from httpx._transports import default


def test_clients_that_name_nothing_share_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = default.create_ssl_context
    first = made()
    assert made(verify=True, cert=None, trust_env=True) is first
    assert first.verify_mode is ssl.CERT_REQUIRED and first.check_hostname
    assert made(trust_env=False) is not first
    other = tmp_path / "others.pem"
    other.write_text(Path(certifi.where()).read_text())
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    assert made() is not first


def test_clients_that_name_theirs_have_it() -> None:
    made = default.create_ssl_context
    own = ssl.create_default_context()
    assert made(verify=own) is own
    unchecked = made(verify=False)
    assert unchecked.verify_mode is ssl.CERT_NONE
    assert made(verify=False) is not unchecked


def test_a_client_takes_the_shared_one() -> None:
    shared = default.create_ssl_context()
    for client in (httpx.Client(), httpx.Client()):
        with client:
            assert client._transport._pool._ssl_context is shared  # pyrefly: ignore[missing-attribute]
