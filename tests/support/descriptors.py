"""Many open files, as a server with many partitions has: numbers of descriptors that `select` refuses."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Generator
from typing import Final

import pytest

_SELECT_MAX: Final = 1024


@contextlib.contextmanager
def descriptors_above_select() -> Generator[None]:
    """What is opened meanwhile has a number above 1,023."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * _SELECT_MAX:
        pytest.skip(f"a process may have {soft} files open here")
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while held[-1] < _SELECT_MAX:
            held.append(os.dup(held[0]))
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
