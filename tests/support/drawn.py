"""How many random cases a test draws: few in a run of all tests, more in `make soak`."""

from __future__ import annotations

import os
from typing import Final

_TIMES: Final = int(os.environ.get("MILLSTREAM_DRAWN_TIMES", "1"))


def drawn(count: int) -> int:
    """In: in a run of all tests. MILLSTREAM_DRAWN_TIMES is what it is multiplied by."""
    return count * _TIMES
