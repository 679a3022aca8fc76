"""HOPPING: a row is in every window that starts at its time, or before it by less than the size."""

from __future__ import annotations

from ...sql.windows.hopping import Hopping
from .aligned import Aligned
from .placing import places


@places(Hopping.name)
class HoppingWindows(Aligned):
    one_each = False
