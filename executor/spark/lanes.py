"""Lanes: the partitions that a query reads, and ranges of them. The text of a lane is `topic/partition`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...logcore.client import TopicPartition

Positions = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class LaneRange:
    """The offsets `start` to `end`, exclusive, of one partition."""

    lane: TopicPartition
    start: int
    end: int


def lane_text(lane: TopicPartition) -> str:
    return f"{lane.topic}/{lane.partition}"


def lane_of(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("/")
    return TopicPartition(topic, int(partition))


def positions_to_json(positions: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {lane_text(lane): offset for lane, offset in positions.items()}


def positions_from_json(found: Mapping[str, int]) -> Positions:
    return {lane_of(text): int(offset) for text, offset in found.items()}


def ranges_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[LaneRange]:
    """The ranges between two positions, without empty ones."""
    return [LaneRange(lane, start[lane], end[lane]) for lane in end if end[lane] > start[lane]]
