"""Statements about mirrors."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from millstream.errors import InvalidStatement, Span, StatementError, did_you_mean

from ...executor.connect.connector_secrets import is_secret_name, sealed_value, shown_value
from ...executor.connect.mirrors import state_of_mirror
from ...executor.connect.secret_vault import SecretKeyMissing
from ...logcore.mirrors.mirror_errors import InvalidMirror, MirrorOfItself
from ...planner.mirror_info import MirrorInfo
from ...sql.ast import ControlMirror, CreateMirror, Describe, Explain, Show
from ..catalog.commands import PutMirror, RemoveMirror
from ..engine.entities import CommandState, CurrentStatus, Entity, Warned
from ..engine.insight_entities import MirrorStall
from ..engine.mirror_entities import MirrorDescribed, MirroredPartitionLine, MirrorLine, MirrorList
from ..engine.request import Request
from ..insight.mirror_stall import mirror_causes
from ..security.statement_secrets import without_secrets
from .create import command_id
from .insight import cause_lines

_DONE: Final = {"PAUSE": "paused", "RESUME": "resumed"}


class UnknownMirror(StatementError):
    """No mirror has this name."""

    code = "UNKNOWN_MIRROR"


class MirrorExists(StatementError):
    """A mirror has this name already."""

    code = "MIRROR_EXISTS"


class InvalidMirrorSource(StatementError):
    """The source of a mirror is the log that it would copy to."""

    code = "INVALID_MIRROR_SOURCE"


def create_mirror(statement: CreateMirror, request: Request) -> list[Entity]:
    """CREATE MIRROR [IF NOT EXISTS] name FROM 'brokers' TOPICS 'names' [WITH (…)]. It checks the source without the
    engine's lock, because the source may be slow."""
    text = without_secrets(statement.text)
    if statement.name in request.catalog.mirrors:
        message = f"Mirror {statement.name} already exists"
        if statement.if_not_exists:
            return [Warned(statement_text=text, message=message)]
        hint = "DROP MIRROR removes it; its topics stay."
        raise MirrorExists(message, span=statement.span, hint=hint)
    if not request.log.capabilities.copies:
        raise InvalidStatement(
            "a mirror needs a log of Millstream's own: the brokers of others give records other offsets",
            span=statement.span,
            hint="Run a Millstream with an embedded log, and mirror to that.",
        )
    config = {
        name.lower(): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in statement.properties.items()
        if value is not None
    }
    info = MirrorInfo(statement.name, statement.brokers, statement.topics, config, text)
    try:
        request.mirrors.check_source(info)
    except MirrorOfItself as error:
        raise InvalidMirrorSource(error.message, span=statement.span, hint=error.hint) from None
    kept, warnings = _kept(info, request)
    with request.lock:
        if statement.name in request.catalog.mirrors:
            raise MirrorExists(f"Mirror {statement.name} already exists", span=statement.span)
        offset = request.store.submit(PutMirror(mirror=kept, statement=text))
    message = f"Mirror {info.name} copies from {info.brokers}."
    return [_done(text, info.name, "create", message, offset, warnings)]


def control_mirror(statement: ControlMirror, request: Request) -> list[Entity]:
    """PAUSE|RESUME|PROMOTE|DROP MIRROR name. It waits for running work without the engine's lock."""
    if statement.action == "DROP" and statement.if_exists and statement.name not in request.catalog.mirrors:
        return [Warned(statement_text=statement.text, message=f"Mirror '{statement.name}' does not exist.")]
    try:
        with request.mirrors.changing(_found(statement.name, request, statement.span).name):
            known = _found(statement.name, request, statement.span)
            return (
                _drop_mirror(known, statement, request)
                if statement.action == "DROP"
                else _become(known, statement, request)
            )
    except InvalidMirror as error:
        raise InvalidStatement(error.message, span=statement.span, hint=error.hint) from None


def _become(known: MirrorInfo, statement: ControlMirror, request: Request) -> list[Entity]:
    """PAUSE, RESUME or PROMOTE. In: `known`: no other statement changes it meanwhile."""
    if known.state == "PROMOTED":
        raise InvalidStatement(
            f"Mirror {known.name} is promoted: its topics are written here, and it copies nothing any more",
            span=statement.span,
            hint="To copy again, DROP MIRROR, and CREATE MIRROR with 'existing.topics'='adopt'.",
        )
    warnings: list[str] = []
    if statement.action == "PROMOTE":
        left = request.mirrors.last_pass(known)
        changed, message = replace(known, state="PROMOTED"), f"Mirror {known.name} promoted: its topics can be written."
        if left is not None:
            warnings.append(f"Not all of the source may be here: {left}")
    else:
        changed = replace(known, state="PAUSED" if statement.action == "PAUSE" else "RUNNING")
        message = f"Mirror {known.name} {_DONE[statement.action]}."
    offset = _submit(PutMirror(mirror=changed, statement=statement.text), known, request)
    return [_done(statement.text, known.name, statement.action.lower(), message, offset, warnings)]


