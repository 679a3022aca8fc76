"""A bearer token that is used for most of its lifetime, and then replaced."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_OF_ITS_LIFE: Final = 0.8  # a token is used for this share of its lifetime


class KeptToken:
    """Returns a token that will be valid for some time. Any thread may call it. State: the last token, and until when
    it is used."""

    def __init__(self, ask: Callable[[], tuple[str, float]]) -> None:
        """In: `ask`: gives a new token, and for how many seconds it is valid. What it raises is raised."""
        self._ask = ask
        self._lock = threading.Lock()
        self._token = ""
        self._until_s = 0.0

    def __call__(self) -> str:
        with self._lock:
            if time.monotonic() >= self._until_s:
                self._token, lives_s = self._ask()
                self._until_s = time.monotonic() + lives_s * _OF_ITS_LIFE
            return self._token
