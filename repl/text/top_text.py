"""The activity of a server: two readings of GET /metrics give rates, and a table of queries and topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from .tables import printable, render_table

TOPICS_MAX: Final = 15
GROUPS_MAX: Final = 10
_QUERY_TITLES: Final = ("Query", "State", "Lag", "In/s", "Out/s", "Failed/s", "Failed", "Restarts")
_TOPIC_TITLES: Final = ("Topic", "Appended/s", "Bytes/s", "Records", "Size")
_GROUP_TITLES: Final = ("Group", "Members", "Lag")
_UNITS: Final = ("", " k", " M", " G", " T")


@dataclass(slots=True)
class ServerFigures:
    """One reading. `queries`, `topics`, `groups`: for each name, the sum of each metric over the partitions. `states`:
    the states of the queries. `plain`: metrics without such labels."""

    queries: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    topics: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    groups: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    states: dict[str, str] = field(default_factory=dict[str, str])
    plain: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def read_figures(text: str) -> ServerFigures:
    """In: the answer of GET /metrics. Raises ValueError if the text is something else."""
    found = ServerFigures()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            _note(found, sample.name.removeprefix("millstream_"), sample.labels, sample.value)
    return found


def _note(found: ServerFigures, name: str, labels: Mapping[str, str], value: float) -> None:
    if name == "query_state":
        if value:
            found.states[labels["query"]] = labels["state"]
    elif "group" in labels:
        found.groups[labels["group"]][name] += value
    elif "query" in labels:
        found.queries[labels["query"]][name] += value
    elif "topic" in labels:
        found.topics[labels["topic"]][name] += value
    elif not name.endswith(("_created", "_bucket")):
        found.plain[name] += value


def top_lines(before: ServerFigures, now: ServerFigures, seconds: float) -> Iterator[str]:
    """In: two readings, and the time between them. Lines that need attention come first: stopped queries, then lag."""
    running = sum(state == "RUNNING" for state in now.states.values())
    counts = [f"{running} of {len(now.states)} queries running"]
    counts += [f"{now.plain['client_queries']:.0f} queries of clients"]
    rate = _rate(before.plain, now.plain, "http_requests_total", seconds)
    yield ", ".join([*counts, f"{_short(rate)} HTTP requests/s"])
    tables = (
        (_QUERY_TITLES, _query_rows(before, now, seconds)),
        (_TOPIC_TITLES, _topic_rows(before, now, seconds)),
        (_GROUP_TITLES, _group_rows(now)),
    )
    for titles, rows in tables:
        if rows:
            yield ""
            yield from render_table(titles, rows, None)


def _query_rows(before: ServerFigures, now: ServerFigures, seconds: float) -> list[Sequence[str]]:
    def order(query: str) -> tuple[bool, float, str]:
        return now.states.get(query) == "RUNNING", -now.queries[query]["query_lag"], query

    return [
        (
            printable(query),
            now.states.get(query, ""),
            _short(now.queries[query]["query_lag"]),
            *(
                _short(_rate(before.queries.get(query, {}), now.queries[query], f"query_rows_{name}_total", seconds))
                for name in ("in", "out", "failed")
            ),
            _short(now.queries[query]["query_rows_failed_total"]),
            _short(now.queries[query]["query_restarts_total"]),
        )
        for query in sorted({*now.states, *now.queries}, key=order)
    ]


def _topic_rows(before: ServerFigures, now: ServerFigures, seconds: float) -> list[Sequence[str]]:
    """The busiest topics first, then the largest."""
    rates = {
        topic: tuple(
            _rate(before.topics.get(topic, {}), figures, f"topic_appended_{name}_total", seconds)
            for name in ("records", "bytes")
        )
        for topic, figures in now.topics.items()
        if not topic.startswith("_")
    }
    chosen = sorted(rates, key=lambda topic: (-rates[topic][0], -now.topics[topic]["topic_bytes"], topic))
    return [
        (
            printable(topic),
            *map(_short, rates[topic]),
            _short(now.topics[topic]["topic_records"]),
            f"{_short(now.topics[topic]['topic_bytes'])}B",
        )
        for topic in chosen[:TOPICS_MAX]
    ]


def _group_rows(now: ServerFigures) -> list[Sequence[str]]:
    """The groups of consumers; those of queries are in the first table."""
    others = {
        group: figures
        for group, figures in now.groups.items()
        if group not in now.states and not group.startswith("_millstream")
    }
    chosen = sorted(others, key=lambda group: (-others[group]["group_lag"], group))
    return [
        (printable(group), _short(others[group]["group_members"]), _short(others[group]["group_lag"]))
        for group in chosen[:GROUPS_MAX]
    ]


def _rate(before: Mapping[str, float], now: Mapping[str, float], name: str, seconds: float) -> float:
    """The rate per second; 0 after a restart of the server, because counters then begin at 0."""
    return max(0.0, now.get(name, 0.0) - before.get(name, 0.0)) / max(seconds, 1e-9)


def _short(value: float) -> str:
    """
    >>> _short(0), _short(0.4), _short(999), _short(1_234), _short(5_600_000)
    ('0', '0.4', '999', '1.2 k', '5.6 M')
    """
    unit = 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 0 if value == round(value) and unit == 0 else 1
    return f"{value:.{digits}f}{_UNITS[unit]}"
