"""Reads and checks the options of `spark.read.format("millstream")`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from millstream.errors import InvalidProperty, did_you_mean

DEFAULT_URL: Final = "http://127.0.0.1:8088"

_OPTIONS: Final = (
    "url", "name", "topic", "columns", "where", "changes", "user", "password", "token", "kafka",
    "startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp", "minPartitions",
    "maxOffsetsPerTrigger", "failOnDataLoss", "mode",
)  # fmt: skip
_POSITIONS: Final = ("startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp", "minPartitions")


@dataclass(frozen=True, slots=True)
class ReadingPlace:
    """A position in each partition of a topic. `offsets`: by partition; `time_ms`: the first record with this time or a
    later one."""

    kind: Literal["earliest", "latest", "offsets", "time"]
    offsets: Mapping[int, int] = field(default_factory=dict)
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """`name`: of a stream or table, in SQL's notation; `topic`: of a topic, instead of `name`. `columns` and `where`:
    as in SELECT. `kafka`: the log's address for Spark's processes, instead of the server's information. `fail_fast`: a
    record that cannot be read ends the job; otherwise it is left out."""

    url: str = field(repr=False)  # it may contain a password
    name: str | None
    topic: str | None
    columns: str
    where: str | None
    changes: bool
    user: str | None
    password: str | None = field(repr=False)
    token: str | None = field(repr=False)
    kafka: str | None
    starting: ReadingPlace
    ending: ReadingPlace
    min_partitions: int
    offsets_per_trigger: int | None
    fail_on_data_loss: bool
    fail_fast: bool
    positions_given: str | None  # the first option about positions

    @property
    def statement(self) -> str:
        """The SELECT for a stream or table."""
        return f"SELECT {self.columns} FROM {self.name}{'' if self.where is None else f' WHERE {self.where}'};"


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """In: the options of the job, with names in any case. Raises `InvalidProperty`."""
    lowered = {name.lower(): value for name, value in given.items()}
    if "path" in lowered:
        lowered.setdefault("name", lowered.pop("path"))  # the argument of `load`
    known = {name.lower(): name for name in _OPTIONS}
    for name in lowered:
        if name not in known:
            hint = did_you_mean(name, _OPTIONS) or f"There are {', '.join(_OPTIONS)}."
            raise InvalidProperty(f"the data source millstream has no option {name}", hint=hint)
    options = {known[name]: value for name, value in lowered.items()}
    if ("name" in options) == ("topic" in options):
        hint = 'Write .load("NAME") with the name of a stream or table, or .option("topic", …) and .load().'
        raise InvalidProperty("the data source millstream needs a stream or a table, or else a topic", hint=hint)
    if "topic" in options:
        _refuse(
            options, ("columns", "where", "changes"), "a topic has no columns before a stream or table declares them"
        )
        if "kafka" not in options:
            hint = 'Add .option("kafka", "HOST:PORT"), where the server says "kafka: listening on".'
            raise InvalidProperty("a topic is read without the server, and the option kafka is missing", hint=hint)
    if ("user" in options) != ("password" in options):
        raise InvalidProperty("user and password go together", hint="Give both, or a token.")
    return SourceOptions(
        url=options.get("url", DEFAULT_URL),
        name=options.get("name"),
        topic=options.get("topic"),
        columns=options.get("columns", "*"),
        where=options.get("where"),
        changes=_flag(options, "changes", False),
        user=options.get("user"),
        password=options.get("password"),
        token=options.get("token", os.environ.get("MILLSTREAM_TOKEN")),
        kafka=options.get("kafka"),
        starting=_place(options, "starting", "earliest"),
        ending=_place(options, "ending", "latest"),
        min_partitions=_number(options, "minPartitions") or 0,
        offsets_per_trigger=_number(options, "maxOffsetsPerTrigger"),
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        fail_fast=_choice(options, "mode", "DROPMALFORMED", ("DROPMALFORMED", "FAILFAST")) == "FAILFAST",
        positions_given=next((name for name in _POSITIONS if name in options), None),
    )


def _refuse(options: Mapping[str, str], names: tuple[str, ...], why: str) -> None:
    for name in names:
        if name in options:
            raise InvalidProperty(f"the option {name} is for streams and tables: {why}", hint=f"Leave {name} out.")


def _choice(options: Mapping[str, str], name: str, default: str, choices: tuple[str, ...]) -> str:
    found = options.get(name, default)
    if found.upper() not in choices:
        raise InvalidProperty(f"{name} is {found!r}", hint=f"It is one of {', '.join(choices)}.")
    return found.upper()


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    return _choice(options, name, str(default), ("TRUE", "FALSE")) == "TRUE"


def _number(options: Mapping[str, str], name: str) -> int | None:
    found = options.get(name)
    if found is None:
        return None
    if not found.isdecimal() or int(found) < 1:
        raise InvalidProperty(f"{name} is {found!r}", hint="It is a whole number from 1 on.")
    return int(found)


def _place(options: Mapping[str, str], which: Literal["starting", "ending"], default: str) -> ReadingPlace:
    offsets, time = options.get(f"{which}Offsets"), options.get(f"{which}Timestamp")
    if time is not None:
        if offsets is not None:
            raise InvalidProperty(f"{which}Offsets and {which}Timestamp are both there", hint="Leave one of them out.")
        if not time.isdecimal():
            raise InvalidProperty(f"{which}Timestamp is {time!r}", hint="It is in milliseconds since 1970.")
        return ReadingPlace("time", time_ms=int(time))
    found = offsets or default
    if found.lower() == "latest":
        return ReadingPlace("latest")
    if found.lower() == "earliest" and which == "starting":
        return ReadingPlace("earliest")
    try:
        listed = {int(partition): offset for partition, offset in json.loads(found).items()}
    except (ValueError, AttributeError):
        listed = {}
    if not listed or any(not isinstance(offset, int) or offset < 0 for offset in listed.values()):
        words = "earliest, latest" if which == "starting" else "latest"
        hint = f'It is {words}, or the offset of each partition: {{"0": 500, "1": 720}}.'
        raise InvalidProperty(f"{which}Offsets is {found!r}", hint=hint)
    return ReadingPlace("offsets", listed)
