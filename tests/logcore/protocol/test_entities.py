"""Messages read into kio's classes."""

from __future__ import annotations

import pytest

from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.protocol.wire.messages import read_request, read_response, write_request, write_response
from millstream.logcore.protocol.wire.primitives import MalformedMessage


def test_fields_with_tags_are_read_one_behind_the_other() -> None:
    given = {
        "error_code": ErrorCode.none,
        "api_keys": [],
        "supported_features": [{"name": name, "min_version": 0, "max_version": 1} for name in ("a", "b" * 200)],
        "finalized_features_epoch": 7,
        "finalized_features": [{"name": "a", "min_version_level": 1, "max_version_level": 1}],
    }
    written = write_response(Api.API_VERSIONS, 3, given)
    found = read_response(Api.API_VERSIONS, 3, memoryview(written), 0)
    assert [feature.name for feature in found.supported_features] == ["a", "b" * 200]
    assert found.finalized_features_epoch == 7
    assert [feature.name for feature in found.finalized_features] == ["a"]


def test_an_answer_may_have_more_elements_than_a_request() -> None:
    """As the settings of 5,000 topics, for which our own client asks."""
    many = list(range(200_001))
    topic = {"error_code": ErrorCode.none, "name": "t", "partitions": [{"replica_nodes": many}]}
    answer = write_response(Api.METADATA, 1, {"brokers": [], "controller_id": 1, "topics": [topic]})
    found = read_response(Api.METADATA, 1, memoryview(answer), 0)
    assert len(found.topics[0].partitions[0].replica_nodes) == len(many)
    asked = write_request(Api.CREATE_PARTITIONS, 1, {"topics": [{"name": "t", "assignments": [{"broker_ids": many}]}]})
    with pytest.raises(MalformedMessage, match="more than 200000 elements"):
        read_request(Api.CREATE_PARTITIONS, 1, memoryview(asked), 0)
