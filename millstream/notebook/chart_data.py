"""The data of a chart: which columns are its axes, and the rows as series of points. No threads, no widgets."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from millstream.errors import InvalidStatement, UnknownColumn, did_you_mean

from .cells import cell_text, is_number

Kind = Literal["line", "bar"]
Scale = Literal["time", "number", "category"]

SERIES_MAX: Final = 12
_TIMES: Final = ("WINDOWSTART", "ROWTIME", "WINDOWEND")  # BIGINTs that are milliseconds
_WINDOW: Final = ("WINDOWSTART", "WINDOWEND")


@dataclass(frozen=True, slots=True)
class Axes:
    """Positions of columns. `x`: None: the time at which a row arrived; `by`: None: one series for each of `y`."""

    kind: Kind
    scale: Scale
    x: int | None
    y: tuple[int, ...]
    by: int | None
    names: tuple[str, ...]

    @property
    def x_title(self) -> str:
        return "time of arrival" if self.x is None else self.names[self.x]

    @property
    def of_windows(self) -> bool:
        """Whether the points are windows, so that some may be missing between two of them."""
        return self.x is not None and self.names[self.x] in _WINDOW

    @property
    def y_title(self) -> str:
        return ", ".join(self.names[i] for i in self.y)


def choose_axes(
    names: Sequence[str], types: Sequence[str], key: tuple[int, ...] | None,
    *, x: str | None = None, y: str | Sequence[str] | None = None, by: str | None = None, kind: Kind | None = None,
) -> Axes:  # fmt: skip
    """The requested axes; missing ones are chosen by likelihood.

    >>> choose_axes(["USER", "WINDOWSTART", "WINDOWEND", "N"], ["STRING", "BIGINT", "BIGINT", "BIGINT"], (0, 1, 2))
    Axes(kind='line', scale='time', x=1, y=(3,), by=0, names=('USER', 'WINDOWSTART', 'WINDOWEND', 'N'))
    >>> choose_axes(["USER", "N"], ["STRING", "BIGINT"], (0,), x="user")
    Axes(kind='bar', scale='category', x=0, y=(1,), by=None, names=('USER', 'N'))

    Raises `UnknownColumn`, `InvalidStatement`.
    """
    if kind not in (None, "line", "bar"):
        raise InvalidStatement(f'a chart is a line or a bar chart, not "{kind}"')
    numbers = range(len(types))
    at_x = _likely_x(names, types, key, kind) if x is None else _position(x, names)
    scale: Scale = "time" if at_x is None else _scale(names[at_x], types[at_x])
    of_key = tuple(i for i in key or () if i != at_x and names[i] not in _WINDOW)
    at_by = _position(by, names) if by is not None else of_key[0] if of_key else None
    if y is None:
        plain = [i for i in numbers if is_number(types[i]) and i not in (at_x, at_by, *(key or ()))]
        at_y = tuple(i for i in plain if names[i] not in _TIMES)
    else:
        at_y = tuple(_position(name, names) for name in ([y] if isinstance(y, str) else y))
    for i in at_y:
        if not is_number(types[i]):
            raise InvalidStatement(f"column {names[i]} is {types[i]}, and the height of a point is a number")
    if not at_y:
        raise InvalidStatement("there is no column of numbers to draw", hint="Name one: y='TOTAL'.")
    return Axes(kind or ("bar" if scale == "category" else "line"), scale, at_x, at_y, at_by, tuple(names))


def series_of(axes: Axes, rows: Iterable[tuple[float, tuple[Any, ...]]]) -> list[dict[str, Any]]:
    """Series with their points, those with the largest last value first.

    In: rows with the time (ms) at which they arrived. Points without a value for x or y are left out.

    >>> axes = choose_axes(["USER", "N"], ["STRING", "BIGINT"], None, y="n", by="user")
    >>> series_of(axes, [(10, ("ada", 1)), (20, ("bo", 5)), (30, ("ada", 2))])
    [{'name': 'bo', 'x': [20], 'y': [5]}, {'name': 'ada', 'x': [10, 30], 'y': [1, 2]}]
    """
    points: dict[str, list[tuple[Any, float]]] = {}
    for came_ms, values in rows:
        at = came_ms if axes.x is None else _place(values[axes.x], axes.scale)
        if at is None:
            continue
        for i in axes.y:
            if values[i] is not None:
                points.setdefault(_series_name(axes, values, i), []).append((at, _number(values[i])))
    found = [_series(name, of_series, axes.scale) for name, of_series in points.items()]
    if axes.by is not None:
        found.sort(key=lambda series: -series["y"][-1])
    return found


def _series(name: str, points: list[tuple[Any, float]], scale: Scale) -> dict[str, Any]:
    if scale != "category":
        points.sort(key=lambda point: point[0])
    return {"name": name, "x": [x for x, _ in points], "y": [y for _, y in points]}


def _series_name(axes: Axes, values: tuple[Any, ...], y: int) -> str:
    if axes.by is None:
        return axes.names[y]
    of_row = cell_text(values[axes.by])
    return of_row if len(axes.y) == 1 else f"{of_row} {axes.names[y]}"


def _place(value: Any, scale: Scale) -> Any:
    if value is None:
        return None
    if scale == "category":
        return cell_text(value)
    match value:
        case datetime.datetime():
            return value.replace(tzinfo=datetime.UTC).timestamp() * 1000
        case datetime.date():
            return datetime.datetime(value.year, value.month, value.day, tzinfo=datetime.UTC).timestamp() * 1000
        case _:
            return _number(value)


def _number(value: Any) -> float:
    return value if isinstance(value, int) else float(value)


def _likely_x(names: Sequence[str], types: Sequence[str], key: tuple[int, ...] | None, kind: Kind | None) -> int | None:
    """A time column; for bars the key; else None."""
    times = [i for name in _TIMES for i, found in enumerate(names) if found == name and types[i] == "BIGINT"]
    times += [i for i, type_ in enumerate(types) if type_ in ("TIMESTAMP", "DATE")]
    if times:
        return times[0]
    if kind == "bar" and key:
        return key[0]
    return None


def _scale(name: str, type_: str) -> Scale:
    if type_ in ("TIMESTAMP", "DATE") or (type_ == "BIGINT" and name in _TIMES):
        return "time"
    return "number" if is_number(type_) else "category"


def _position(name: str, names: Sequence[str]) -> int:
    """The position of the column with this name: as written, or in upper case."""
    for wanted in (name, name.upper()):
        if wanted in names:
            return list(names).index(wanted)
    raise UnknownColumn(f'the query has no column "{name}"', hint=did_you_mean(name, names))
