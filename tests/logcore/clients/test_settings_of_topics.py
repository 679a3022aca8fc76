"""What can be set on topics, and what is said of records that a topic does not take."""

from __future__ import annotations

import pytest

from .asking import TOPIC, Asking
from .outside import unique

_INVALID_CONFIG, _INVALID_RECORD = 40, 87


@pytest.mark.parametrize("config", [{"no.such.setting": "1"}, {"retention.ms": "soon"}, {"cleanup.policy": "burn"}])
def test_a_topic_is_not_made_with_a_setting_that_does_not_exist_or_fit(asking: Asking, config: dict[str, str]) -> None:
    refused = asking.try_to_create(unique("t"), config=config)
    assert refused.error_code == _INVALID_CONFIG
    (name,) = config
    assert name in refused.error_message


def test_the_records_that_are_to_blame_are_named(asking: Asking) -> None:
    compacted = asking.create_topic(config={"cleanup.policy": "compact"})
    refused = asking.produce(compacted, b"a", b"b", b"c", key=None)
    assert refused.error_code == _INVALID_RECORD
    assert [number for number, _ in refused.record_errors] == [0, 1, 2]
    assert all("without" in (reason or "") and "key" in (reason or "") for _, reason in refused.record_errors)
    assert asking.produce(compacted, b"a").error_code == 0


def test_a_setting_says_where_it_comes_from_and_what_stands_behind_it(asking: Asking) -> None:
    topic = asking.create_topic(config={"retention.ms": "1000000"})
    found = asking.settings(TOPIC, topic, synonyms=True)
    mine = found["retention.ms"]
    assert (mine.value, mine.config_source, mine.read_only, mine.is_sensitive) == ("1000000", 1, False, False)
    assert (mine.synonyms[0].name, mine.synonyms[0].value, mine.synonyms[0].source) == ("retention.ms", "1000000", 1)
    usual = found["cleanup.policy"]
    assert (usual.value, usual.config_source) == ("delete", 5)
    assert [(each.name, each.value, each.source) for each in usual.synonyms] == [("log.cleanup.policy", "delete", 5)]
    assert all(not entry.synonyms for entry in asking.settings(TOPIC, topic).values())
