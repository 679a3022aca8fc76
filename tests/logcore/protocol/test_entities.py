"""Messages read into kio's classes."""

from __future__ import annotations

from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.protocol.wire.messages import read_response, write_response


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
