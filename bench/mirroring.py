"""How fast a mirror catches up: records of an Apache Kafka beside it, fetched only, and copied; and how fast the disk
would take them, which bounds the copy."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from millstream.logcore.client import RowRecords, TopicPartition
from millstream.logcore.external.external_log import ExternalLog, ExternalLogSettings
from millstream.logcore.external.kafka_properties import KafkaProperties
from millstream.logcore.log import Log, open_log
from millstream.logcore.mirrors.exact_mirror import ExactMirror, ExactMirrorSettings
from millstream.logcore.mirrors.mirror_source import MirrorSource, TopicFilter
from millstream.logcore.mirrors.source_fetcher import SourceFetcher

from .apache_kafka import AS_SHIPPED, VERSION, ApacheKafka, Unavailable
from .bids import bids
from .measuring import Measured, Stopwatch, median
from .mirror_maker import mirror_maker_lines
from .report import Line, rate_line

_TOPIC: Final = "bids"
_CHUNK: Final = 200_000
_STEP_S: Final = 0.2
_PIECE: Final = 16 * 1024 * 1024  # what a mirror appends at a time
_EVERYTHING: Final = TopicFilter(("*",))


@dataclass(frozen=True, slots=True)
class MirroringOptions:
    rows: int
    rounds: int
    partitions: int
    seed: int


def mirroring_lines(options: MirroringOptions) -> list[Line]:
    """Fetches, copies and plain writes take turns; each copy goes into a new log on disk, with fsync."""
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        try:
            kafka = ApacheKafka(Path(folder, "kafka"), java_options=AS_SHIPPED)
        except Unavailable as reason:
            return [Line(f"Apache Kafka: not measured, {reason}")]
        with kafka:
            sys.stderr.write(f"bench: a mirror of Apache Kafka, {options.partitions} partitions …\n")
            _fill(kafka.address, options)
            fetched: list[Measured] = []
            copied: list[Measured] = []
            written: list[Measured] = []
            for number in range(options.rounds + 1):  # the first warms both up
                fetched.append(_timed(options, lambda: _fetch(kafka.address, options)))
                with open_log(Path(folder, f"copy-{number}")) as log:
                    copied.append(_timed(options, lambda: _copy(kafka.address, log)))
                size = sum(path.stat().st_size for path in Path(folder, f"copy-{number}").rglob("*.log"))
                written.append(_timed(options, partial(_write, Path(folder, f"plain-{number}"), size)))
                shutil.rmtree(Path(folder, f"copy-{number}"))
                Path(folder, f"plain-{number}").unlink()
            fetch, copy, write = median(fetched[1:]), median(copied[1:]), median(written[1:])
            of = f"Apache Kafka {VERSION}, {options.partitions} partitions"
            lines = [
                rate_line(f"{of}: fetched", fetch),
                rate_line("the same bytes written to a file, with fsync", write, of=fetch, base="fetched"),
                rate_line(f"{of}: copied by a mirror", copy, of=fetch, base="fetched", wanted="≥ 0.7"),
                rate_line(f"{of}: copied by a mirror", copy, of=write, base="written"),
            ]
            return [*lines, *_peer_lines(kafka.address, options, Path(folder, "peer"))]


def _peer_lines(address: str, options: MirroringOptions, folder: Path) -> list[Line]:
    folder.mkdir()
    try:
        return mirror_maker_lines(address, _TOPIC, options.partitions, options.rows, folder)
    except Unavailable as reason:
        return [Line(f"MirrorMaker 2: not measured, {reason}")]


def _timed(options: MirroringOptions, work: Callable[[], None]) -> Measured:
    watch = Stopwatch(options.rows, children=False)
    with watch.running():
        work()
    return watch.measured


def _fill(address: str, options: MirroringOptions) -> None:
    with ExternalLog(ExternalLogSettings.of({"bootstrap.servers": address}, "bench_")) as log:
        log.create_topic(_TOPIC, options.partitions)
        for place, first in enumerate(range(0, options.rows, _CHUNK)):
            table = bids(min(_CHUNK, options.rows - first), options.seed, first)
            for start in range(0, table.num_rows, 5_000):
                log.append(_TOPIC, place % options.partitions, RowRecords(table.slice(start, 5_000)))


def _fetch(address: str, options: MirroringOptions) -> None:
    source = MirrorSource(KafkaProperties({"bootstrap.servers": address}))
    places = [TopicPartition(_TOPIC, number) for number in range(options.partitions)]
    left = {place: source.ends(place).high_watermark for place in places}
    fetcher = SourceFetcher(source.router)
    for place in places:
        fetcher.seek(place, 0)
    while left:
        for answer in fetcher.take(_STEP_S):
            if not (answer.fetched and answer.fetched.size) and answer.offset >= left.get(answer.where, 0):
                left.pop(answer.where, None)
    fetcher.close()
    source.close()


def _write(path: Path, size: int) -> None:
    piece = os.urandom(_PIECE)
    with path.open("wb", buffering=0) as file:
        for start in range(0, size, _PIECE):
            file.write(piece[: size - start])
            os.fdatasync(file.fileno())


def _copy(address: str, log: Log) -> None:
    source = MirrorSource(KafkaProperties({"bootstrap.servers": address}))
    mirror = ExactMirror(log, source, ExactMirrorSettings("bench", _EVERYTHING, _EVERYTHING, look_ms=60_000))
    mirror.step(_STEP_S)
    while mirror.lag() or not mirror.board.records:
        mirror.step(_STEP_S)
    mirror.close()
