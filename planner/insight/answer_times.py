"""Times and durations in answers for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))


def time_text(time_ms: int) -> str:
    """
    >>> time_text(0), time_text(1_767_225_600_250)
    ('1970-01-01T00:00:00Z', '2026-01-01T00:00:00.250Z')
    """
    try:
        time = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return time.isoformat(timespec="milliseconds" if time_ms % 1000 else "seconds").replace("+00:00", "Z")


def duration_text(length_ms: int) -> str:
    """
    >>> duration_text(86_400_000), duration_text(90_500), duration_text(0), duration_text(250)
    ('1 d', '1 min 30.5 s', '0 s', '250 ms')
    """
    if length_ms < 0:
        return f"-{duration_text(-length_ms)}"
    if length_ms < 1000:
        return f"{length_ms} ms" if length_ms else "0 s"
    parts: list[str] = []
    left = length_ms
    for size, unit in _UNITS[:3]:
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    if left:
        parts.append(f"{left / 1000:g} s")
    return " ".join(parts[:3])
