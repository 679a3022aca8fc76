"""Between which values a column of a store lies, zone by zone, so that only few slots are looked at for a range."""

from __future__ import annotations

import numpy as np

from ..operators.columns import Ints
from .key_index import grown

_BITS = 10  # slots of a zone
_NONE_LOW, _NONE_HIGH = np.iinfo(np.int64).max, np.iinfo(np.int64).min


class Zones:
    """Of each zone of slots the least and the largest value that a row there may have. Slots are given out as keys
    come, and most columns that are asked for ranges are times: so few zones have what is asked for."""

    def __init__(self) -> None:
        self._low = np.zeros(0, np.int64)
        self._high = np.zeros(0, np.int64)

    def widen(self, slots: Ints, values: Ints) -> None:
        """These slots have these values now."""
        if not len(slots):
            return
        zones = slots >> _BITS
        count = int(zones.max()) + 1
        self._low, self._high = grown(self._low, count, _NONE_LOW), grown(self._high, count, _NONE_HIGH)
        np.minimum.at(self._low, zones, values)
        np.maximum.at(self._high, zones, values)

    def slots(self, low: int, high: int, count: int) -> Ints:
        """Those below `count` that may have a value with low < value <= high."""
        zones = np.flatnonzero((self._low <= high) & (self._high > low))
        if not len(zones):
            return np.empty(0, np.int64)
        found = ((zones << _BITS)[:, None] + np.arange(1 << _BITS)).ravel()
        return found[found < count]

    def clear(self, low: int, high: int) -> None:
        """Forgets the zones that may have such values; `widen` tells what is left in them."""
        zones = (self._low <= high) & (self._high > low)
        self._low[zones], self._high[zones] = _NONE_LOW, _NONE_HIGH
