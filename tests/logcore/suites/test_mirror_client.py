"""MirrorMaker 2's own client reads what a mirror in renamed mode has written."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from two_logs import rows, two_logs

from bench.apache_kafka import VERSION
from millstream.logcore.client import TopicPartition
from millstream.logcore.external.kafka_properties import KafkaProperties
from millstream.logcore.mirrors.mirror_source import MirrorSource, TopicFilter
from millstream.logcore.mirrors.renamed_mirror import RenamedMirror, RenamedMirrorSettings
from millstream.logcore.server import LogServer

from .serving import JAVA_OPTIONS, classpath, compiled

_EVERYTHING = TopicFilter(("*",))


@pytest.mark.timeout(300)
def test_remote_cluster_utils_translate_offsets_and_find_the_source(tmp_path: Path) -> None:
    libraries = classpath(f"org.apache.kafka:connect-mirror-client:{VERSION}")
    program = compiled(Path(__file__).parent / "java" / "Translate.java", libraries, tmp_path / "java")
    with two_logs(tmp_path) as logs, LogServer(logs.here, port=0) as server:
        logs.there.create_topic("orders", 1)
        producer = logs.there.transactional_producer("p")
        for value, commits in ((b"a", False), (b"b", True), (b"c", True)):
            producer.begin()
            producer.append("orders", 0, rows(value))
            producer.commit() if commits else producer.abort()
        logs.there.commit_offsets("group", {TopicPartition("orders", 0): 4})  # the record c
        settings = RenamedMirrorSettings("m", "primary", "backup", _EVERYTHING, _EVERYTHING, look_ms=100)
        mirror = RenamedMirror(logs.here, MirrorSource(KafkaProperties({"bootstrap.servers": logs.address})), settings)
        while not mirror.is_level():
            mirror.step(0.05)
        mirror.look()
        mirror.close()
        command = ["java", *JAVA_OPTIONS, "-cp", program, "Translate", server.address, "primary", "group"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    found = [line for line in said.stdout.splitlines() if line.startswith(("{", "[")) or line.isdecimal()]
    assert found[1:] == ["[primary]", "1", "[primary.heartbeats, primary.orders]"], said.stderr[-2000:]
    assert found[0] == "{primary.orders-0=1 }"
