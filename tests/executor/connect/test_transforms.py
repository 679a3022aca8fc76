"""Single message transforms."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.executor.connect.connector import ConnectRecord
from millstream.executor.connect.connector_errors import ConnectorFailed, InvalidConnector
from millstream.executor.connect.transforms import (
    Reshaped,
    named_transforms,
    reshaped,
    routed,
    transformed,
    transforms_of,
)

ROW = {"id": 1, "name": "ada", "vip": True}


def apply(record: ConnectRecord, **settings: str) -> ConnectRecord | None:
    config = {f"transforms.t.{name.replace('__', '.')}": value for name, value in settings.items()}
    return transformed(record, transforms_of({"transforms": "t", **config}))


def value(settings: dict[str, str], given: Any = ROW) -> Any:
    found = apply(ConnectRecord("t", {"id": 1}, given, 1_700_000_000_000), **settings)
    return None if found is None else found.value


@pytest.mark.parametrize(
    ("envelope", "row"),
    [
        ({"before": None, "after": ROW, "op": "c"}, ROW),
        ({"before": None, "after": ROW, "op": "r"}, ROW),
        ({"before": ROW, "after": None, "op": "d"}, None),
        (ROW, ROW),
    ],
)
def test_unwrap_gives_the_row_or_a_tombstone(envelope: Any, row: Any) -> None:
    found = transformed(ConnectRecord("t", 1, envelope), transforms_of({"transforms": "unwrap"}))
    assert found is not None
    assert found.value == row


def test_unwrap_gives_one_tombstone_for_a_delete() -> None:
    assert transformed(ConnectRecord("t", 1, None), transforms_of({"transforms": "unwrap"})) is None


@pytest.mark.parametrize(("mode", "given"), [("drop", None), ("rewrite", {"id": 1, "__deleted": "true"})])
def test_a_delete_can_be_dropped_or_marked(mode: str, given: Any) -> None:
    settings = {"type": "ExtractNewRecordState", "delete__tombstone__handling__mode": mode}
    assert value(settings, {"before": {"id": 1}, "after": None, "op": "d"}) == given


DELETE = {"before": {"id": 1}, "after": None, "op": "d"}
MARKED = {"id": 1, "__deleted": "true"}


@pytest.mark.parametrize(
    ("options", "after_delete", "keeps_tombstone"),
    [
        ({"delete__tombstone__handling__mode": "rewrite-with-tombstone"}, MARKED, True),
        ({"drop__tombstones": "false"}, None, False),
        ({"drop__tombstones": "false", "delete__handling__mode": "rewrite"}, MARKED, True),
        ({"delete__handling__mode": "rewrite"}, MARKED, False),
        ({"delete__handling__mode": "none"}, None, False),
    ],
)
def test_deletes_by_the_options_of_each_version(
    options: dict[str, str], after_delete: Any, keeps_tombstone: bool
) -> None:
    settings = {"type": "ExtractNewRecordState", **options}
    found = apply(ConnectRecord("t", 1, DELETE), **settings)
    assert found is not None and found.value == after_delete
    assert (apply(ConnectRecord("t", 1, None), **settings) is not None) == keeps_tombstone


def test_a_delete_is_dropped_where_its_tombstone_was_to_be_dropped_too() -> None:
    assert apply(ConnectRecord("t", 1, DELETE), type="ExtractNewRecordState", delete__handling__mode="drop") is None


def test_a_row_says_that_it_is_not_deleted_where_deletes_are_rows() -> None:
    settings = {"type": "ExtractNewRecordState", "drop__tombstones": "false", "delete__handling__mode": "rewrite"}
    assert value(settings, {"before": None, "after": {"id": 1}, "op": "u"}) == {"id": 1, "__deleted": "false"}


def test_options_of_two_versions_at_once_are_refused() -> None:
    options = {"delete__tombstone__handling__mode": "drop", "drop__tombstones": "true"}
    with pytest.raises(InvalidConnector, match=r"replaces delete\.handling\.mode"):
        value({"type": "ExtractNewRecordState", **options})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"type": "Filter", "field": "name", "value": "ada,bob"}, ROW),
        ({"type": "Filter", "field": "name", "value": "eve"}, None),
        ({"type": "Filter", "field": "name", "value": "ada", "mode": "exclude"}, None),
        ({"type": "Filter", "field": "vip", "value": "true"}, ROW),
        ({"type": "Filter$Key", "field": "id", "value": "2"}, None),
        ({"type": "MaskField", "fields": "id,name"}, {"id": 0, "name": "", "vip": True}),
        ({"type": "org.apache.kafka.connect.transforms.MaskField$Value", "fields": "name", "replacement": "x"},
         {**ROW, "name": "x"}),
        ({"type": "InsertField", "static__field": "from", "static__value": "pg"}, {**ROW, "from": "pg"}),
        ({"type": "InsertField", "topic__field": "topic", "timestamp__field": "at"},
         {**ROW, "topic": "t", "at": 1_700_000_000_000}),
        ({"type": "HoistField", "field": "row"}, {"row": ROW}),
        ({"type": "ExtractField", "field": "name"}, "ada"),
    ],
)  # fmt: skip
def test_a_transform_changes_the_value(settings: dict[str, str], expected: Any) -> None:
    assert value(settings) == expected


@pytest.mark.parametrize(
    ("settings", "topic"),
    [
        ({"type": "RegexRouter", "regex": r"(\w+)\.public\.(.*)", "replacement": "$1_$2"}, "pg_orders"),
        ({"type": "RegexRouter", "regex": "public", "replacement": "x"}, "pg.public.orders"),
        ({"type": "RegexRouter", "regex": r"(\w+)\.(.*)", "replacement": "$2.$12"}, "public.orders.pg2"),
        ({"type": "RegexRouter", "regex": "(x)?.*", "replacement": "a$1$0"}, "apg.public.orders"),
        ({"type": "RegexRouter", "regex": "(.*)", "replacement": r"\$1\g<1>\\"}, "$1g<1>\\"),
        ({"type": "TimestampRouter", "timestamp__format": "yyyy-MM"}, "pg.public.orders-2023-11"),
    ],
)
def test_a_router_changes_the_topic(settings: dict[str, str], topic: str) -> None:
    found = apply(ConnectRecord("pg.public.orders", 1, ROW, 1_700_000_000_000), **settings)
    assert found is not None
    assert found.topic == topic


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "transforms.t.type is missing"),
        ({"type": "Nothing"}, 'is "Nothing", but the transforms are ExtractNewRecordState'),
        ({"type": "RegexRouter", "regex": "(", "replacement": ""}, "transforms.t.regex is no regular expression"),
        ({"type": "RegexRouter", "regex": "(a)", "replacement": "$2"}, "transforms.t.replacement refers to $2, but"),
        ({"type": "MaskField"}, "transforms.t.fields is missing"),
        ({"type": "Filter", "field": "a", "value": "b", "mode": "c"}, 'transforms.t.mode is "c"'),
        ({"type": "TimestampRouter", "timestamp__format": "QQ"}, 'transforms.t.timestamp.format has "QQ"'),
        ({"type": "InsertField"}, "transforms.t.static.field is missing"),
    ],
)
def test_a_wrong_transform_names_its_setting(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConnector) as caught:
        apply(ConnectRecord("t", 1, ROW), **settings)
    assert message in caught.value.message
    assert (caught.value.setting or "").startswith("transforms.t.")


# ------------------------------------------------------------------ predicates

PREDICATES = {
    "topic": {"type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches", "pattern": "orders-.*"},
    "header": {"type": "HasHeaderKey", "name": "traced"},
    "tombstone": {"type": "RecordIsTombstone"},
}


def conditional(predicate: str, **settings: str) -> dict[str, str]:
    given = {f"transforms.t.{name}": value for name, value in settings.items()}
    predicates = {
        f"predicates.{name}.{option}": text for name, options in PREDICATES.items() for option, text in options.items()
    }
    named = {"transforms": "t", "transforms.t.predicate": predicate, "predicates": "topic, header,tombstone"}
    return named | given | predicates


@pytest.mark.parametrize(
    ("predicate", "holds"),
    [("topic", [True, False, False]), ("header", [False, True, False]), ("tombstone", [False, False, True])],
)
@pytest.mark.parametrize("negate", ["false", "true"])
def test_a_transform_is_for_the_records_that_its_predicate_holds_for(
    predicate: str, holds: list[bool], negate: str
) -> None:
    records = [
        ConnectRecord("orders-1", {"id": 1}, ROW),
        ConnectRecord("my-orders-1", {"id": 1}, ROW, headers=(("traced", None),)),
        ConnectRecord("orders", {"id": 1}, None, headers=(("Traced", b"1"),)),
    ]
    extracted = transforms_of(conditional(predicate, type="ExtractField$Key", field="id", negate=negate))
    found = [transformed(record, extracted) for record in records]
    keys = [None if record is None else record.key for record in found]
    assert keys == [1 if each is (negate == "false") else {"id": 1} for each in holds]
    dropped = transforms_of(conditional(predicate, type="org.apache.kafka.connect.transforms.Filter", negate=negate))
    kept = [transformed(record, dropped) is not None for record in records]
    assert kept == [each is not (negate == "false") for each in holds]


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"transforms.t.predicate": "other"}, "transforms.t.predicate"),
        ({"predicates": ""}, "transforms.t.predicate"),
        ({"transforms.t.negate": "no"}, "transforms.t.negate"),
        ({"predicates.topic.type": "TopicNameMatch"}, "predicates.topic.type"),
        ({"predicates.topic.pattern": "("}, "predicates.topic.pattern"),
    ],
)
def test_a_wrong_predicate_is_refused_by_its_setting(settings: dict[str, str], setting: str) -> None:
    config = conditional("topic", type="ExtractField$Key", field="id") | settings
    with pytest.raises(InvalidConnector) as refused:
        transforms_of(config)
    assert refused.value.setting == setting


def test_negate_needs_a_predicate() -> None:
    config = {"transforms": "t", "transforms.t.type": "Filter", "transforms.t.field": "id", "transforms.t.value": "1"}
    with pytest.raises(InvalidConnector, match="negate needs"):
        transforms_of(config | {"transforms.t.negate": "true"})


def test_rows_that_only_some_records_are_changed_to_have_no_declared_shape() -> None:
    unwrapped = conditional("topic", type="ExtractNewRecordState")
    assert reshaped(unwrapped) == Reshaped(value=True, key=True)
    assert named_transforms(unwrapped) == ("ExtractNewRecordState with a predicate",)
    assert reshaped(conditional("tombstone", type="Filter")) == Reshaped()


def test_a_router_with_a_predicate_about_the_topic_says_where_records_go() -> None:
    router = {"type": "RegexRouter", "regex": "(.*)", "replacement": "new-$1"}
    by_topic = [routed(topic, conditional("topic", **router)) for topic in ("orders-1", "orders")]
    assert by_topic == ["new-orders-1", "orders"]
    with pytest.raises(ConnectorFailed):
        routed("orders-1", conditional("header", **router))
