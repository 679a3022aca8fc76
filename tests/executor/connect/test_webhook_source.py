"""Deliveries of web hooks: who may send, what is written, and what the sender is told when the task dies."""

from __future__ import annotations

import base64
import hashlib
import hmac
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from waiting import eventually

from millstream.executor.connect.connector_errors import InvalidConnector
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.connectors import Connectors
from millstream.executor.connect.inbox import Delivery, Settlement
from millstream.executor.connect.secret_vault import KnownSecrets, SecretVault
from millstream.executor.connect.sources.webhook_source import WebhookSettings, WebhookSource
from millstream.executor.formats.wire import no_schemas
from millstream.logcore.log import open_log
from millstream.planner.catalog import Catalog
from millstream.planner.connector_info import ConnectorInfo
from millstream.testing import ConnectorSandbox

NOW_MS = 1_750_000_000_000
NOW_S = NOW_MS // 1000
SECRET = "a secret"


def box(scheme: str = "github", **more: str) -> ConnectorSandbox:
    given = {name.replace("_", "."): value for name, value in more.items()}
    config = {"topic": "t", "signature.scheme": scheme, "signature.secret": SECRET, **given}
    opened = ConnectorSandbox(WebhookSource, config, now_ms=NOW_MS)
    opened.run()
    return opened


def signature(text: bytes, algorithm: Any = hashlib.sha256, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), text, algorithm).hexdigest()


def github(body: bytes, number: str = "1", secret: str = SECRET) -> Delivery:
    signed = f"sha256={signature(body, secret=secret)}"
    return Delivery({"x-hub-signature-256": signed, "x-github-delivery": number}, body)


def stripe(body: bytes, seconds: int = NOW_S, *others: str) -> Delivery:
    signed = signature(f"{seconds}.".encode() + body)
    return Delivery({"stripe-signature": ",".join([f"t={seconds}", *others, f"v1={signed}"])}, body)


def deliver(opened: ConnectorSandbox, delivery: Delivery) -> Settlement:
    assert opened.inbox.put(delivery)
    opened.run()
    return delivery.settled.result(0)


def test_a_signed_body_is_a_record_and_known_the_second_time() -> None:
    with box(key_field="ref", key_converter="string") as opened:
        body = b'{"ref": "main", "n": 1}'
        assert deliver(opened, github(body)) == Settlement("committed", records=1)
        assert deliver(opened, github(body)) == Settlement("known")
        assert deliver(opened, github(body, "2")).outcome == "committed"
        assert [(record.key, record.value["n"]) for record in opened.records("t")] == [("main", 1), ("main", 1)]


@pytest.mark.parametrize("number", ["123456789012345678901234567890", "0.12345678901234567890", "1.10", "1e5", "-7"])
def test_numbers_keep_their_digits(number: str) -> None:
    with box(key_field="n") as opened:
        assert deliver(opened, github(b'{"n": %b}' % number.encode())).outcome == "committed"
        (record,) = opened.records("t")
        assert Decimal(str(record.value["n"])) == Decimal(str(record.key)) == Decimal(number)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-hub-signature-256": "sha256=00"},
        {"x-hub-signature-256": signature(b"{}")},
        {"x-hub-signature-256": "sha256=" + signature(b"{}", secret="another")},
        {"x-hub-signature-256": "sha256=" + signature(b"{ }")},
        {"x-hub-signature-256": "sha256=é"},
    ],
)
def test_what_is_not_signed_is_refused_and_says_nothing_of_the_secret(headers: dict[str, str]) -> None:
    with box() as opened:
        settled = deliver(opened, Delivery(headers, b"{}"))
        assert settled.outcome == "refused"
        assert signature(b"{}") not in settled.why and SECRET not in settled.why
        assert opened.records("t") == []


@pytest.mark.parametrize(
    ("seconds", "outcome"),
    [(NOW_S, "committed"), (NOW_S - 300, "committed"), (NOW_S - 301, "refused"), (NOW_S + 301, "refused")],
)
def test_the_signed_time_of_stripe_is_near_ours(seconds: int, outcome: str) -> None:
    with box("stripe") as opened:
        assert deliver(opened, stripe(b"{}", seconds, f"v1={'0' * 64}", "v0=x")).outcome == outcome
        if outcome == "committed":
            assert deliver(opened, stripe(b"{}", seconds)).outcome == "known"


def test_schemes_of_others_are_settings() -> None:
    body = b'{"a": 1}'
    signed = (
        "v1,"
        + base64.b64encode(hmac.new(SECRET.encode(), f"{NOW_S}.".encode() + body, hashlib.sha512).digest()).decode()
    )
    settings = {"signature_header": "X-Sign", "signature_algorithm": "sha512", "signature_encoding": "base64",
                "signature_prefix": "v1,", "signature_timestamp_header": "X-Time"}  # fmt: skip
    with box("hmac", **settings) as opened:
        assert deliver(opened, Delivery({"x-sign": signed, "x-time": str(NOW_S)}, body)).outcome == "committed"
        for time in ("", "x", "９", "9" * 4000, str(NOW_S + 1)):
            assert deliver(opened, Delivery({"x-sign": signed, "x-time": time}, body)).outcome == "refused"
    with box("token", signature_header="X-Token") as opened:
        assert deliver(opened, Delivery({"x-token": SECRET}, body)).outcome == "committed"
        assert deliver(opened, Delivery({"x-token": SECRET + "x"}, body)).outcome == "refused"


