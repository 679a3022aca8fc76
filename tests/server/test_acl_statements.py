"""ACLs of topics at SQL's door: statements that they allow and deny, and what is seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import pytest

from millstream.logcore.log_settings import ACLS
from millstream.logcore.protocol.security.acl_bindings import (
    AclBinding,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from millstream.logcore.protocol.security.acl_table import KeptAcls
from millstream.logcore.protocol.served_log import ServedLog
from millstream.server.engine.engine import Engine
from millstream.server.engine.session import Session
from millstream.server.security.rights import NotPermitted, Rights
from millstream.sql import ast

from .test_statement_rights import ROWS, Row, engine, is_allowed, user

__all__ = ["engine"]

STREAMS = {"topic-one": "ONE", "topic-two": "TWO", "topic-rows": "ROWS_", "topic-made": "MADE"}
OPERATIONS = {
    "read": (AclOperation.READ,),
    "insert": (AclOperation.WRITE,),
    "ddl": (AclOperation.CREATE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS, AclOperation.DELETE),
}
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY


class _Log:
    def __init__(self, *bindings: AclBinding) -> None:
        self._settings = {binding.text(): "" for binding in bindings}

    def settings(self, resource: str) -> Mapping[str, str]:
        return self._settings if resource == ACLS else {}


def acl(name: str, operation: AclOperation, permission: AclPermission = ALLOW, host: str = "*") -> AclBinding:
    return AclBinding(AclResource.TOPIC, name, AclPattern.LITERAL, "User:ana", host, operation, permission)


def acls_for(need: str, permission: AclPermission = ALLOW) -> list[AclBinding]:
    verb, _, name = need.partition(" ")
    return [acl(name, operation, permission) for operation in OPERATIONS[verb]]


def under(rights: Rights, *bindings: AclBinding) -> Rights:
    """The rights of the same user under these ACLs."""
    kept = KeptAcls()
    kept.follow(cast(ServedLog, _Log(*bindings)))
    assert rights.user is not None
    return Rights(replace(rights.user, acls=kept))


def needs_of(row: Row) -> list[str]:
    return [need for need in row.needs.split(", ") if need not in ("", "admin")]


ABOUT_TOPICS = [row for row in ROWS if any(need.split()[1] in STREAMS for need in needs_of(row))]


@pytest.mark.parametrize("row", ABOUT_TOPICS, ids=str)
def test_a_statement_runs_whose_topics_acls_allow(engine: Engine, row: Row) -> None:
    """To read or write a topic by an ACL is to read or write the streams over it."""
    needs = needs_of(row)
    by_acl = [need for need in needs if need.split()[1] in STREAMS]
    of_streams = {f"{verb} {STREAMS[topic]}" for verb, topic in map(str.split, by_acl) if verb != "ddl"}
    by_role = [need for need in needs if need not in {*by_acl, *of_streams}]
    bindings = [binding for need in by_acl for binding in acls_for(need)]
    assert is_allowed(engine, row, under(user(*by_role), *bindings))
    for missing in bindings:
        rest = [binding for binding in bindings if binding is not missing]
        assert not is_allowed(engine, row, under(user(*by_role), *rest)), f"without {missing}"
    for need in by_role:
        rest = [other for other in by_role if other != need]
        assert not is_allowed(engine, row, under(user(*rest), *bindings)), f"without {need}"


@pytest.mark.parametrize("row", ABOUT_TOPICS, ids=str)
def test_a_statement_does_not_run_if_an_acl_denies_a_topic(engine: Engine, row: Row) -> None:
    needs = needs_of(row)
    for need in needs:
        if need.split()[1] in STREAMS:
            for denied in acls_for(need, DENY):
                assert not is_allowed(engine, row, under(user(*needs), denied)), denied
                assert is_allowed(engine, row, under(user(admin=True), denied)), "administrators may"


def test_acls_make_no_administrator_and_reach_nothing_of_millstreams(engine: Engine) -> None:
    everything = [acl("*", AclOperation.ALL)]
    assert not is_allowed(engine, Row(ast.Query, "PRINT '_millstream-command';"), under(user(), *everything))
    assert not is_allowed(engine, Row(ast.Query, "TERMINATE ALL;"), under(user(), *everything))
    assert not is_allowed(engine, Row(ast.Query, "DROP STREAM one;"), under(user(), acl("topic-one", AclOperation.ALL)))


def test_an_acl_for_one_host_allows_nothing_here_and_denies(engine: Engine) -> None:
    """A request over HTTP may have come through a proxy, so its address is not known."""
    row = Row(ast.PrintTopic, "PRINT 'topic-one';")
    assert not is_allowed(engine, row, under(user(), acl("topic-one", AclOperation.READ, host="10.0.0.1")))
    denied = acl("topic-one", AclOperation.READ, DENY, host="10.0.0.1")
    assert not is_allowed(engine, row, under(user("read topic-one"), denied))


def test_what_acls_allow_is_seen_and_what_they_deny_is_not(engine: Engine) -> None:
    def seen(rights: Rights) -> set[str]:
        return set(rights.visible(engine.catalog).sources)

    assert seen(under(user())) == set()
    assert seen(under(user(), acl("topic-one", AclOperation.READ))) == {"ONE"}
    assert seen(under(user("read *"), acl("topic-one", AclOperation.READ, DENY))) == {"TWO", "ROWS_", "MADE"}


def test_the_refusal_names_what_was_denied(engine: Engine) -> None:
    rights = under(user("read *"), acl("topic-one", AclOperation.READ, DENY))
    with pytest.raises(NotPermitted, match='ana has no right "read" on the topic of ONE'):
        engine.parse("SELECT * FROM one EMIT CHANGES;", Session(rights=rights))
