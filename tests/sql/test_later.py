"""Modules that are imported when something of them is asked for."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import cast

import pytest

from millstream.sql.compiling.later import LaterModule


def test_a_later_module_can_be_copied_and_pickled() -> None:
    module = LaterModule("fractions")
    for other in (copy.copy(module), cast(LaterModule, pickle.loads(pickle.dumps(module)))):
        assert other.Fraction(1, 2) == module.Fraction(1, 2)


def test_a_later_module_without_a_state_lacks_a_name() -> None:
    with pytest.raises(AttributeError):
        LaterModule.__new__(LaterModule).anything  # noqa: B018


def test_numba_is_imported_before_there_are_threads() -> None:
    """Where several queries start at once, and each is the first to import it, one may see half of it for good."""
    script = "import sys, millstream.executor.pipeline; sys.exit('numba.core.dispatcher' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=100, check=False).returncode == 0