def _drop_mirror(known: MirrorInfo, statement: ControlMirror, request: Request) -> list[Entity]:
    """DROP MIRROR [IF EXISTS] name. Its topics stay and become writable."""
    request.mirrors.stop(known.name)
    offset = _submit(RemoveMirror(name=known.name, statement=statement.text), known, request)
    return [_done(statement.text, known.name, "drop", f"Mirror {known.name} dropped; its topics stay.", offset)]


def _submit(command: PutMirror | RemoveMirror, known: MirrorInfo, request: Request) -> int:
    """Writes the command. If that fails, a mirror that was stopped for it continues."""
    try:
        with request.lock:
            return request.store.submit(command)
    except BaseException:
        kept = request.catalog.mirrors.get(known.name)
        if kept is not None and request.mirrors.status(kept).state == "STOPPED":
            request.mirrors.begin_anew(kept)
        raise


def show_mirrors(statement: Show, request: Request) -> Entity:
    """SHOW MIRRORS."""
    lines = [_line(info, request) for _, info in sorted(request.catalog.mirrors.items())]
    return MirrorList(statement_text=statement.text, mirrors=lines)


def describe_mirror(statement: Describe, request: Request) -> Entity:
    """DESCRIBE MIRROR name."""
    info = _found(statement.name or "", request, statement.span)
    status = request.mirrors.status(info)
    board = status.board
    return MirrorDescribed(
        statement_text=statement.text,
        mirror=_line(info, request),
        partitions=[
            MirroredPartitionLine(*where, found.end_offset, found.lag, found.phase, found.error)
            for where, found in sorted(board.partitions.items())
        ],
        refused=dict(board.refused),
        records=board.records,
        bytes=board.bytes,
        group_offsets=board.offsets_of_groups,
        restarts=0 if status.task is None else status.task.restarts,
        config={name: shown_value(name, value) for name, value in info.config.items()},
    )


def stalled_mirror(statement: Explain, request: Request) -> Entity:
    """EXPLAIN STALL MIRROR name."""
    info = _found(statement.mirror or "", request, statement.span)
    causes = mirror_causes(info, request.mirrors.status(info), time.time_ns() // 1_000_000)
    return MirrorStall(
        statement_text=statement.text,
        mirror=info.name,
        state=_line(info, request).state,
        stalled=any(cause.blocks for cause in causes),
        causes=cause_lines(causes),
    )


def _found(name: str, request: Request, span: Span | None) -> MirrorInfo:
    known = request.catalog.mirrors.get(name)
    if known is None:
        hint = did_you_mean(name, request.catalog.mirrors) or "SHOW MIRRORS lists them."
        raise UnknownMirror(f"Mirror {name} does not exist", span=span, hint=hint)
    return known


def _line(info: MirrorInfo, request: Request) -> MirrorLine:
    status = request.mirrors.status(info)
    board = status.board
    return MirrorLine(
        info.name,
        state_of_mirror(info, status),
        info.config.get("mode", "exact").lower(),
        info.brokers,
        list(info.topics),
        len(board.partitions),
        board.lag,
        round(board.bytes_per_s),
        status.error,
    )


def _kept(info: MirrorInfo, request: Request) -> tuple[MirrorInfo, list[str]]:
    """The mirror for the command topic, with encrypted secrets, and a warning for each secret that the statement
    contains in plain text."""
    vault, kept, warnings = request.mirrors.known_secrets.vault, dict(info.config), list[str]()
    for name, value in info.config.items():
        try:
            kept[name], where = sealed_value(name, value, vault, secret=False), "It was sealed"
        except SecretKeyMissing as error:
            where = f"It is in the command topic, readable, because {error.message}"
        if kept[name] != value or (where != "It was sealed" and is_secret_name(name)):
            warnings.append(
                f"{name} is written out in the statement. {where}. CREATE SECRET keeps a value out of statements;"
                " '${secret:name}' refers to it."
            )
    return replace(info, config=kept), warnings


def _done(
    text: str, name: str, action: str, message: str, offset: int, warnings: list[str] | None = None
) -> CurrentStatus:
    return CurrentStatus(
        statement_text=text,
        command_id=command_id("mirror", name, action),
        command_status=CommandState("SUCCESS", message),
        command_sequence_number=offset,
        warnings=list(warnings or ()),
    )
