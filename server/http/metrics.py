"""GET /metrics: counts for Prometheus about requests, clients' queries, persistent queries and topics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from millstream.errors import MillstreamError

from ...executor.connect.connectors import ConnectorStatus
from ...executor.connect.mirrors import MIRROR_STATES, MirrorStatus, state_of_mirror
from ...executor.executor import QueryMetrics, QueryStatus
from ...planner.catalog import Catalog
from ...planner.mirror_info import MirrorInfo
from ..engine.engine import Engine
from ..security.rights import EVERYTHING, Rights

_METHODS: Final = frozenset({"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"})
_TASK_STATES: Final = ("RUNNING", "PAUSED", "FAILED", "STOPPED")
_STATES: Final = ("RUNNING", "PAUSED", "ERROR", "STOPPED")
_COUNTS: Final = {
    "rows_in": "Records read.",
    "rows_used": "Records that produced at least one row.",
    "rows_dropped": "Records without their own row: filtered, late, or replaced by a later change.",
    "rows_failed": "Records that went to the processing log.",
    "rows_out": "Records written.",
    "bytes_in": "Bytes read.",
    "batches": "Batches done.",
    "restarts": "Restarts of the query after an error.",
}


class Metrics:
    """`record` is only for the event loop; `text` blocks."""

    def __init__(
        self,
        engine: Engine | None,
        client_queries: Callable[[Literal["PUSH", "PULL"]], int] | None,
        insert_streams: Callable[[], int] | None,
        log_metrics: Collector | None,
    ) -> None:
        """In: `engine`, `client_queries`, `insert_streams`: None if no engine runs here. `log_metrics`: None if the log
        is not in this process."""
        self._registry = CollectorRegistry()
        self._engine = engine
        self._requests = Counter(
            "millstream_http_requests", "Requests.", ("route", "method", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "millstream_http_request_seconds", "From the first byte to the last.", ("route",), registry=self._registry
        )
        if insert_streams is not None:
            streams = Gauge("millstream_insert_streams", "Insert streams.", registry=self._registry)
            streams.set_function(insert_streams)
        if engine is not None and client_queries is not None:
            self._registry.register(_EngineCollector(engine, client_queries))
        self._log_metrics = log_metrics

    def record(self, route: str, method: str, status: int, seconds: float) -> None:
        """Counts a finished request."""
        known = method if method in _METHODS else "other"
        self._requests.labels(route, known, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, rights: Rights = EVERYTHING, names: Set[str] = frozenset()) -> bytes:
        """The metrics that the user may see, in Prometheus' text format. In: `names` of families or of their series;
        empty: all."""
        collected = _Collected(self._registry, self._log_metrics, names)
        return generate_latest(_Shown(collected, rights, self._engine))


_OF_NOBODY: Final = frozenset({
    "route", "method", "status", "le", "kind", "state", "partition", "follower", "node", "peer",
})  # fmt: skip
"""Labels that name no stream, query, topic or group: everybody may see their series. Only administrators see series
with a label that is unknown here."""


_NOT_OF_THE_LOG: Final = (
    "millstream_query_", "millstream_sources", "millstream_client_queries", "millstream_http_",
    "millstream_insert_streams", "millstream_connector_", "millstream_mirror_",
)  # fmt: skip


class _Collected:
    """The requested families. The log is asked only for its own families, because with many topics they take long."""

    def __init__(self, registry: CollectorRegistry, log_metrics: Collector | None, names: Set[str]) -> None:
        self._collectors: list[CollectorRegistry | Collector] = [registry]
        if log_metrics is not None and (not names or not all(name.startswith(_NOT_OF_THE_LOG) for name in names)):
            self._collectors.append(log_metrics)
        self._names = names

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            for metric in collector.collect():
                if not self._names or not self._names.isdisjoint({metric.name, f"{metric.name}_total"}):
                    yield metric


class _Shown:
    """The series that a user may see."""

    def __init__(self, registry: _Collected, rights: Rights, engine: Engine | None) -> None:
        self._registry = registry
        self._rights = rights
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        if self._rights.everything:
            yield from self._registry.collect()
            return
        catalog = Catalog() if self._engine is None else self._rights.visible(self._engine.catalog)
        seen: Mapping[str, Callable[[str], bool]] = {
            "topic": self._rights.sees_topic,
            "group": lambda group: self._rights.may("group", group),
            "query": lambda query: query in catalog.queries,
        }
        for metric in self._registry.collect():
            shown = Metric(metric.name, metric.documentation, metric.type, metric.unit)
            shown.samples = [
                sample
                for sample in metric.samples
                if all(name in _OF_NOBODY or (name in seen and seen[name](of)) for name, of in sample.labels.items())
            ]
            yield shown


class _EngineCollector(Collector):
    """Reads the engine at each scrape."""

    def __init__(self, engine: Engine, client_queries: Callable[[Literal["PUSH", "PULL"]], int]) -> None:
        self._engine = engine
        self._client_queries = client_queries

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        clients = GaugeMetricFamily("millstream_client_queries", "Queries that send rows to clients.", labels=["kind"])
        clients.add_metric(["push"], self._client_queries("PUSH"))
        clients.add_metric(["pull"], self._client_queries("PULL"))
        yield clients
        yield from self._catalog()
        yield from _query_metrics(self._statuses())
        yield from _connector_metrics(self._connectors())
        yield self._leftovers()
        yield from _mirror_metrics(self._mirrors())

    def _catalog(self) -> Iterator[Metric]:
        catalog = self._engine.catalog
        sources = GaugeMetricFamily("millstream_sources", "Streams and tables.", labels=["kind"])
        for kind in ("STREAM", "TABLE"):
            sources.add_metric([kind.lower()], sum(1 for source in catalog.sources.values() if source.kind == kind))
        yield sources

    def _connectors(self) -> list[ConnectorStatus]:
        found: list[ConnectorStatus] = []
        for name in self._engine.catalog.connectors:
            with contextlib.suppress(MillstreamError):  # dropped meanwhile
                found.append(self._engine.connectors.status(name))
        return found

    def _leftovers(self) -> Metric:
        what = "1 for a dropped connector that has left something in another system."
        found = GaugeMetricFamily("millstream_connector_leftovers", what, labels=["connector"])
        for name in self._engine.connectors.leftovers():
            found.add_metric([name], 1)
        return found

    def _mirrors(self) -> list[tuple[MirrorInfo, MirrorStatus]]:
        mirrors = self._engine.catalog.mirrors.values()
        return [(info, self._engine.mirrors.status(info)) for info in mirrors]

    def _statuses(self) -> list[QueryStatus]:
        found: list[QueryStatus] = []
        for query_id in self._engine.catalog.queries:
            try:
                found.append(self._engine.executor.status(query_id))
            except MillstreamError:  # dropped meanwhile
                continue
        return found


def _connector_metrics(connectors: list[ConnectorStatus]) -> Iterator[Metric]:
    """The metrics of each task. The unit of lag depends on the connector: bytes of WAL, or records."""
    labels = ["connector", "task"]
    states = GaugeMetricFamily(
        "millstream_connector_task_state", "1 for the state it is in.", labels=[*labels, "state"]
    )
    records = CounterMetricFamily("millstream_connector_records", "Records committed.", labels=labels)
    restarts = CounterMetricFamily("millstream_connector_restarts", "Restarts after an error.", labels=labels)
    lags = GaugeMetricFamily("millstream_connector_lag", "What was not read yet.", labels=labels)
    for connector in connectors:
        for task in connector.tasks:
            of = [connector.name, str(task.number)]
            for state in _TASK_STATES:
                states.add_metric([*of, state], float(task.state == state))
            records.add_metric(of, task.records)
            restarts.add_metric(of, task.restarts)
            if task.lag is not None:
                lags.add_metric(of, task.lag)
    yield from (states, records, restarts, lags)


def _mirror_metrics(mirrors: list[tuple[MirrorInfo, MirrorStatus]]) -> Iterator[Metric]:
    """Counts start when the mirror starts in this process."""
    states = GaugeMetricFamily("millstream_mirror_state", "1 for the state it is in.", labels=["mirror", "state"])
    lags = GaugeMetricFamily("millstream_mirror_lag", "Offsets of the source that are not here.", labels=["mirror"])
    records = CounterMetricFamily("millstream_mirror_records", "Records copied.", labels=["mirror"])
    sizes = CounterMetricFamily("millstream_mirror_bytes", "Bytes of records copied.", labels=["mirror"])
    speeds = GaugeMetricFamily("millstream_mirror_bytes_per_second", "Of the last ten seconds.", labels=["mirror"])
    restarts = CounterMetricFamily("millstream_mirror_restarts", "Restarts after an error.", labels=["mirror"])
    for info, status in mirrors:
        now, board, of = state_of_mirror(info, status), status.board, [info.name]
        for state in MIRROR_STATES:
            states.add_metric([*of, state], float(now == state))
        if board.lag is not None:
            lags.add_metric(of, board.lag)
        records.add_metric(of, board.records)
        sizes.add_metric(of, board.bytes)
        speeds.add_metric(of, board.bytes_per_s)
        restarts.add_metric(of, 0 if status.task is None else status.task.restarts)
    yield from (states, lags, records, sizes, speeds, restarts)


def _query_metrics(statuses: list[QueryStatus]) -> Iterator[Metric]:
    states = GaugeMetricFamily("millstream_query_state", "1 for the state it is in.", labels=["query", "state"])
    lags = GaugeMetricFamily("millstream_query_lag", "Unread records.", labels=["query", "topic", "partition"])
    for status in statuses:
        for state in _STATES:
            states.add_metric([status.query_id, state], float(status.shown_state == state))
        for at, lag in status.lag.items():
            lags.add_metric([status.query_id, at.topic, str(at.partition)], lag)
    yield from (states, lags)
    for name, doc in _COUNTS.items():
        family = CounterMetricFamily(f"millstream_query_{name}", doc, labels=["query"])
        for status in statuses:
            family.add_metric([status.query_id], _count(status.metrics, name))
        yield family


def _count(metrics: QueryMetrics, name: str) -> float:
    return float(getattr(metrics, name))
