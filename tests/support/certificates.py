"""Certificates for tests, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

_NEW: Final = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
_SIGNED: Final = (
    "-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1", "-addext",
    "basicConstraints=critical,CA:FALSE",
)  # fmt: skip


def make_certificates(folder: Path, *clients: str) -> None:
    """ca.pem signs server.pem and those of the clients; stranger.pem has signed itself. Keys are in files of their
    own."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)

    openssl(*_NEW, "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem")
    openssl(*_NEW, "-subj", "/CN=stranger", "-keyout", "stranger.key", "-out", "stranger.pem")
    for name in ("server", *clients):
        openssl(*_NEW, *_SIGNED, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
