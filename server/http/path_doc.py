"""What a line of the table of paths says (`routes.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Needs = Literal["nothing", "user", "statement", "insert", "admin"]


@dataclass(frozen=True, slots=True)
class PathDoc:
    """`body`, `answer`, `error`: names in `http_openapi.SCHEMAS`. `statuses`: that an answer of that shape has.
    `needs`: what a user must have, where there are users."""

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
