"""Answers about SCRAM passwords of users, which are in the configuration or were set over the protocol."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from millstream.errors import LogError

from ...error_codes import ErrorCode
from ...log_settings import USER, of_user
from ..kafka_service import Desk
from ..security.access import OnlyForAdministrators, check_cluster
from ..security.accesses import ALTER_CLUSTER, DESCRIBE_CLUSTER
from ..security.peer import Peer
from ..security.scram import credential_of_salted
from ..security.users import Principal, ScramCredential, Users
from ..served_log import ServedLog
from ..setting_limits import NAME_BYTES_MAX, check_room, is_too_long
from ..wire.faults import code_of, message_of
from ..wire.messages import Fields

if TYPE_CHECKING:
    from .request_shapes import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsUpsertion,
        DescribeUserScramCredentialsRequest,
    )

_MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NUMBERS: Final = {name: number for number, name in _MECHANISMS.items()}
_ITERATIONS_MIN: Final = 4096
_ITERATIONS_MAX: Final = 16384
_SALT_BYTES_MAX: Final = 1024


class KeptUsers:
    """The users of the configuration, with the SCRAM passwords that were set over the protocol. Those take precedence
    over configured ones, but only for users that the configuration names, because only it defines rights."""

    def __init__(self, users: Users, log: ServedLog) -> None:
        self._users, self._log = users, log

    def with_password(self, name: str, password: str) -> Principal | None:
        return self._users.with_password(name, password)

    def with_scram(self, name: str, mechanism: str) -> tuple[ScramCredential, Principal] | None:
        kept = kept_credentials(self._log, name).get(mechanism)
        user = self._users.named(name)
        return (kept, user) if kept is not None and user is not None else self._users.with_scram(name, mechanism)

    def of_certificate(self, names: Any, /) -> Principal | None:
        return self._users.of_certificate(names)

    def named(self, name: str) -> Principal | None:
        return self._users.named(name)

    def scram_iterations(self) -> Mapping[str, Mapping[str, int]]:
        return _iterations(self._users, self._log)


def _iterations(users: Users | None, log: ServedLog) -> dict[str, dict[str, int]]:
    found = {name: dict(each) for name, each in users.scram_iterations().items()} if users is not None else {}
    for resource in log.resources(USER):
        name = resource.removeprefix(USER)
        for mechanism, kept in kept_credentials(log, name).items():
            found.setdefault(name, {})[mechanism] = kept.iterations
    return found


def kept_credentials(log: ServedLog, name: str) -> Mapping[str, ScramCredential]:
    """The credentials that were set over the protocol for this user, by mechanism."""
    return {mechanism: _credential(mechanism, text) for mechanism, text in log.settings(of_user(name)).items()}


def _credential(mechanism: str, text: str) -> ScramCredential:
    iterations, *parts = text.split("$")
    return ScramCredential(mechanism, int(iterations), *(base64.b64decode(part) for part in parts))


def _text(kept: ScramCredential) -> str:
    parts = (kept.salt, kept.stored_key, kept.server_key)
    return "$".join([str(kept.iterations), *(base64.b64encode(part).decode() for part in parts)])


def describe_user_scram_credentials(broker: Desk, request: DescribeUserScramCredentialsRequest, peer: Peer) -> Fields:
    """Without a list, it describes all users. For administrators."""
    try:
        check_cluster(peer, DESCRIBE_CLUSTER)
    except LogError as error:
        return {"error_code": code_of(error), "error_message": message_of(error), "results": []}
    known = _iterations(broker.settings.users, broker.log)
    names = [user.name for user in request.users] if request.users else sorted(known)
    twice = {name for name, count in Counter(names).items() if count > 1}
    return {
        "error_code": ErrorCode.none,
        "results": [_described(name, known, repeated=name in twice) for name in dict.fromkeys(names)],
    }


def _described(name: str, known: Mapping[str, Mapping[str, int]], *, repeated: bool) -> Fields:
    if repeated:
        return {"user": name, "error_code": ErrorCode.duplicate_resource, "error_message": f'"{name}" is named twice'}
    if name not in known:
        what = f'user "{name}" has no password for SCRAM'
        return {"user": name, "error_code": ErrorCode.resource_not_found, "error_message": what}
    return {
        "user": name,
        "error_code": ErrorCode.none,
        "credential_infos": [
            {"mechanism": _NUMBERS[mechanism], "iterations": iterations}
            for mechanism, iterations in known[name].items()
        ],
    }


class CredentialRefused(LogError):
    """A SCRAM password cannot be stored, or does not exist. `problem`: Kafka's error code."""

    code = "CREDENTIAL_REFUSED"

    def __init__(self, problem: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.problem = problem


class _Asked(NamedTuple):
    """A change for one user. `wanted`: the new password; None deletes it."""

    mechanism: int
    wanted: AlterUserScramCredentialsUpsertion | None


def alter_user_scram_credentials(broker: Desk, request: AlterUserScramCredentialsRequest, peer: Peer) -> Fields:
    """A request changes one password of each user, as in Kafka. For administrators."""
    by_user: dict[str, list[_Asked]] = {}
    for deleted in request.deletions:
        by_user.setdefault(deleted.name, []).append(_Asked(deleted.mechanism, None))
    for wanted in request.upsertions:
        by_user.setdefault(wanted.name, []).append(_Asked(wanted.mechanism, wanted))
    return {"results": [_altered(broker, peer, name, asked) for name, asked in by_user.items()]}


def _altered(broker: Desk, peer: Peer, name: str, asked: list[_Asked]) -> Fields:
    try:
        check_cluster(peer, ALTER_CLUSTER)
        _check_no_administrator(broker, peer, name)
        if len(asked) > 1:
            raise CredentialRefused(ErrorCode.duplicate_resource, f'user "{name}" is named {len(asked)} times')
        changes = dict([_change(broker, name, asked[0])])
        check_room(broker.log, of_user(name), changes)
        broker.log.change_settings(of_user(name), changes)
    except CredentialRefused as error:
        return {"user": name, "error_code": error.problem, "error_message": message_of(error)}
    except LogError as error:
        return {"user": name, "error_code": code_of(error), "error_message": message_of(error)}
    return {"user": name, "error_code": ErrorCode.none, "error_message": None}


def _check_no_administrator(broker: Desk, peer: Peer, name: str) -> None:
    """Who may alter the cluster by an ACL does not become an administrator by the password of one. Raises
    `OnlyForAdministrators`."""
    known = None if broker.settings.users is None else broker.settings.users.named(name)
    if known is None or not known.is_administrator or peer.trusted or peer.user is None:
        return
    if not peer.user.is_administrator:
        raise OnlyForAdministrators(f'only administrators change the password of "{name}", who is one')


def _change(broker: Desk, name: str, asked: _Asked) -> tuple[str, str | None]:
    """Raises `CredentialRefused`."""
    if not name:
        raise CredentialRefused(ErrorCode.unacceptable_credential, "a user has a name")
    mechanism = _MECHANISMS.get(asked.mechanism)
    if mechanism is None:
        raise CredentialRefused(ErrorCode.unsupported_sasl_mechanism, f"there is no mechanism {asked.mechanism}")
    wanted = asked.wanted
    if wanted is None:
        return mechanism, _deletion(broker, name, mechanism)
    if not _ITERATIONS_MIN <= wanted.iterations <= _ITERATIONS_MAX:
        what = f"{wanted.iterations} iterations: it is between {_ITERATIONS_MIN} and {_ITERATIONS_MAX}"
        raise CredentialRefused(ErrorCode.unacceptable_credential, what)
    if is_too_long(name) or len(wanted.salt) > _SALT_BYTES_MAX:
        what = f"a name has at most {NAME_BYTES_MAX} bytes, and a salt {_SALT_BYTES_MAX}"
        raise CredentialRefused(ErrorCode.unacceptable_credential, what)
    users = broker.settings.users
    if users is not None and users.named(name) is None:
        what = f'the configuration names no user "{name}", and so nobody can have rights under this name'
        raise CredentialRefused(ErrorCode.unacceptable_credential, what)
    return mechanism, _text(credential_of_salted(mechanism, wanted.salted_password, wanted.salt, wanted.iterations))


def _deletion(broker: Desk, name: str, mechanism: str) -> None:
    if mechanism in broker.log.settings(of_user(name)):
        return
    in_configuration = mechanism in _iterations(broker.settings.users, broker.log).get(name, {})
    if in_configuration:
        what = f'the password of user "{name}" is in the configuration, and can be removed there'
        raise CredentialRefused(ErrorCode.unacceptable_credential, what)
    raise CredentialRefused(ErrorCode.resource_not_found, f'user "{name}" has no password for {mechanism}')
