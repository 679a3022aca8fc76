"""Functions that belong to no other category."""

from __future__ import annotations

import math
from functools import partial

from .function import Function, scalar, variant
from .udf import by_row

other_function = partial(scalar, category="OTHER")

_RADIUS_KM, _RADIUS_MILES = 6371, 3959
_RADII: dict[str, int] = {
    **dict.fromkeys(("", "km", "kilometer", "kilometers", "kilometre", "kilometres"), _RADIUS_KM),
    **dict.fromkeys(("mi", "mile", "miles"), _RADIUS_MILES),
}


def great_circle(
    lat1: float | None, lon1: float | None, lat2: float | None, lon2: float | None, unit: str | None = None
) -> float | None:
    """The way between two points along the earth's surface, by the haversine formula; a NULL unit means km."""
    if lat1 is None or lon1 is None or lat2 is None or lon2 is None:
        return None
    if max(abs(lat1), abs(lat2)) > 90 or max(abs(lon1), abs(lon2)) > 180:
        raise ValueError("no such place")
    radius = _RADII[(unit or "").strip().lower()]
    north, east = math.radians(lat2 - lat1), math.radians(lon2 - lon1)
    haversine = math.sin(north / 2) ** 2 + math.sin(east / 2) ** 2 * math.cos(math.radians(lat1)) * math.cos(
        math.radians(lat2)
    )
    return 2 * math.asin(math.sqrt(haversine)) * radius


_GREAT_CIRCLE = by_row(great_circle, nulls=True)

FUNCTIONS: tuple[Function, ...] = (
    other_function(
        "AS_VALUE",
        signature="(column T) -> T",
        doc="The column itself: copies a column of the key into the value.",
        sql=":column",
        examples={"AS_VALUE('a')": "'a'", "AS_VALUE(CAST(NULL AS STRING))": "NULL"},
    ),
    other_function(
        "geo_distance",
        signatures=[
            variant(
                "(lat1 DOUBLE, lon1 DOUBLE, lat2 DOUBLE, lon2 DOUBLE, unit STRING) -> DOUBLE", python=_GREAT_CIRCLE
            ),
            variant("(lat1 DOUBLE, lon1 DOUBLE, lat2 DOUBLE, lon2 DOUBLE) -> DOUBLE", python=_GREAT_CIRCLE),
        ],
        doc="The distance of two points on earth, given in degrees: in km, or in miles where `unit` says 'MILES'.",
        examples={
            "ROUND(GEO_DISTANCE(37.4439, -122.1663, 51.5257, -0.1122), 3)": "8634.66",
            "ROUND(GEO_DISTANCE(37.4439, -122.1663, 51.5257, -0.1122, 'MILES'), 3)": "5365.66",
            "GEO_DISTANCE(CAST(NULL AS DOUBLE), 0, 0, 0)": "NULL",
        },
    ),
)
