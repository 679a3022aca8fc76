"""Whether the source of a mirror is the log that it copies to. Equal ids are no proof, since two clusters may have the
same name, and a restored backup has the id of its original log. So if the ids are equal, a mark is written here; it is
the same log if the source shows it."""

from __future__ import annotations

import secrets
from typing import Final

from millstream.errors import LogError

from ..client import TopicPartition
from ..cores.group_messages import CheckCommit, CommitNote, GroupFault
from ..errors import LogClosed, LogUnavailable, NotNow
from .mirror_errors import MirrorOfItself
from .mirror_source import MirrorSource, TopicFilter
from .mirror_target import MirrorLog

_GROUP: Final = "_millstream-mirror-mark-"
_HINT: Final = "FROM names the brokers of another log. Their addresses lead here, perhaps through a relay."


def check_is_another(log: MirrorLog, source: MirrorSource, topics: TopicFilter) -> None:
    """In: `topics`: those to copy. Raises `MirrorOfItself`, also if the ids are equal and the source does not allow us
    to look for the mark; `LogUnavailable`."""
    id = source.cluster_id()
    if id is None or id != log.cluster.brokers().cluster_id:
        return
    common = sorted(source.topics(topics).keys() & log.topics().keys())
    if common and _shows_mark(log, source, common[0]):
        text = f"{source.address} is this log itself, cluster {id}: it cannot be a mirror of itself"
        raise MirrorOfItself(text, hint=_HINT)


def _shows_mark(log: MirrorLog, source: MirrorSource, topic: str) -> bool:
    """Whether the source shows the mark: an offset of the topic, committed for a group with a unique name."""
    group, where = _GROUP + secrets.token_hex(8), TopicPartition(topic, 0)
    if log.groups.commit(CheckCommit(group), {where: 0}, {where: CommitNote()}) is not GroupFault.NONE:
        return True
    try:
        return where in source.groups.committed(group)
    except (LogClosed, LogUnavailable, NotNow):
        raise
    except LogError:
        return True
    finally:
        log.groups.delete(group)
