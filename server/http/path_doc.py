"""A row of the table of paths (`routes.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Needs = Literal["nothing", "user", "statement", "insert", "admin"]


@dataclass(frozen=True, slots=True)
class PathDoc:
    """`body`, `answer`, `error`: names in `openapi.SCHEMAS`. `statuses`: of answers of that shape. `needs`: the right
    that a user needs, if there are users."""

    path: str
    method: Literal["get", "post", "put", "delete", "patch"]
    summary: str
    answer: str = "Object"
    body: str | None = None
    body_types: tuple[str, ...] = ("application/json",)
    answer_types: tuple[str, ...] = ("application/json",)
    needs: Needs = "user"
    tag: str = "server"
    statuses: tuple[int, ...] = (200,)
    error: str = "Error"
    error_types: tuple[str, ...] = ("application/json",)
