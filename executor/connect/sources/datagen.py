"""The source `datagen`: generates the records of ksql-datagen's quickstarts, the same ones for the same seed.

The nth record is a function of n and the seed. So the position is a number, and a killed task continues with the first
record that was not committed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..connector import Chunk, ConnectRecord, Position, SourceConnector, TaskInfo
from ..connector_settings import setting

_Row = tuple[Any, dict[str, Any]]
_CHUNK: Final = 500
_REGIONS: Final = tuple(f"Region_{number}" for number in range(1, 10))
_GENDERS: Final = ("MALE", "FEMALE", "OTHER")
_AGENTS: Final = ("Mozilla/5.0 (Windows NT 10.0)", "Mozilla/5.0 (X11; Linux x86_64)", "curl/8.5.0")
_REQUESTS: Final = (
    "GET /index.html",
    "GET /site/login.html",
    "GET /images/track.png",
    "POST /cart",
    "GET /site/user.html",
)
_STATUSES: Final = ("200", "200", "200", "302", "404", "405", "406", "407")


def _order(number: int, chance: random.Random, now_ms: int) -> _Row:
    address = {
        "city": f"City_{chance.randrange(1, 100)}",
        "state": f"State_{chance.randrange(1, 100)}",
        "zipcode": chance.randrange(10_000, 100_000),
    }
    row = {
        "ordertime": now_ms,
        "orderid": number,
        "itemid": f"Item_{chance.randrange(1, 1000)}",
        "orderunits": round(chance.uniform(0.1, 10.0), 4),
        "address": address,
    }
    return number, row


def _user(number: int, chance: random.Random, now_ms: int) -> _Row:
    del number
    name = f"User_{chance.randrange(1, 10)}"
    row = {
        "registertime": now_ms,
        "userid": name,
        "regionid": chance.choice(_REGIONS),
        "gender": chance.choice(_GENDERS),
    }
    return name, row


def _pageview(number: int, chance: random.Random, now_ms: int) -> _Row:
    row = {
        "viewtime": now_ms,
        "userid": f"User_{chance.randrange(1, 10)}",
        "pageid": f"Page_{chance.randrange(10, 100)}",
    }
    return number, row


def _click(number: int, chance: random.Random, now_ms: int) -> _Row:
    del number
    ip = ".".join(str(chance.randrange(1, 255)) for _ in range(4))
    row = {
        "ip": ip,
        "userid": chance.randrange(1, 40),
        "remote_user": "-",
        "time": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now_ms / 1000)),
        "_time": now_ms,
        "request": f"{chance.choice(_REQUESTS)} HTTP/1.1",
        "status": chance.choice(_STATUSES),
        "bytes": str(chance.randrange(100, 20_000)),
        "referrer": "-",
        "agent": chance.choice(_AGENTS),
    }
    return ip, row


_QUICKSTARTS: Final[Mapping[str, Callable[[int, random.Random, int], _Row]]] = {
    "orders": _order,
    "users": _user,
    "pageviews": _pageview,
    "clickstream": _click,
}


@dataclass(frozen=True)
class DatagenSettings:
    quickstart: str = setting("Which records are made.", choices=tuple(_QUICKSTARTS))
    topic: str = setting("Topic that is written.", name="kafka.topic")
    max_interval: int = setting("Time from one record to the next, in milliseconds.", default=500)
    iterations: int = setting("Records that each task makes; -1 makes them without end.", default=-1)
    random_seed: int = setting("Another seed gives other records.", name="random.seed", default=1)

    def __post_init__(self) -> None:
        if self.max_interval < 0:
            raise ValueError("max.interval is negative")


class Datagen(SourceConnector):
    """Generated records."""

    settings = DatagenSettings

    @classmethod
    def tasks(cls, settings: DatagenSettings, most: int) -> Sequence[Mapping[str, Any]]:
        return tuple({} for _ in range(max(1, most)))

    def __init__(self, settings: DatagenSettings, task: TaskInfo) -> None:
        self._settings = settings
        self._task = task
        self._make = _QUICKSTARTS[settings.quickstart]
        self._clock = task.clock
        self._due = self._clock.monotonic()

    def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
        first = 0 if position is None else int(position["next"])
        count = self._count_due(first, timeout_s)
        if count == 0:
            return None
        records = [self._record(number) for number in range(first, first + count)]
        return Chunk(records, {"next": first + count})

    def _count_due(self, first: int, timeout_s: float) -> int:
        """How many records may be generated now. Waits up to `timeout_s` for the first one."""
        limit = self._settings.iterations
        left = _CHUNK if limit < 0 else min(_CHUNK, limit - first)
        interval_s = self._settings.max_interval / 1000
        ahead_s = self._due - self._clock.monotonic()
        if left <= 0 or ahead_s > 0:
            self._clock.sleep(min(timeout_s, max(ahead_s, 0.0)) if left > 0 else timeout_s)
        behind_s = self._clock.monotonic() - self._due
        if left <= 0 or behind_s < 0:
            return 0
        count = left if interval_s == 0 else min(left, int(behind_s / interval_s) + 1)
        self._due += count * interval_s
        return count

    def _record(self, number: int) -> ConnectRecord:
        chance = random.Random(f"{self._settings.random_seed}/{self._task.number}/{number}")
        now_ms = self._clock.now_ms()
        key, value = self._make(number, chance, now_ms)
        return ConnectRecord(self._settings.topic, key, value, now_ms)
