"""HOPPING: a row is in every window that begins less than a size before it."""

from __future__ import annotations

from ...sql.windows.hopping import Hopping
from .aligned import Aligned
from .placing import places


@places(Hopping.name)
class HoppingWindows(Aligned):
    one_each = False
