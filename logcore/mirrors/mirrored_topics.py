"""Topics of a mirror in exact mode: they get the partitions and settings of the source. A setting reserves them for the
mirror."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Final

from millstream.errors import LogError

from ..client import Topic, TopicPartition
from ..errors import InvalidTopic, LogClosed, LogUnavailable, NotNow, ProducerFenced, TopicExists
from ..topic_settings import MIRROR, MIRROR_ORIGINS, MIRRORED_ID, OF_MIRRORS
from .mirror_board import MirrorBoard
from .mirror_source import MirrorSource, SourceSettings, SourceTopic, TopicFilter, origin_of
from .mirror_target import MirrorLog

_NOT_NOW: Final = (LogClosed, LogUnavailable, NotNow, ProducerFenced)


@dataclass(frozen=True, slots=True)
class FollowedTopics:
    """`partitions`: those to copy, of topics with these `ids`. `stopped`: topics that are no longer copied, and why."""

    partitions: Set[TopicPartition]
    ids: Mapping[str, str]
    stopped: Mapping[str, str]


class MirroredTopics:
    """State: the last known settings of the source's topics."""

    def __init__(self, log: MirrorLog, source: MirrorSource, mirror: str, wanted: TopicFilter, *, adopts: bool) -> None:
        """In: `adopts`: existing topics are taken over."""
        self._log, self._source, self._mirror = log, source, mirror
        self._wanted, self._adopts = wanted, adopts

    def follow(self, board: MirrorBoard) -> FollowedTopics:
        there = self._source.topics(self._wanted)
        settings = self._source.settings(sorted(there)) if there else {}
        here = self._log.topics()
        partitions: set[TopicPartition] = set()
        stopped: dict[str, str] = {}
        for name, topic in there.items():
            if name not in settings:  # it was deleted meanwhile
                continue
            try:
                why = self._follow(topic, here.get(name), settings[name])
            except _NOT_NOW:
                raise
            except LogError as error:
                why = error.message
            if why is None:
                partitions |= {TopicPartition(name, number) for number in range(topic.partition_count)}
            else:
                stopped[name] = why
            board.refuse(name, None if why is None else f"{name}: {why}")
        for name, topic in here.items():
            if topic.config.get(MIRROR) == self._mirror and name not in there:
                stopped[name] = "it does not exist at the source any more, or is not chosen; what was copied stays"
        ids = {name: topic.id for name, topic in there.items() if topic.id is not None}
        return FollowedTopics(partitions, ids, stopped)

    def _follow(self, there: SourceTopic, here: Topic | None, source: SourceSettings) -> str | None:
        """Why the topic is not copied; None if it is. Raises `LogError`."""
        settings, held = source.followed, self._held(there, source)
        if here is None:
            try:
                self._log.create_topic(there.name, there.partition_count, {**settings, **held})
            except TopicExists:
                return "a topic of this name was made here at the same time"
            return None
        holder = here.config.get(MIRROR)
        if holder not in (None, self._mirror):
            return f'the mirror "{holder}" writes the topic here'
        if source.origins and self._own(there.name) in source.origins:
            return "the topic of the source is a copy of this one: nobody could write either of them"
        if holder is None and not self._adopts:
            return "there is a topic of this name here already; 'existing.topics'='adopt' takes it over"
        copied = here.config.get(MIRRORED_ID)
        if holder is not None and copied is not None and there.id not in (None, copied):
            return (
                "the topic was deleted at the source and made anew. What was copied stays; DROP MIRROR, delete the"
                " topic here, and copy it anew"
            )
        if here.partition_count > there.partition_count:
            return f"it has {here.partition_count} partitions here, and {there.partition_count} at the source"
        if here.partition_count < there.partition_count:
            self._log.add_partitions(there.name, there.partition_count)
        wanted = {**settings, **held}
        if dict(here.config) != wanted:
            self._log.alter_topic(there.name, wanted)
        return None

    def _held(self, there: SourceTopic, source: SourceSettings) -> dict[str, str]:
        """The settings that assign the topic to the mirror. Each copy lists all topics that it comes from, so a loop of
        any length is detected where it would close."""
        if there.id is None:
            return {MIRROR: self._mirror}
        origins = (origin_of(self._source.cluster_id(), there.id), *source.origins)
        return {MIRROR: self._mirror, MIRRORED_ID: there.id, MIRROR_ORIGINS: ",".join(origins)}

    def _own(self, topic: str) -> str:
        id = self._log.topic_id(topic)
        return origin_of(self._log.cluster.brokers().cluster_id, None if id is None else id.hex)


def release_topics(log: MirrorLog, mirror: str) -> list[str]:
    """Releases the topics of the mirror: from now on all clients may write them, but no longer the mirror."""
    released = {name: topic for name, topic in log.topics().items() if topic.config.get(MIRROR) == mirror}
    for name, topic in released.items():
        kept = {key: value for key, value in topic.config.items() if key not in OF_MIRRORS}
        try:
            log.alter_topic(name, kept)
        except InvalidTopic as error:
            raise InvalidTopic(f'topic "{name}" stays with the mirror "{mirror}": {error.message}') from error
    return sorted(released)
