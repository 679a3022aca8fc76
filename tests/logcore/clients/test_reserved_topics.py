"""Topics of Millstream are open to every client for reading, and to none for writing."""

from __future__ import annotations

import importlib
from typing import cast

import pytest

from millstream.logcore.log import Log
from millstream.logcore.protocol.wire.apis import Api

from ..log_records import values_of
from .asking import Asking
from .brokers import MillstreamBroker
from .driver import Driver, Record
from .test_real_clients import LIBRARIES


@pytest.mark.parametrize("library", LIBRARIES)
def test_topics_of_millstream_are_read_by_everybody_and_written_by_nobody_else(
    library: str, millstream: MillstreamBroker, log: Log
) -> None:
    pytest.importorskip(library)
    driver = cast(Driver, importlib.import_module(f".{LIBRARIES[library]}", __package__))
    log.create_topic("_millstream-command", 1)
    with pytest.raises(Exception, match=r"(?i)authoriz|NOT_ALLOWED"):
        driver.produce(millstream.address, "_millstream-command", [Record(b"intruder")])
    assert values_of(log, "_millstream-command") == []
    with pytest.raises(Exception, match=r"(?i)authoriz|NOT_ALLOWED"):
        driver.delete_topic(millstream.address, "_millstream-command")
    assert "_millstream-command" in log.topics()
    assert driver.read(millstream.address, "_millstream-command", 0) == []


def test_internal_topics_are_those_of_the_log_itself_whichever_request_asks(
    millstream: MillstreamBroker, log: Log
) -> None:
    names = ["_millstream-command", "__consumer_offsets", "__of_a_user", "orders"]
    for name in names:
        if name not in log.topics():
            log.create_topic(name, 1)
    asking = Asking(millstream.address, 0)
    listed = asking.ask(Api.METADATA, {"topics": [{"name": name} for name in names]}).topics
    asked = {"topics": [{"name": name} for name in names], "response_partition_limit": 100}
    described = asking.ask_in(Api.DESCRIBE_TOPIC_PARTITIONS, 0, asked).topics
    asking.close()
    for found in (listed, described):
        assert {topic.name for topic in found if topic.is_internal} == {"__consumer_offsets"}
