"""Copies are written over the network as in process: by who shows the log's secret, at their offsets, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from two_logs import records_of, rows, two_logs, until_level

from millstream.logcore.errors import OffsetOutOfRange, ReadOnlyTopic
from millstream.logcore.external.kafka_properties import KafkaProperties
from millstream.logcore.mirrors.exact_mirror import ExactMirror, ExactMirrorSettings
from millstream.logcore.mirrors.mirror_source import MirrorSource, TopicFilter
from millstream.logcore.mirrors.mirrored_topics import release_topics
from millstream.logcore.records.thinning import fillers
from millstream.logcore.remote import RemoteLog, trusted_address
from millstream.logcore.server import LogServer


def test_a_mirror_writes_to_a_log_over_the_network(memory_folder: Path) -> None:
    everything = TopicFilter(("*",))
    with two_logs(memory_folder) as logs, LogServer(logs.here, port=0) as server:
        logs.there.create_topic("t", 2)
        logs.there.append("t", 0, rows(b"a", b"b"))
        logs.there.append("t", 1, rows(b"c"))
        with RemoteLog(trusted_address(logs.here.served, server.address)) as remote:
            source = MirrorSource(KafkaProperties({"bootstrap.servers": logs.address}))
            mirror = ExactMirror(remote, source, ExactMirrorSettings("m", everything, everything, look_ms=100))
            until_level(mirror)
            mirror.close()
            with pytest.raises(OffsetOutOfRange):
                remote.append_copies("t", 0, list(fillers(1, 2, 0)), "m")
            assert release_topics(remote, "m") == ["t"]
            with pytest.raises(ReadOnlyTopic):
                remote.append_copies("t", 0, list(fillers(2, 3, 0)), "m")
        assert [records_of(logs.here, "t", number) for number in range(2)] == [
            records_of(logs.there, "t", number) for number in range(2)
        ]


def test_strangers_send_no_copies(memory_folder: Path) -> None:
    with two_logs(memory_folder) as logs, LogServer(logs.here, port=0) as server:
        logs.here.create_topic("t", 1, {"millstream.mirror": "m"})
        with RemoteLog(server.address) as stranger, pytest.raises(ReadOnlyTopic):
            stranger.append_copies("t", 0, list(fillers(0, 5, 0)), "m")
        assert logs.here.offsets("t", 0).log_end_offset == 0
