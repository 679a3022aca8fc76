"""Plugins and their settings in the form of Kafka Connect's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ...executor.connect.connector_plugins import PLUGIN_VERSION, ConnectorPlugin, plugins, shown_names
from ...executor.connect.connector_secrets import shown_value
from ...executor.connect.connector_settings import ConnectorSetting, SettingProblem
from ...executor.connect.converters import CONVERTER_NAMES, SINK_CONVERTER_NAMES
from ...executor.connect.transforms import PREDICATE_NAMES, TRANSFORM_NAMES


def _common(name: str, type_: str, doc: str, default: str | None = None, *choices: str) -> ConnectorSetting:
    return ConnectorSetting(name, type_, doc, default is None, default, False, choices)


_GROUP: Final = "Common"
_COMMON: Final = (
    _common("name", "STRING", "Name of the connector."),
    _common("connector.class", "STRING", "The connector, by its name or that of the Java class that it replaces."),
    _common("tasks.max", "INT", "Tasks at most, up to 64.", "1"),
    _common("key.converter", "STRING", "How keys become bytes.", "json", *CONVERTER_NAMES),
    _common("value.converter", "STRING", "How values become bytes.", "json", *CONVERTER_NAMES),
    _common("transforms", "LIST", "Names of the transforms, in their order.", ""),
    _common("predicates", "LIST", "Names of the predicates that transforms name.", ""),
    _common("errors.tolerance", "STRING", "Whether records that cannot be converted end the task.", "none", "none",
            "all"),
)  # fmt: skip
"""Settings that all connectors have."""
_OF_SINKS: Final = (
    _common("topics", "LIST", "Topics that are read; or use topics.regex.", ""),
    _common("topics.regex", "STRING", "Regular expression of the names of topics that are read.", ""),
    _common("errors.deadletterqueue.topic.name", "STRING", "Topic for records that cannot be converted.", ""),
)


def plugin_list(*, connectors_only: bool) -> list[dict[str, Any]]:
    """The connectors; without `connectors_only` also the converters and the transforms, as configurations name them."""
    found = [(plugin.name, plugin.kind.lower()) for plugin in plugins()]
    if not connectors_only:
        found += [(name, "converter") for name in SINK_CONVERTER_NAMES]
        found += [(name, "transformation") for name in TRANSFORM_NAMES]
        found += [(name, "predicate") for name in PREDICATE_NAMES]
    return [{"class": name, "type": kind, "version": PLUGIN_VERSION} for name, kind in found]


def all_settings(plugin: ConnectorPlugin) -> list[ConnectorSetting]:
    """Its own settings, then those that all connectors have."""
    own = plugin.settings()
    names = {item.name for item in own}
    common = (*map(_for_sinks, _COMMON), *_OF_SINKS) if plugin.kind == "SINK" else _COMMON
    return [*own, *(item for item in common if item.name not in names)]


def _for_sinks(item: ConnectorSetting) -> ConnectorSetting:
    """Sinks have more converters."""
    return replace(item, choices=SINK_CONVERTER_NAMES) if item.choices == CONVERTER_NAMES else item


def definition(item: ConnectorSetting) -> dict[str, Any]:
    """Describes a setting as Connect does; fields without a meaning here have neutral values."""
    place = next((place for place, common in enumerate(_COMMON, 1) if common.name == item.name), -1)
    return {
        "name": item.name,
        "type": "PASSWORD" if item.secret else item.type,
        "required": item.required,
        "default_value": item.default,
        "importance": "HIGH" if item.required else "MEDIUM",
        "documentation": item.doc,
        "group": _GROUP if place > 0 else None,
        "order_in_group": place,
        "width": "MEDIUM",
        "display_name": item.name,
        "dependents": [],
    }


def validation(plugin: ConnectorPlugin, config: Mapping[str, str], problems: list[SettingProblem]) -> dict[str, Any]:
    """Each setting with its value and its errors. In: `config`: with the name."""
    errors: dict[str, list[str]] = {}
    for problem in problems:
        errors.setdefault(problem.name, []).append(problem.message)
    if not config.get("name"):
        errors["name"] = ["name is missing: Name of the connector."]
    shows, settings = shown_names(plugin.name), all_settings(plugin)
    configs = [
        {"definition": definition(item), "value": _value(item, config, errors, shown=shows(item.name))}
        for item in settings
    ]
    known = {item.name for item in settings}
    for name in errors:
        if name not in known:
            unknown = ConnectorSetting(name, "STRING", "It has no effect here.", False, None, False, ())
            configs.append({"definition": definition(unknown), "value": _value(unknown, config, errors, shown=False)})
    count = sum(map(len, errors.values()))
    return {"name": plugin.name, "error_count": count, "groups": [_GROUP], "configs": configs}


def refused_settings(problems: Sequence[str]) -> str:
    """The message of a refusal, which has all errors."""
    return (
        f"Connector configuration is invalid and contains the following {len(problems)} error(s):\n"
        + "\n".join(problems)
        + "\nYou can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    )


def _value(
    item: ConnectorSetting, config: Mapping[str, str], errors: Mapping[str, list[str]], *, shown: bool
) -> dict[str, Any]:
    given = item.first(config)
    given = item.default if given is None else given
    value = shown_value(item.name, given) if shown and given is not None else None
    found = errors.get(item.name, [])
    choices = list(item.choices)
    return {"name": item.name, "value": value, "recommended_values": choices, "errors": found, "visible": True}
