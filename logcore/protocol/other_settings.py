"""Settings of brokers and groups that Kafka's clients may change, and their valid values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ..cores import group_messages, share_settings
from ..cores.share_groups import MEMBERS_MAX
from ..cores.share_settings import RANGES, bounds_of, greatest_of, in_force, least_of, of_all
from ..errors import InvalidSetting
from ..log_settings import Changes
from ..replication.replica.throttle import FOLLOWER_RATE, LEADER_RATE
from ..topic_settings import NEVER_MS, TopicSetting, one_of, whole_number
from .share_sessions import SHARE_SESSIONS_MAX

SESSION_MS: Final = "consumer.session.timeout.ms"
HEARTBEAT_MS: Final = "consumer.heartbeat.interval.ms"
_NOTHING: Final[Mapping[str, str]] = {}

_OF_SHARES: Final = {
    share_settings.SESSION_MS: "for how long a member may be silent",
    share_settings.HEARTBEAT_MS: "how often a member says that it lives",
    share_settings.LOCK_MS: "for how long a member has a record",
    share_settings.DELIVERIES: "how often a record is delivered",
    share_settings.LOCKS: "how many records of a partition are in flight",
}
_UNLIMITED: Final = str(NEVER_MS)


def _by_name(*settings: TopicSetting) -> Mapping[str, TopicSetting]:
    return {setting.name: setting for setting in settings}


def _of_shares() -> Iterator[TopicSetting]:
    """The settings of all brokers for share groups: the defaults of groups, and the limits of their settings."""
    for name, meaning in _OF_SHARES.items():
        known = RANGES[name]
        may_be = whole_number(known.lowest, known.highest)
        usual = share_settings.DEFAULTS[name]
        yield TopicSetting(of_all(name), "int", usual, f"Of share groups that do not say {meaning}.", may_be)
        yield TopicSetting(least_of(name), "int", str(known.least), "The least that a group may set.", may_be)
        yield TopicSetting(greatest_of(name), "int", str(known.greatest), "The most that a group may set.", may_be)


OF_BROKERS: Final = _by_name(
    *_of_shares(),
    TopicSetting(share_settings.SIZE_MAX, "int", str(MEMBERS_MAX), "How many members a share group has at most.",
            whole_number(1, 1_000)),
    TopicSetting(share_settings.SESSIONS_MAX, "int", str(SHARE_SESSIONS_MAX),
            "How many share sessions a node keeps at most.", whole_number(1, 100_000)),
    TopicSetting(LEADER_RATE, "long", _UNLIMITED,
            "Bytes per second that the node sends, as a leader, to replicas that are not in sync.", whole_number(1)),
    TopicSetting(FOLLOWER_RATE, "long", _UNLIMITED,
            "Bytes per second that replicas of the node fetch while they are not in sync.", whole_number(1)),
    TopicSetting("replica.alter.log.dirs.io.max.bytes.per.second", "long", _UNLIMITED, "There is one folder.",
            whole_number(0), heeded=False),
)  # fmt: skip


def _within(name: str) -> Callable[[str], str | None]:
    return whole_number(RANGES[name].lowest, RANGES[name].highest)


OF_GROUPS: Final = _by_name(
    TopicSetting(SESSION_MS, "int", str(group_messages.SESSION_MS),
            "A member of a group whose coordinator assigns, and that is silent for so long, is out.",
            whole_number(1_000, 1_800_000)),
    TopicSetting(HEARTBEAT_MS, "int", str(group_messages.HEARTBEAT_MS), "How often such a member says that it lives.",
            whole_number(100, 10_000)),
    TopicSetting(share_settings.SESSION_MS, "int", share_settings.DEFAULTS[share_settings.SESSION_MS],
            "A member of a share group that is silent for so long is out.", _within(share_settings.SESSION_MS)),
    TopicSetting(share_settings.HEARTBEAT_MS, "int", share_settings.DEFAULTS[share_settings.HEARTBEAT_MS],
            "How often such a member says that it lives.", _within(share_settings.HEARTBEAT_MS)),
    TopicSetting(share_settings.LOCK_MS, "int", share_settings.DEFAULTS[share_settings.LOCK_MS],
            "For how long a member has a record that it has acquired.", _within(share_settings.LOCK_MS)),
    TopicSetting(share_settings.DELIVERIES, "int", share_settings.DEFAULTS[share_settings.DELIVERIES],
            "How often a record is delivered before it is given up.", _within(share_settings.DELIVERIES)),
    TopicSetting(share_settings.LOCKS, "int", share_settings.DEFAULTS[share_settings.LOCKS],
            "How many records of a partition are in flight at most.", _within(share_settings.LOCKS)),
    TopicSetting(share_settings.RESET, "string", share_settings.DEFAULTS[share_settings.RESET],
            "Where a share group begins.", share_settings.reset_problem),
    TopicSetting(share_settings.ISOLATION, "string", share_settings.DEFAULTS[share_settings.ISOLATION],
            "Whether records of transactions are delivered before they are committed.",
            one_of("read_committed", "read_uncommitted")),
    TopicSetting(share_settings.RENEWS, "boolean", share_settings.DEFAULTS[share_settings.RENEWS],
            "Whether members may prolong the time for which they have a record.", one_of("true", "false")),
)  # fmt: skip


def check_changes(
    known: Mapping[str, TopicSetting],
    settings: Mapping[str, str],
    changes: Changes,
    brokers: Mapping[str, str] = _NOTHING,
) -> None:
    """In: `settings`: the settings before the change; `brokers`: those of all brokers. Raises `InvalidSetting`."""
    for name, value in changes.items():
        setting = known.get(name)
        if setting is None:
            names = ", ".join(sorted(known))
            raise InvalidSetting(f'there is no setting "{name}" that can be changed here', hint=f"There are {names}.")
        problem = None if value is None else setting.problem(value)
        if problem is not None:
            raise InvalidSetting(f'{name} cannot be "{value}"', hint=problem)
    after = {name: value for name, value in {**settings, **changes}.items() if value is not None}
    if known is OF_GROUPS:
        for name in changes.keys() & after.keys() & RANGES.keys():
            _check_bounds(brokers, name, after[name])
        _check_times(in_force(brokers, after) | {name: after.get(name) for name in (SESSION_MS, HEARTBEAT_MS)})
    elif any(name.startswith(share_settings.OF_ALL) for name in changes):
        _check_shares(after)


def _check_bounds(brokers: Mapping[str, str], name: str, value: str) -> None:
    least, greatest = bounds_of(brokers, name)
    if not least <= int(value) <= greatest:
        raise InvalidSetting(
            f'{name} cannot be "{value}"',
            hint=f"It is between {least} and {greatest}: {least_of(name)} and {greatest_of(name)} of all brokers.",
        )


def _check_shares(brokers: Mapping[str, str]) -> None:
    """Checks that the defaults for groups are within the limits for groups."""
    usual = in_force(brokers, {})
    for name in RANGES:
        least, greatest = bounds_of(brokers, name)
        if not least <= int(usual[name]) <= greatest:
            raise InvalidSetting(
                f"{of_all(name)} would be {usual[name]}, and groups could set {least} to {greatest}",
                hint=f"It is between {least_of(name)} and {greatest_of(name)}; change them together.",
            )
    _check_times(usual)


def _check_times(settings: Changes) -> None:
    for heartbeat, session in ((HEARTBEAT_MS, SESSION_MS), (share_settings.HEARTBEAT_MS, share_settings.SESSION_MS)):
        heartbeat_ms, session_ms = (int(settings.get(name) or OF_GROUPS[name].default) for name in (heartbeat, session))
        if heartbeat_ms >= session_ms:
            raise InvalidSetting(f"{heartbeat} is {heartbeat_ms}, and has to be below {session}, which is {session_ms}")


def value_of(known: Mapping[str, TopicSetting], settings: Mapping[str, str], name: str) -> int:
    """The value of the setting, or its default."""
    return int(settings.get(name, known[name].default))
