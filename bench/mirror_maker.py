"""MirrorMaker 2, as it is released, beside our mirrors: into a Millstream, and out of one."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

from millstream.errors import LogError
from millstream.logcore.client import TopicPartition
from millstream.logcore.external.kafka_properties import KafkaProperties
from millstream.logcore.log import Log, open_log
from millstream.logcore.mirrors.mirror_source import MirrorSource, TopicFilter
from millstream.logcore.mirrors.renamed_mirror import RenamedMirror, RenamedMirrorSettings
from millstream.logcore.server import LogServer

from .apache_kafka import VERSION, running_java
from .maven import jars
from .measuring import Measured, cpu_seconds_of, timed
from .report import Line, rate_line

_LOGGING: Final = "org.slf4j:slf4j-simple:1.7.36"
_TASKS: Final = 2
_WITHIN_S: Final = 600.0
_STEP_S: Final = 0.2
_LOOK_S: Final = 0.1
_EVERYTHING: Final = TopicFilter(("*",))
_SETTINGS: Final = """
clusters = from, to
from.bootstrap.servers = {source}
to.bootstrap.servers = {target}
from->to.enabled = true
from->to.topics = {topic}
to->from.enabled = false
tasks.max = {tasks}
sync.topic.acls.enabled = false
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
config.storage.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
from.config.storage.replication.factor = 1
from.offset.storage.replication.factor = 1
from.status.storage.replication.factor = 1
to.config.storage.replication.factor = 1
to.offset.storage.replication.factor = 1
to.status.storage.replication.factor = 1
"""


def mirror_maker_lines(kafka: str, topic: str, partitions: int, rows: int, folder: Path) -> list[Line]:
    """In: `kafka`: where Apache Kafka has `rows` records in `topic`. Raises `Unavailable`."""
    classpath = ":".join(map(str, jars(f"org.apache.kafka:connect-mirror:{VERSION}", _LOGGING)))
    with open_log(folder / "millstream") as log, LogServer(log, port=0) as server:
        sys.stderr.write("bench: MirrorMaker 2, into a Millstream …\n")
        with _mirror_maker(classpath, kafka, server.address, topic, folder / "into") as process:
            into = _until_copied(server.address, f"from.{topic}", partitions, rows, process)
        ours = timed(rows, lambda: _copy(kafka, log, topic, "ours"))
        sys.stderr.write("bench: MirrorMaker 2, out of a Millstream …\n")
        with _mirror_maker(classpath, server.address, kafka, f"ours.{topic}", folder / "out") as process:
            out = _until_copied(kafka, f"from.ours.{topic}", partitions, rows, process)
        with open_log(folder / "another") as another:
            between = timed(rows, lambda: _copy(server.address, another, f"ours.{topic}", "a"))
    of = f"MirrorMaker 2 {VERSION}, as shipped, {_TASKS} tasks"
    return [
        rate_line(f"Apache Kafka into Millstream: {of}", into),
        rate_line("Apache Kafka into Millstream: a mirror, renamed, exactly once", ours, of=into, base="MirrorMaker 2"),
        rate_line(f"Millstream into Apache Kafka: {of}", out),
        rate_line("Millstream into Millstream: a mirror, renamed, exactly once", between, of=out, base="MirrorMaker 2"),
    ]


@contextlib.contextmanager
def _mirror_maker(classpath: str, source: str, target: str, topic: str, folder: Path) -> Generator[int]:
    """Gives the process."""
    folder.mkdir()
    settings = folder / "mm2.properties"
    settings.write_text(_SETTINGS.format(source=source, target=target, topic=topic, tasks=_TASKS))
    program = "org.apache.kafka.connect.mirror.MirrorMaker"
    with running_java(classpath, program, [str(settings), "--clusters", "to"], folder / "output.txt") as process:
        yield process


def _until_copied(address: str, topic: str, partitions: int, rows: int, process: int) -> Measured:
    """From the first records that are at the target to the last one: a start of Java is no part of it."""
    target = MirrorSource(KafkaProperties({"bootstrap.servers": address}))
    began, first, cpu_s = 0.0, 0, 0.0
    deadline = time.monotonic() + _WITHIN_S
    while (count := _count(target, topic, partitions)) < rows:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} of {rows} records came to {topic}")
        if count and not began:
            began, first, cpu_s = time.perf_counter(), count, cpu_seconds_of(process)
        time.sleep(_LOOK_S)
    target.close()
    return Measured(rows - first, time.perf_counter() - began, cpu_seconds_of(process) - cpu_s)


def _count(target: MirrorSource, topic: str, partitions: int) -> int:
    with contextlib.suppress(LogError):  # it is not made yet
        return sum(target.ends(TopicPartition(topic, number)).high_watermark for number in range(partitions))
    return 0


def _copy(address: str, log: Log, topic: str, alias: str) -> None:
    source = MirrorSource(KafkaProperties({"bootstrap.servers": address}))
    settings = RenamedMirrorSettings("bench", alias, "here", TopicFilter((topic,)), _EVERYTHING, look_ms=60_000)
    mirror = RenamedMirror(log, source, settings)
    _steps(mirror.step, lambda: bool(mirror.lag()) or not mirror.board.records)
    mirror.close()


def _steps(step: Callable[[float], bool], is_behind: Callable[[], bool]) -> None:
    step(_STEP_S)
    while is_behind():
        step(_STEP_S)
