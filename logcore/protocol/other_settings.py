"""Settings that Kafka's clients may change of what is no topic: of brokers and of groups, with what they may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..cores import group_messages, share_settings
from ..errors import InvalidSetting
from ..log_settings import Changes
from ..replication.replica.throttle import FOLLOWER_RATE, LEADER_RATE
from ..topic_settings import NEVER_MS, TopicSetting, one_of, whole_number

SESSION_MS: Final = "consumer.session.timeout.ms"
HEARTBEAT_MS: Final = "consumer.heartbeat.interval.ms"

_UNLIMITED: Final = str(NEVER_MS)


def _by_name(*settings: TopicSetting) -> Mapping[str, TopicSetting]:
    return {setting.name: setting for setting in settings}


OF_BROKERS: Final = _by_name(
    TopicSetting(LEADER_RATE, "long", _UNLIMITED,
            "Bytes per second that the node sends, as a leader, to replicas that are not in sync.", whole_number(1)),
    TopicSetting(FOLLOWER_RATE, "long", _UNLIMITED,
            "Bytes per second that replicas of the node fetch while they are not in sync.", whole_number(1)),
    TopicSetting("replica.alter.log.dirs.io.max.bytes.per.second", "long", _UNLIMITED, "There is one folder.",
            whole_number(0), heeded=False),
)  # fmt: skip

OF_GROUPS: Final = _by_name(
    TopicSetting(SESSION_MS, "int", str(group_messages.SESSION_MS),
            "A member of a group whose coordinator assigns, and that is silent for so long, is out.",
            whole_number(1_000, 1_800_000)),
    TopicSetting(HEARTBEAT_MS, "int", str(group_messages.HEARTBEAT_MS), "How often such a member says that it lives.",
            whole_number(100, 10_000)),
    TopicSetting(share_settings.SESSION_MS, "int", share_settings.DEFAULTS[share_settings.SESSION_MS],
            "A member of a share group that is silent for so long is out.", whole_number(1_000, 1_800_000)),
    TopicSetting(share_settings.HEARTBEAT_MS, "int", share_settings.DEFAULTS[share_settings.HEARTBEAT_MS],
            "How often such a member says that it lives.", whole_number(100, 60_000)),
    TopicSetting(share_settings.LOCK_MS, "int", share_settings.DEFAULTS[share_settings.LOCK_MS],
            "For how long a member has a record that it has acquired.", whole_number(1_000, 3_600_000)),
    TopicSetting(share_settings.DELIVERIES, "int", share_settings.DEFAULTS[share_settings.DELIVERIES],
            "How often a record is delivered before it is given up.", whole_number(1, 25)),
    TopicSetting(share_settings.LOCKS, "int", share_settings.DEFAULTS[share_settings.LOCKS],
            "How many records of a partition are in flight at most.", whole_number(100, 10_000)),
    TopicSetting(share_settings.RESET, "string", share_settings.DEFAULTS[share_settings.RESET],
            "Where a share group begins.", share_settings.reset_problem),
    TopicSetting(share_settings.ISOLATION, "string", share_settings.DEFAULTS[share_settings.ISOLATION],
            "Whether records of transactions are delivered before they are committed.",
            one_of("read_committed", "read_uncommitted")),
    TopicSetting(share_settings.RENEWS, "boolean", share_settings.DEFAULTS[share_settings.RENEWS],
            "Whether members may prolong the time for which they have a record.", one_of("true", "false")),
)  # fmt: skip


def check_changes(known: Mapping[str, TopicSetting], settings: Mapping[str, str], changes: Changes) -> None:
    """In: `settings`: what is set before. Raises `InvalidSetting`."""
    for name, value in changes.items():
        setting = known.get(name)
        if setting is None:
            names = ", ".join(sorted(known))
            raise InvalidSetting(f'there is no setting "{name}" that can be changed here', hint=f"There are {names}.")
        problem = None if value is None else setting.problem(value)
        if problem is not None:
            raise InvalidSetting(f'{name} cannot be "{value}"', hint=problem)
    if known is OF_GROUPS:
        _check_times({**settings, **changes})


def _check_times(settings: Changes) -> None:
    for heartbeat, session in ((HEARTBEAT_MS, SESSION_MS), (share_settings.HEARTBEAT_MS, share_settings.SESSION_MS)):
        heartbeat_ms, session_ms = (int(settings.get(name) or OF_GROUPS[name].default) for name in (heartbeat, session))
        if heartbeat_ms >= session_ms:
            raise InvalidSetting(f"{heartbeat} is {heartbeat_ms}, and has to be below {session}, which is {session_ms}")


def value_of(known: Mapping[str, TopicSetting], settings: Mapping[str, str], name: str) -> int:
    """What is set, or the default."""
    return int(settings.get(name, known[name].default))
