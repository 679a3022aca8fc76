"""POST /v1/complete and GET /v1/access: the keywords that may follow, and the rights of the user."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.errors import StatementError

from ...sql.expected import expected_keywords
from ..http.context import HttpContext, rights_of
from ..http.errors import BAD_REQUEST, RequestRefused
from ..http.requests import read_object
from ..http.statements import error_response, json_response
from ..security.access import Authenticator, Right, User

_TEXT_MAX: Final = 100_000
_VERBS: Final[tuple[Right, ...]] = ("read", "insert", "ddl", "group", "transaction")


class AssistRoutes:
    """In: `authenticator`: None if there are no users."""

    def __init__(self, context: HttpContext, authenticator: Authenticator | None) -> None:
        self._context = context
        self._authenticator = authenticator

    @property
    def routes(self) -> list[Route]:
        return [Route("/v1/complete", self.complete, methods=["POST"]), Route("/v1/access", self.access)]

    async def complete(self, request: Request) -> Response:
        """{sql: text before the cursor} → {keywords: […] or null}: null if the text before the cursor is invalid."""
        try:
            text = (await read_object(request, self._context.body_bytes_max)).get("sql")
            if not isinstance(text, str) or len(text) > _TEXT_MAX:
                raise RequestRefused(
                    BAD_REQUEST, f'the body needs a text under "sql", of at most {_TEXT_MAX} characters'
                )
            found = await self._context.workers.run(lambda: _keywords(text))
            return json_response({"keywords": found}, 200)
        except Exception as error:
            return error_response(error)

    async def access(self, request: Request) -> Response:
        """{user, administrator, rights}, and for administrators `users`, without passwords or hashes."""
        rights = rights_of(request.scope)
        found: dict[str, Any] = {"user": rights.name, "administrator": rights.everything}
        found["rights"] = {} if rights.user is None else _granted(rights.user)
        if self._authenticator is not None and rights.everything:
            found["users"] = [
                {"name": user.name, "administrator": user.is_administrator, "rights": _granted(user)}
                for user in self._authenticator.users()
            ]
        return json_response(found, 200)


def _keywords(text: str) -> list[str] | None:
    try:
        found = expected_keywords(text)
    except StatementError:  # inside a quoted text or name
        return None
    return None if found is None else sorted(found)


def _granted(user: User) -> dict[str, list[str]]:
    """The patterns of names, by right."""
    return {verb: sorted({pattern for role in user.roles for pattern in getattr(role, verb)}) for verb in _VERBS}
