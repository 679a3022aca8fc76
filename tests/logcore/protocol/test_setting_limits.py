"""Groups, clients and users whose settings a client changes: how many there may be, and how long their names."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.log import Log, open_log
from millstream.logcore.protocol import setting_limits
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.remote import RemoteLog, trusted_address
from millstream.logcore.server import LogServer

_GROUP = 32
_SET, _DELETE = 0, 1
MOST = 3


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", sync="never") as opened:
        yield opened


@pytest.fixture
def remote(log: Log, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteLog]:
    monkeypatch.setattr(setting_limits, "RESOURCES_MAX", MOST)
    with LogServer(log, port=0) as server, RemoteLog(trusted_address(log.served, server.address)) as client:
        yield client


def set_group(remote: RemoteLog, name: str, value: str | None = "60000") -> ErrorCode:
    operation = _DELETE if value is None else _SET
    config = {"name": "consumer.session.timeout.ms", "config_operation": operation, "value": value}
    resource = {"resource_type": _GROUP, "resource_name": name, "configs": [config]}
    asked = {"resources": [resource], "validate_only": False}
    (answer,) = remote._router.ask(Api.INCREMENTAL_ALTER_CONFIGS, asked).responses
    return answer.error_code


def set_quota(remote: RemoteLog, name: str, value: str | None = "1000000") -> ErrorCode:
    entity = [{"entity_type": "client-id", "entity_name": name}]
    op = {"key": "producer_byte_rate", "value": float(value or 0), "remove": value is None}
    asked = {"entries": [{"entity": entity, "ops": [op]}], "validate_only": False}
    (answer,) = remote._router.ask(Api.ALTER_CLIENT_QUOTAS, asked).entries
    return answer.error_code


def set_password(remote: RemoteLog, name: str, value: str | None = "4096", salt: bytes = b"salt") -> ErrorCode:
    deletions: list[dict[str, Any]] = []
    upsertions: list[dict[str, Any]] = []
    if value is None:
        deletions.append({"name": name, "mechanism": 1})
    else:
        salted = hashlib.pbkdf2_hmac("sha256", b"sesame", salt, int(value))
        password = {"name": name, "mechanism": 1, "iterations": int(value), "salt": salt, "salted_password": salted}
        upsertions.append(password)
    asked = {"deletions": deletions, "upsertions": upsertions}
    (answer,) = remote._router.ask(Api.ALTER_USER_SCRAM_CREDENTIALS, asked).results
    return answer.error_code


Setter = Callable[..., ErrorCode]
SETTERS: dict[str, tuple[Setter, str, ErrorCode]] = {
    "group": (set_group, "61000", ErrorCode.invalid_request),
    "quota": (set_quota, "2000000", ErrorCode.invalid_request),
    "password": (set_password, "8192", ErrorCode.unacceptable_credential),
}


@pytest.mark.parametrize("kind", SETTERS)
def test_no_more_may_have_settings_than_there_is_room_for(remote: RemoteLog, log: Log, kind: str) -> None:
    put, other, _ = SETTERS[kind]
    assert [put(remote, f"n{number}") for number in range(MOST)] == [ErrorCode.none] * MOST
    assert put(remote, "one more") is ErrorCode.policy_violation
    assert put(remote, "n1", other) is ErrorCode.none, "who has settings may change them"
    assert put(remote, "n0", None) is ErrorCode.none, "and give them back"
    assert put(remote, "one more") is ErrorCode.none
    for other_kind in set(SETTERS) - {kind}:
        assert SETTERS[other_kind][0](remote, "n0") is ErrorCode.none, "each kind has room of its own"


@pytest.mark.parametrize("kind", SETTERS)
def test_a_name_has_a_largest_size(remote: RemoteLog, kind: str) -> None:
    put, _, refused = SETTERS[kind]
    assert put(remote, "ä" * (setting_limits.NAME_BYTES_MAX // 2)) is ErrorCode.none
    assert put(remote, "ä" * (setting_limits.NAME_BYTES_MAX // 2 + 1)) is refused


def test_a_salt_has_a_largest_size(remote: RemoteLog) -> None:
    assert set_password(remote, "ana", salt=b"s" * 1024) is ErrorCode.none
    assert set_password(remote, "ana", salt=b"s" * 1025) is ErrorCode.unacceptable_credential