@pytest.mark.parametrize(
    "body",
    [b"", b"{no json", b'{"a": NaN}', b'"\\ud800"', b"[" * 100_000, b"\xff\xfe{}", b'{"k": {"b": 1}}', b'{"k": "x"}',
     b"[" + b"1e15," * 199_000 + b"1]", b"[" + b"1.0e300," * 9_000 + b"1]", b"[" * 300 + b"]" * 300],
)  # fmt: skip
def test_a_body_of_which_no_record_can_be_made_is_answered_and_ends_nothing(body: bytes) -> None:
    with box(key_field="k", key_converter="long") as opened:
        assert deliver(opened, github(body)).outcome == "not meant"
        assert deliver(opened, github(b'{"k": 1}')).outcome == "committed"
        assert len(opened.records("t")) == 1


def test_the_lines_of_ndjson_are_written_together_or_not_at_all_and_raw_bytes_as_they_are() -> None:
    with box(format="ndjson") as opened:
        assert deliver(opened, github(b'{"a": 1}\n\r\n{"a": 2}\n')) == Settlement("committed", records=2)
        assert deliver(opened, github(b'{"a": 3}\nno', "2")).outcome == "not meant"
        assert [record.value["a"] for record in opened.records("t")] == [1, 2]
    with box(format="raw", value_converter="bytes") as opened:
        deliver(opened, github(b"\x00\xff"))
        assert opened.records("t")[0].value == b"\x00\xff"


@pytest.mark.parametrize("point", ["after_read", "after_records", "after_position", "after_commit"])
def test_a_delivery_that_is_sent_again_after_a_death_is_there_once(point: str) -> None:
    with box() as opened:
        first = github(b'{"n": 1}')
        opened.kill_at(point)
        assert opened.inbox.put(first)
        opened.run()
        assert opened.deaths == 1
        assert not first.settled.done()
        assert deliver(opened, github(b'{"n": 1}')).outcome == ("known" if point == "after_commit" else "committed")
        assert len(opened.records("t")) == 1


def test_what_waits_when_the_task_ends_is_to_be_sent_again_and_the_inbox_is_bounded() -> None:
    with box() as opened:
        waiting = [github(b"{}", str(number)) for number in range(1001)]
        assert [opened.inbox.put(delivery) for delivery in waiting] == [True] * 1000 + [False]
        opened.restart()
        assert {delivery.settled.result(0).outcome for delivery in waiting[:1000]} == {"unavailable"}
        assert not opened.inbox.put(github(b"{}"))
        assert opened.inbox.body_bytes_max is None


def test_a_sender_that_goes_away_ends_nothing() -> None:
    with box() as opened:
        gone = github(b"{}")
        assert opened.inbox.put(gone)
        gone.settled.cancel()
        opened.run()
        assert deliver(opened, github(b"{}")).outcome == "known"


def test_only_the_newest_names_are_kept() -> None:
    with box(delivery_ids_kept="2") as opened:
        for number in "123":
            deliver(opened, github(b"{}", number))
        assert deliver(opened, github(b"{}", "3")).outcome == "known"
        assert deliver(opened, github(b"{}", "1")).outcome == "committed"


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"signature.scheme": "none"}, "signature.scheme"),
        ({"signature.secret": ""}, "signature.secret"),
        ({"signature.scheme": "hmac"}, "signature.header"),
        ({"signature.algorithm": "md5"}, "signature.algorithm"),
        ({"replay.window.ms": "0"}, "replay.window.ms"),
        ({"max.body.bytes": "0"}, "max.body.bytes"),
    ],
)
def test_an_error_points_at_its_property(changed: dict[str, str], name: str) -> None:
    config = {"topic": "t", "signature.scheme": "github", "signature.secret": SECRET, **changed}
    with pytest.raises(InvalidConnector) as caught:
        read_settings(WebhookSettings, config)
    assert caught.value.setting == name


def test_a_task_that_cannot_begin_takes_no_deliveries(tmp_path: Path) -> None:
    """What opened the inbox is closed, though no life of the task has begun."""
    config = {
        "connector.class": "webhook", "topic": "t", "signature.scheme": "github", "signature.secret": SECRET,
        "topic.creation.default.partitions": "no",
    }  # fmt: skip
    transcoder: Any = None
    with open_log(tmp_path / "log", sync="never") as log:
        connectors = Connectors(log, transcoder, no_schemas, KnownSecrets(SecretVault(), dict), Catalog)
        try:
            connectors.start(ConnectorInfo("HOOKS", "SOURCE", config))
            eventually(lambda: connectors.status("HOOKS").tasks[0].state == "FAILED")
            inbox = connectors.inbox("HOOKS")
            assert inbox is not None and inbox.body_bytes_max is None
        finally:
            connectors.close()
