"""TUMBLING: each row is in exactly one window."""

from __future__ import annotations

from ...sql.windows.tumbling import Tumbling
from .aligned import Aligned
from .placing import places


@places(Tumbling.name)
class TumblingWindows(Aligned):
    one_each = True
