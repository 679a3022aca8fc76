"""`python -m bench`: measures, and prints one table."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from millstream.executor.spark.spark_session import spark_session
from millstream.executor.spark.spark_settings import SparkSettings
from millstream.server.engine.executors import why_no_spark

from . import latency, references, throughput
from .bids import bids, write_ndjson
from .captures.capture_lines import capture_lines
from .checkouts.lines import CheckoutsOptions, checkouts_lines
from .cores import CoresOptions, cores_lines
from .external_rates import ExternalOptions, external_lines
from .idle import idle_lines
from .log_speed.lines import KafkaOptions, kafka_lines
from .many import many_lines
from .measuring import Measured, machine
from .mirroring import MirroringOptions, mirroring_lines
from .nexmark import flink
from .nexmark.measure import NexmarkOptions, nexmark_lines
from .nexmark.on_spark import on_spark_lines
from .partitions import partition_lines
from .pipelines import pipelines
from .planning import planning_lines
from .replication import ReplicationOptions, replication_lines
from .report import Line, as_text, latency_line, rate_line
from .serving import serving_lines
from .small_batches import small_batch_lines
from .state_growth import state_lines

PARTS: Final = ("duckdb", "latency", "spark")
ON_DEMAND: Final = (
    "nexmark", "cores", "idle", "planning", "partitions", "kafka", "serving", "replication", "state", "small",
    "checkouts", "external", "many", "mirroring", "flink", "captures", "nexmark-spark",
)  # fmt: skip
"""The first takes many minutes, the next compares one core with two, the others are not about the rows of queries."""
_PARTITIONS_OPENED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Options:
    rows: int
    rounds: int
    warm: int  # rows that come before what is measured
    seconds: float  # of each latency measurement
    parts: Sequence[str]
    partitions: int
    trials: int
    seed: int
    beside: Path | None
    nexmark: NexmarkOptions


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table to standard output, and what is under way to standard error."""
    options = _options(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    sys.stdout.write(f"{machine()}\n")
    if set(options.parts) - set(ON_DEMAND):
        _print_bids(options)
    if "cores" in options.parts:
        chosen = CoresOptions(options.rows, 1 if options.rounds == 1 else 5, options.warm, options.seed)
        sys.stdout.write(as_text(cores_lines(chosen)) + "\n")
    if "idle" in options.parts:
        sys.stdout.write(as_text(idle_lines(4 if options.rounds == 1 else 100, options.seconds)) + "\n")
    if "planning" in options.parts:
        sys.stdout.write(as_text(planning_lines(options.rounds)) + "\n")
    if "state" in options.parts:
        sys.stdout.write(as_text(state_lines()) + "\n")
    if "small" in options.parts:
        sys.stdout.write(as_text(small_batch_lines(50 if options.rounds == 1 else 300, options.rounds)) + "\n")
    if "many" in options.parts:
        few = options.rounds == 1
        sys.stdout.write(as_text(many_lines(20_000 if few else 200_000, 10 if few else 50)) + "\n")
    if "partitions" in options.parts:
        sys.stdout.write(as_text(partition_lines(_PARTITIONS_OPENED)) + "\n")
    if "kafka" in options.parts:
        _print_kafka(options)
    if "external" in options.parts:
        chosen = ExternalOptions(options.rows, options.rounds, options.warm, options.partitions, options.seed)
        sys.stdout.write(as_text(external_lines(chosen)) + "\n")
    if "mirroring" in options.parts:
        chosen = MirroringOptions(options.rows, options.rounds, 6, options.seed)
        sys.stdout.write(as_text(mirroring_lines(chosen)) + "\n")
    if "captures" in options.parts:
        sys.stdout.write(as_text(capture_lines(10_000 if options.rounds == 1 else 200_000)) + "\n")
    if "replication" in options.parts:
        _print_replication(options)
    if "serving" in options.parts:
        with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
            sys.stdout.write(as_text(serving_lines(Path(folder), options.rounds, options.seconds / 2)) + "\n")
    if options.beside is not None:
        _print_checkouts(CheckoutsOptions(options.beside, 1 if options.rounds == 1 else 5))
    if "nexmark" in options.parts:
        _print_nexmark(options.nexmark)
    if "nexmark-spark" in options.parts:
        _print_nexmark_on_spark(options.nexmark)
    if "flink" in options.parts:
        _print_flink(options.nexmark)


def _print_bids(options: Options) -> None:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        path = Path(folder, "input", "bids.ndjson")
        path.parent.mkdir()
        _say(f"writing {options.rows:,} bids to an NDJSON file")
        write_ndjson(bids(options.rows, options.seed, options.warm), path)
        lines: list[Line] = []
        if "duckdb" in options.parts:
            lines += _duckdb_lines(options, path)
        if "latency" in options.parts:
            lines += _latency_lines(options, Path(folder))
        if "spark" in options.parts:
            lines += _spark_lines(options, path)
        size = path.stat().st_size / options.rows
    sys.stdout.write(
        f"{options.rows:,} bids of {size:.0f} bytes, {options.partitions} partition(s), seed {options.seed}, median of "
        f"{options.rounds}; fsync, encoding and commits are in all of Millstream's rates\n\n"
    )
    sys.stdout.write(as_text(lines) + "\n")


def _print_kafka(options: Options) -> None:
    lines = kafka_lines(KafkaOptions(options.rows, options.rounds if options.rounds == 1 else 5, options.seconds))
    sys.stdout.write(
        f"{options.rows:,} records, ours and theirs in turn: median ratio, and the range; our log syncs what it "
        "acknowledges, Kafka as it comes does not, unless a line says otherwise\n\n"
    )
    sys.stdout.write(as_text(lines) + "\n")


def _print_checkouts(options: CheckoutsOptions) -> None:
    lines = checkouts_lines(options)
    sys.stdout.write(
        f"this checkout beside {options.beside.name}, in turn, {options.rounds} times: what each costs (median; "
        "processor time where nothing else is said) and the ratio of the cheapest, in brackets that of each turn\n\n"
    )
    sys.stdout.write(as_text(lines) + "\n")


def _print_nexmark(options: NexmarkOptions) -> None:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        lines = nexmark_lines(options, Path(folder))
    sys.stdout.write(
        f"Nexmark: {options.events:,} events, {options.partitions} partition(s), seed {options.seed}; rows of the "
        "sources; from the statement until all is committed, fsync and encoding included\n\n"
    )
    sys.stdout.write(as_text(lines) + "\n")


def _print_nexmark_on_spark(options: NexmarkOptions) -> None:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        lines = on_spark_lines(options, Path(folder))
    sys.stdout.write(
        f"Nexmark on both, JSON: {options.events:,} events, {options.partitions} partition(s), seed {options.seed}, "
        "each result was compared with the batch query's\n\n"
    )
    sys.stdout.write(as_text(lines) + "\n")


def _print_flink(options: NexmarkOptions) -> None:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        lines = flink.flink_lines(options, Path(folder))
    sys.stdout.write(
        f"Nexmark beside Flink SQL {flink.VERSION}, 2 partitions, JSON: the slope from "
        f"{options.events // flink.TIMES:,} to {options.events:,} events; Flink reads files, and throws results "
        "away or writes them to files; ours are committed with fsync\n\n"
    )
    sys.stdout.write(as_text(lines) + "\n")


def _print_replication(options: Options) -> None:
    chosen = ReplicationOptions(min(options.rows, 500_000), options.rounds, options.seconds, options.trials)
    lines = replication_lines(chosen)
    sys.stdout.write(
        f"three processes on this machine: median of {options.rounds}; ours sync what they acknowledge, Kafka's do not "
        "unless a line says so\n\n"
    )
    sys.stdout.write(as_text(lines) + "\n")


def _duckdb_lines(options: Options, path: Path) -> list[Line]:
    _say("DuckDB over the NDJSON file")
    reference = references.duckdb_rates(path, options.rows, options.rounds)
    _say("Millstream on DuckDB")
    with pipelines("duckdb", options.partitions) as run:
        rates = throughput.duckdb_rates(run, options.rows, options.rounds, options.warm, options.seed)
    batch, quarter, four = "DuckDB's batch query", "≥ 0.25", "≥ 4"
    return [
        rate_line("DuckDB batch query over NDJSON: filter", reference["filter"]),
        rate_line("DuckDB batch query over NDJSON: count and sum per minute", reference["aggregate"]),
        rate_line("log: append", rates["append"]),
        rate_line("log: fetch", rates["fetch"]),
        rate_line("JSON → filter → JSON", rates["filter"], of=reference["filter"], base=batch, wanted=quarter),
        rate_line(
            "JSON → tumbling aggregate, every change → JSON",
            rates["aggregate"], of=reference["aggregate"], base=batch, wanted=quarter,
        ),
        rate_line("JSON → columnar", rates["to columns"]),
        rate_line(
            "columnar → filter → columnar", rates["columnar filter"], of=rates["filter"], base="JSON", wanted=four
        ),
        rate_line(
            "columnar → tumbling aggregate, every change → columnar",
            rates["columnar aggregate"], of=rates["aggregate"], base="JSON", wanted=four,
        ),
    ]  # fmt: skip


def _latency_lines(options: Options, folder: Path) -> list[Line]:
    _say(f"latency at {latency.RATE} records/s")
    floor = latency.statement_and_sync(folder, options.seconds, options.seed)
    with pipelines("duckdb", 1) as run:
        ours = latency.append_to_result(run, options.seconds, options.seed)
    what = f"append → visible result, {latency.RATE} records/s"
    return [
        latency_line("one DuckDB statement and one fsync", floor),
        latency_line(what, ours, of=floor, base="statement and fsync", wanted="p50 ≤ 5 ×"),
    ]


def _spark_lines(options: Options, path: Path) -> list[Line]:
    reason = why_no_spark()
    if reason is not None:
        return [Line(f"Spark: not measured, {reason}")]
    _say("Spark's own groupBy(window)")
    session = spark_session(SparkSettings.of({}))
    reference = references.spark_rates(session, path, options.rows, options.rounds)
    _say("Millstream on Spark")
    with pipelines("spark", options.partitions) as run:
        rates = throughput.spark_rates(run, options.rows, options.rounds, options.warm, options.seed)
    own: Measured = reference["streaming"]
    return [
        rate_line("Spark groupBy(window) over NDJSON: batch", reference["batch"]),
        rate_line("Spark groupBy(window) over NDJSON: Structured Streaming", own),
        rate_line("Spark: append, JSON → filter → JSON", rates["filter"]),
        rate_line(
            "Spark: append, JSON → tumbling aggregate, every change → JSON",
            rates["aggregate"], of=own, base="Structured Streaming", wanted="≥ 0.8",
        ),
    ]  # fmt: skip


def _options(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Millstream's benchmarks.")
    parser.add_argument("--rows", type=int, help="rows of each measurement (default: 1,000,000; with --quick 100,000)")
    parser.add_argument("--events", type=int, help="of the Nexmark queries (default: 2,000,000; with --quick 100,000)")
    parser.add_argument("--query", action="append", default=[], help="this Nexmark query only; may be repeated")
    parser.add_argument("--cap", type=float, default=300.0, help="seconds after which a Nexmark query is stopped")
    parser.add_argument("--only", action="append", choices=(*PARTS, *ON_DEMAND), help="this part only; may be repeated")
    parser.add_argument("--quick", action="store_true", help="one round over few rows, and no Spark unless asked for")
    parser.add_argument("--partitions", type=int, default=1, help="of the topics (default: 1)")
    parser.add_argument("--trials", type=int, help="leaders killed by the part replication (default: 100; 2)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--beside", type=Path, help="another checkout with its .venv, for the part checkouts")
    given = parser.parse_args(arguments)
    if ("checkouts" in (given.only or ())) != (given.beside is not None):
        parser.error("--only checkouts and --beside PATH go together")
    rows = given.rows or (100_000 if given.quick else 1_000_000)
    return Options(
        rows=rows,
        rounds=1 if given.quick else 3,
        warm=max(1, min(rows, 200_000)),
        seconds=1.0 if given.quick else 10.0,
        parts=given.only or (PARTS[:2] if given.quick else PARTS),
        partitions=given.partitions,
        trials=given.trials or (2 if given.quick else 100),
        seed=given.seed,
        beside=given.beside,
        nexmark=NexmarkOptions(
            events=given.events or (100_000 if given.quick else 2_000_000),
            seconds=given.cap,
            partitions=given.partitions,
            seed=given.seed,
            names=given.query,
        ),
    )


def _say(text: str) -> None:
    sys.stderr.write(f"bench: {text} …\n")


if __name__ == "__main__":
    main()
