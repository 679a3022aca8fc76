"""Answers of statements, as text for people: one function for each kind of answer, found by its `@type`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .connector_text import created_lines, described_lines, dropped_lines
from .insight_text import graph_lines, lineage_lines, stall_lines
from .mirror_text import mirror_lines, mirror_table
from .tables import cell_text, printable, render_table

Entity = Mapping[str, Any]
Lines = list[str]


def entity_lines(entity: Entity, width_max: int | None, *, colour: bool = False) -> Lines:
    """In: `width_max`: the greatest width of a table; None for no limit. `colour`: whether it is for a terminal."""
    table = entity_table(entity)
    if table is not None:
        return [*render_table(*table, width_max, colour=colour), *warning_lines(entity)]
    kind = entity.get("@type", "")
    if kind in _TEXTS:
        return [*_TEXTS[kind](entity, width_max), *warning_lines(entity)]
    return [*map(printable, json.dumps(entity, indent=2, default=str).splitlines()), *warning_lines(entity)]


def entity_table(entity: Entity) -> tuple[Sequence[str], list[Sequence[Any]]] | None:
    """The titles and rows of an answer that is a single table."""
    table = _TABLES.get(entity.get("@type", ""))
    return None if table is None else table(entity)


def warning_lines(entity: Entity) -> Lines:
    return [f"warning: {printable(str(warning['message']))}" for warning in entity.get("warnings", ())]


# ------------------------------------------------------------------ answers that are one table

TableOf = Callable[[Entity], tuple[Sequence[str], list[Sequence[Any]]]]


def _columns(member: str, **by_title: str | Callable[[Entity], Any]) -> TableOf:
    """A table of the objects in `member`: maps each title to a field name, or to a function that makes the cell."""

    def table(entity: Entity) -> tuple[Sequence[str], list[Sequence[Any]]]:
        rows: list[Sequence[Any]] = [
            [field(item) if callable(field) else item.get(field) for field in by_title.values()]
            for item in entity[member]
        ]
        return [title.replace("_", " ") for title in by_title], rows

    return table


def _joined(field: str) -> Callable[[Entity], str]:
    return lambda item: ", ".join(map(str, item[field]))


def _queries(entity: Entity) -> tuple[Sequence[str], list[Sequence[Any]]]:
    """Has a column for details only if a query has any: an error, or how much is left before it reads new records."""
    detail = (
        {"Detail": lambda query: query.get("detail") or ""}
        if any(query.get("detail") for query in entity["queries"])
        else {}
    )
    table = _columns(
        "queries",
        Query_ID="id",
        Type="queryType",
        State="state",
        **detail,
        Executor=lambda query: query.get("executor") or "",
        Sink=_joined("sinks"),
        Topic=_joined("sinkKafkaTopics"),
        Statement="queryString",
    )
    return table(entity)


_SOURCES: dict[str, str | Callable[[Entity], Any]] = {
    "Name": "name", "Topic": "topic", "Key_format": "keyFormat", "Value_format": "valueFormat", "Windowed": "isWindowed"
}  # fmt: skip
_TOPICS: dict[str, str | Callable[[Entity], Any]] = {
    "Topic": "name",
    "Partitions": lambda item: len(item["replicaInfo"]),
    "Replicas": lambda item: max(item["replicaInfo"], default=0),
}

_TABLES: dict[str, TableOf] = {
    "streams": _columns("streams", **_SOURCES),
    "tables": _columns("tables", **_SOURCES),
    "kafka_topics": _columns("topics", **_TOPICS),
    "kafka_topics_extended": _columns("topics", **_TOPICS, Consumers="consumerCount", Groups="consumerGroupCount"),
    "queries": _queries,
    "connector_list": _columns("connectors", Connector="name", Type="type", Class="className", State="state"),
    "connector_plugins_list": _columns(
        "connectorPlugins", Class="className", Type="type", Version="version", Meaning="description"
    ),
    "mirror_list": mirror_table,
    "secret_list": _columns("secrets", Secret="name"),
    "function_names": _columns("functions", Function="name", Type="type", Category="category"),
    "properties": _columns("properties", Property="name", Value="value", Level="level", Meaning="description"),
    "variables": _columns("variables", Variable="name", Value="value"),
    "type_list": lambda entity: (
        ["Type", "Schema"],
        [[name, type_text(schema)] for name, schema in entity["types"].items()],
    ),
}


# ------------------------------------------------------------------ answers that are text


def _status(entity: Entity, width_max: int | None) -> Lines:
    del width_max
    return [printable(str(entity["commandStatus"]["message"]))]


def _warned(entity: Entity, width_max: int | None) -> Lines:
    del width_max
    return [f"warning: {printable(str(entity['message']))}"]


def _deleted(entity: Entity, width_max: int | None) -> Lines:
    del width_max
    count = entity["count"]
    return [f"{count} {'row' if count == 1 else 'rows'} deleted from {printable(str(entity['sourceName']))}"]


def _asserted(entity: Entity, width_max: int | None) -> Lines:
    del width_max
    return [f"Topic {printable(str(entity['topicName']))} {'exists' if entity['exists'] else 'does not exist'}."]


def _asserted_schema(entity: Entity, width_max: int | None) -> Lines:
    del width_max
    named = [f"subject name {entity['subject']}"] if entity["subject"] is not None else []
    named += [f"id {entity['id']}"] if entity["id"] is not None else []
    return [f"Schema with {printable(' and '.join(named))} {'exists' if entity['exists'] else 'does not exist'}."]


def _source(description: Entity, width_max: int | None) -> Lines:
    lines = _facts(
        ("Name", description["name"]),
        ("Type", description["type"]),
        ("Topic", f"{description['topic']} ({description['partitions']} partitions)"),
        ("Formats", f"key {description['keyFormat']}, value {description['valueFormat']}"),
        ("Timestamp", description["timestamp"] or None),
        ("Window", description["windowType"]),
        ("Statement", description["statement"] or None),
    )
    lines += ["", *_fields(description["fields"], width_max)]
    for title, member in (("Read by", "readQueries"), ("Written by", "writeQueries")):
        queries = [f"{query['id']} ({_state_and_place(query)})" for query in description[member]]
        lines += _facts((title, ", ".join(queries) or None))
    offsets = description["queryOffsetSummaries"]
    if offsets:
        members = ("queryId", "topic", "partition", "position", "lag")
        rows = [[item[member] for member in members] for item in offsets]
        lines += ["", *render_table(["Query ID", "Topic", "Partition", "Position", "Lag"], rows, width_max)]
    statistics = [description["statistics"], description["errorStats"]] if description["extended"] else []
    return lines + [printable(text) for text in statistics if text]


def _state_and_place(query: Entity) -> str:
    executor = query.get("executor")  # earlier servers do not report it
    return f"{query['state']} on {executor}" if executor else str(query["state"])


def _query(description: Entity, width_max: int | None) -> Lines:
    lines = _facts(
        ("Query ID", description["id"] or None),
        ("Type", description["queryType"]),
        ("State", description["state"]),
        ("Executor", description.get("executor")),
        ("Reads", ", ".join(description["sources"])),
        ("Writes", ", ".join(description["sinks"]) or None),
        ("Statement", description["statementText"]),
        ("Properties", description["overriddenProperties"] or None),
        ("Counts", description["metrics"] or None),
    )
    lines += ["", *_fields(description["fields"], width_max)]
    for error in description["queryErrors"]:
        lines.append(f"error: {printable(str(error))}")
    return [*lines, "", *map(printable, str(description["executionPlan"]).splitlines())]


def _function(entity: Entity, width_max: int | None) -> Lines:
    del width_max
    lines = _facts(("Function", entity["name"]), ("Type", entity["type"]))
    lines += ["", *map(printable, str(entity["description"]).splitlines()), ""]
    for signature in entity["functions"]:
        arguments = ", ".join(
            f"{argument['name']} {argument['type']}{', …' if argument['isVariadic'] else ''}"
            for argument in signature["arguments"]
        )
        lines.append(f"  {entity['name']}({arguments}) -> {signature['returnType']}")
    examples = entity.get("examples") or {}
    return [*lines, "", *(f"  {printable(call)} = {printable(str(result))}" for call, result in examples.items())]


def _each(member: str, of: Callable[[Entity, int | None], Lines]) -> Callable[[Entity, int | None], Lines]:
    def texts(entity: Entity, width_max: int | None) -> Lines:
        lines: Lines = []
        for item in entity[member]:
            lines += [*([""] if lines else []), *of(item, width_max)]
        return lines

    return texts


_TEXTS: dict[str, Callable[[Entity, int | None], Lines]] = {
    "currentStatus": _status,
    "warning_entity": _warned,
    "rows_deleted": _deleted,
    "assert_topic": _asserted,
    "assert_schema": _asserted_schema,
    "sourceDescription": lambda entity, width_max: _source(entity["sourceDescription"], width_max),
    "source_descriptions": _each("sourceDescriptions", _source),
    "queryDescription": lambda entity, width_max: _query(entity["queryDescription"], width_max),
    "query_descriptions": _each("queryDescriptions", _query),
    "describe_function": _function,
    "connector_info": created_lines,
    "connector_description": described_lines,
    "drop_connector": dropped_lines,
    "mirror_description": mirror_lines,
    "query_stall": stall_lines,
    "mirror_stall": stall_lines,
    "connector_stall": stall_lines,
    "lineage": lineage_lines,
    "graph": graph_lines,
}


# ------------------------------------------------------------------ parts


def _facts(*pairs: tuple[str, Any]) -> Lines:
    """`Name : value` for each value that is not None."""
    return [f"{title:<10}: {cell_text(value)}" for title, value in pairs if value is not None]


def _fields(fields: Iterable[Entity], width_max: int | None) -> Lines:
    rows = [
        [field["name"], type_text(field["schema"]), {"KEY": "key", "HEADER": "header"}.get(field.get("type") or "", "")]
        for field in fields
    ]
    return render_table(["Column", "Type", ""], rows, width_max)


def type_text(schema: Entity) -> str:
    """The type as text, such as `ARRAY<STRUCT<A INTEGER>>`."""
    kind = str(schema["type"])
    match kind:
        case "ARRAY":
            return f"ARRAY<{type_text(schema['memberSchema'])}>"
        case "MAP":
            return f"MAP<STRING, {type_text(schema['memberSchema'])}>"
        case "STRUCT":
            members = (f"{field['name']} {type_text(field['schema'])}" for field in schema["fields"] or ())
            return f"STRUCT<{', '.join(members)}>"
        case "DECIMAL":
            parameters = schema.get("parameters") or {}
            return f"DECIMAL({parameters.get('precision')}, {parameters.get('scale')})"
        case _:
            return kind
