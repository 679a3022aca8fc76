"""The value range of a store's column, zone by zone, so that a range lookup reads only few slots."""

from __future__ import annotations

import numpy as np

from ..operators.columns import Ints
from .key_index import grown

_BITS = 10  # a zone has 2^10 slots
_NONE_LOW, _NONE_HIGH = np.iinfo(np.int64).max, np.iinfo(np.int64).min


class Zones:
    """For each zone of slots, the smallest and the largest value that its rows may have. Slots are assigned in the
    order in which keys arrive, and most columns of range lookups are times, so few zones match a range."""

    def __init__(self) -> None:
        self._low = np.zeros(0, np.int64)
        self._high = np.zeros(0, np.int64)

    def widen(self, slots: Ints, values: Ints) -> None:
        """Extends the zones of these slots to these values."""
        if not len(slots):
            return
        zones = slots >> _BITS
        count = int(zones.max()) + 1
        self._low, self._high = grown(self._low, count, _NONE_LOW), grown(self._high, count, _NONE_HIGH)
        np.minimum.at(self._low, zones, values)
        np.maximum.at(self._high, zones, values)

    def slots(self, low: int, high: int, count: int) -> Ints:
        """The slots below `count` that may have a value with low < value <= high."""
        zones = np.flatnonzero((self._low <= high) & (self._high > low))
        if not len(zones):
            return np.empty(0, np.int64)
        found = ((zones << _BITS)[:, None] + np.arange(1 << _BITS)).ravel()
        return found[found < count]

    def clear(self, low: int, high: int) -> None:
        """Resets the zones that may have such values; call `widen` for the rows that are left in them."""
        zones = (self._low <= high) & (self._high > low)
        self._low[zones], self._high[zones] = _NONE_LOW, _NONE_HIGH
