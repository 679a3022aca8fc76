"""Answers about connectors, as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .tables import cell_text, printable, render_table

_Connector = Mapping[str, Any]


def created_lines(entity: _Connector, width_max: int | None) -> list[str]:
    """Answer of CREATE and ALTER CONNECTOR."""
    del width_max
    info = entity["info"]
    count = len(info["tasks"])
    return [f"Connector {printable(str(info['name']))} runs, with {count} {'task' if count == 1 else 'tasks'}."]


def dropped_lines(entity: _Connector, width_max: int | None) -> list[str]:
    del width_max
    return [f"Dropped connector {printable(str(entity['connectorName']))}."]


def described_lines(entity: _Connector, width_max: int | None) -> list[str]:
    """Answer of DESCRIBE CONNECTOR: the states of the tasks, then the settings. A ksqlDB server reports less."""
    status = entity["status"]
    facts = {
        "Name": status["name"],
        "Class": entity["connectorClass"],
        "Type": status["type"],
        "State": status["connector"]["state"],
        "Error": status["connector"].get("trace"),
        "Guarantee": entity.get("guarantee"),
        "Topics": ", ".join(entity["topics"]) or None,
        "Sources": ", ".join(source["name"] for source in entity["sources"]) or None,
    }
    lines = [f"{title:<10}: {cell_text(value)}" for title, value in facts.items() if value is not None]
    figures = {item["id"]: item for item in entity.get("taskFigures", ())}
    rows = [_task(task, figures.get(task["id"], {})) for task in status["tasks"]]
    lines += ["", *render_table(["Task", "State", "Records", "Lag", "Restarts", "Error"], rows, width_max)]
    settings = [[name, value] for name, value in sorted(entity.get("config", {}).items())]
    return [*lines, "", *render_table(["Setting", "Value"], settings, width_max)]


def _task(task: _Connector, figures: _Connector) -> list[Any]:
    shown = [figures.get(name) for name in ("records", "lag", "restarts")]
    return [task["id"], task["state"], *shown, task.get("trace") or ""]
