"""A route whose names may contain slashes, sent as %2F. A slash at the end of the path is left out."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from starlette.routing import Match, Route
from starlette.types import Scope

_SLASH: Final = "\ufdd0"
"""A noncharacter that replaces encoded slashes during matching."""


class EncodedRoute(Route):
    """Matches the path as it was sent: in the decoded path, %2F and / cannot be told apart."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        raw = scope.get("raw_path") or b""
        if b"%2f" not in raw.lower():
            return super().matches({**scope, "path": scope["path"].removesuffix("/") or "/"})
        sent = raw.decode("ascii", "replace").replace("%2F", "%2f")
        path = _SLASH.join(unquote(part) for part in sent.split("%2f"))
        found, child = super().matches({**scope, "path": path.removesuffix("/")})
        if "path_params" in child:
            names = {name: value.replace(_SLASH, "/") for name, value in child["path_params"].items()}
            child = {**child, "path_params": names}
        return found, child
