"""How long the tests that run for long go on: numbers that the environment may change."""

from __future__ import annotations

import os


def count_of(name: str, otherwise: int) -> int:
    """`MILLSTREAM_SOAK_<name>`, where it is set."""
    return int(os.environ.get(f"MILLSTREAM_SOAK_{name}", otherwise))
