"""CREATE SECRET, DROP SECRET and SHOW SECRETS. Values are encrypted before they are written, and never returned."""

from __future__ import annotations

from millstream.errors import InvalidStatement

from ...executor.connect.connector_secrets import secrets_of
from ...executor.connect.secret_vault import SecretKeyMissing, found_secret
from ...planner.connector_info import SecretInfo
from ...sql.ast import CreateSecret, DropSecret, Show
from ..catalog.commands import PutSecret, RemoveSecret
from ..engine.entities import CommandState, CurrentStatus, Entity, SecretLine, SecretList, Warned
from ..engine.request import Request
from ..security.statement_secrets import without_secrets
from .connectors import settled
from .create import command_id

_BYTES_MAX = 64 * 1024


class SecretKeyUnusable(InvalidStatement):
    """This server cannot encrypt a secret: its key is missing or wrong."""

    code = "SECRET_KEY_UNUSABLE"


def create_secret(statement: CreateSecret, request: Request) -> list[Entity]:
    """CREATE [OR REPLACE] SECRET [IF NOT EXISTS] name [WITH] (key = 'value', …)."""
    return settled(lambda: _created(statement, request), request, lambda: _users(statement.name, request))


def _created(statement: CreateSecret, request: Request) -> list[Entity]:
    text = without_secrets(statement.text)
    known = statement.name in request.catalog.secrets
    if known and not statement.or_replace:
        message = f"Secret '{statement.name}' already exists"
        if statement.if_not_exists:
            return [Warned(statement_text=text, message=message)]
        raise InvalidStatement(message, span=statement.span, hint="CREATE OR REPLACE SECRET gives it another value.")
    try:
        sealed = request.connectors.known_secrets.vault.seal(statement.name, _values(statement))
    except SecretKeyMissing as error:
        raise SecretKeyUnusable(error.message, span=statement.span, hint=error.hint) from None
    secret = SecretInfo(statement.name, sealed)
    users = _users(statement.name, request)
    offset = request.store.submit(PutSecret(secret=secret, statement=text))
    anew = f"; {', '.join(users)} began anew with it" if known and users else ""
    message = f"Secret {statement.name} was {'replaced' if known else 'created'}{anew}"
    return [_done(text, statement.name, "create", message, offset)]


def drop_secret(statement: DropSecret, request: Request) -> list[Entity]:
    """DROP SECRET [IF EXISTS] name; refused while a connector refers to it."""
    if statement.if_exists and statement.name not in request.catalog.secrets:
        return [Warned(statement_text=statement.text, message=f"Secret '{statement.name}' does not exist.")]
    found_secret(statement.name, request.catalog.secrets)
    users = _users(statement.name, request)
    if users:
        raise InvalidStatement(
            f"Cannot drop secret {statement.name}: the following connectors refer to it: [{', '.join(users)}].",
            span=statement.span,
            hint=f"Drop or alter them first, as in: DROP CONNECTOR {users[0]};",
        )
    offset = request.store.submit(RemoveSecret(name=statement.name, statement=statement.text))
    return [_done(statement.text, statement.name, "drop", f"Dropped secret '{statement.name}'", offset)]


def show_secrets(statement: Show, request: Request) -> Entity:
    """SHOW SECRETS."""
    lines = [SecretLine(name) for name in sorted(request.catalog.secrets)]
    return SecretList(statement_text=statement.text, secrets=lines)


def _values(statement: CreateSecret) -> dict[str, str]:
    """The values by key, in lower case. Errors never contain values."""
    values: dict[str, str] = {}
    for key, value in statement.values.items():
        lower = key.lower()
        if lower in values:
            raise InvalidStatement("a key of the secret is given twice", span=statement.span)
        if not isinstance(value, str) or not value:
            raise InvalidStatement(
                "a value of the secret is not a text, or is empty", span=statement.span, hint="Write it in quotes."
            )
        values[lower] = value
    if sum(map(len, values.values())) > _BYTES_MAX:
        raise InvalidStatement(f"a secret has {_BYTES_MAX} letters at most", span=statement.span)
    return values


def _users(name: str, request: Request) -> list[str]:
    connectors = request.catalog.connectors.values()
    return sorted(connector.name for connector in connectors if name in secrets_of(connector.config))


def _done(text: str, name: str, action: str, message: str, offset: int) -> CurrentStatus:
    return CurrentStatus(
        statement_text=text,
        command_id=command_id("secret", name, action),
        command_status=CommandState("SUCCESS", message),
        command_sequence_number=offset,
    )
