"""Points in time as text, for ROWTIME comparisons and INSERT VALUES.

Forms: `2020`, `2020-12`, `2020-12-31`, `2020-12-31T23`, `…T23:59`, `…T23:59:59`, `…T23:59:59.999`, each with an
optional zone (`Z`, `+0100`, `+01:00`); a missing part is the smallest, a missing zone is UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_FORM = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?)?"
    r"(?:[T ](?:(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d{1,9}))?)?)?)?)?"
    r"\s*(?P<zone>Z|[+-]\d{2}:?\d{2})?$"
)


class InvalidTime(ValueError):
    """The text is not a point in time."""


def epoch_ms(text: str) -> int:
    """Milliseconds since 1970 of `text`; fractions below a millisecond are cut.

    >>> epoch_ms("1970-01-02")
    86400000
    >>> epoch_ms("1970-01-01T00:00:00.100+01:00")
    -3599900

    Raises `InvalidTime`.
    """
    match = _FORM.match(text.strip())
    if match is None:
        raise InvalidTime(f"Failed to parse timestamp '{text}'")
    part = match.groupdict()
    try:
        moment = datetime(
            int(part["year"]), int(part["month"] or 1), int(part["day"] or 1),
            int(part["hour"] or 0), int(part["minute"] or 0), int(part["second"] or 0), tzinfo=UTC,
        )  # fmt: skip
    except ValueError as invalid:
        raise InvalidTime(f"Failed to parse timestamp '{text}': {invalid}") from invalid
    millis = int(((part["fraction"] or "") + "000")[:3])
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) + millis - _zone_ms(part["zone"])


def _zone_ms(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "")
    sign = -1 if zone[0] == "-" else 1
    return sign * (int(digits[:2]) * 60 + int(digits[2:])) * 60_000
