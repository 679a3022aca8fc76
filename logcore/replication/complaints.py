"""Limits how often the same problem is logged if remote peers cause it: a port scanner must not fill the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ADDRESSES_MAX: Final = 256
"""If more addresses cause problems within a minute, the additional ones count as one address."""

_EVERY_S: Final = 60.0
_THE_OTHERS: Final = ""


@dataclass(slots=True)
class _Complaint:
    said_s: float
    left_out: int = 0


class Complaints:
    """State: for each address, when it was last logged, and how many problems were left out since."""

    def __init__(self) -> None:
        self._by_address: dict[str, _Complaint] = {}

    def __len__(self) -> int:
        return len(self._by_address)

    def note(self, address: str, now_s: float) -> int | None:
        """None: do not log it now. Otherwise the number of problems that were left out since the last log line.

        In: `now_s`: of a monotonic clock.
        """
        known = self._of(address, now_s)
        if known is not None and now_s - known.said_s < _EVERY_S:
            known.left_out += 1
            return None
        left_out = 0 if known is None else known.left_out
        self._by_address[self._name(address)] = _Complaint(now_s)
        return left_out

    def _of(self, address: str, now_s: float) -> _Complaint | None:
        if address not in self._by_address and len(self) >= ADDRESSES_MAX:
            fresh = {each: found for each, found in self._by_address.items() if now_s - found.said_s < _EVERY_S}
            self._by_address = fresh
        return self._by_address.get(self._name(address))

    def _name(self, address: str) -> str:
        return address if address in self._by_address or len(self) < ADDRESSES_MAX else _THE_OTHERS
