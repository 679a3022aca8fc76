r"""The settings of the shell, one entry each. `\set`, completion and the manual read this list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from millstream.errors import ServerError, did_you_mean

OutputFormat = Literal["table", "json", "jsonl", "csv", "arrow", "markdown", "vertical"]
Keys = Literal["emacs", "vi"]

FORMATS: Final[tuple[OutputFormat, ...]] = ("table", "json", "jsonl", "csv", "arrow", "markdown", "vertical")
_FORMAT_ALIASES: Final[Mapping[str, OutputFormat]] = {"tabular": "table", "md": "markdown", "ndjson": "jsonl"}
_SWITCH: Final = {"on": True, "off": False, "true": True, "false": False, "1": True, "0": False}


class UnknownOutputFormat(ServerError):
    """`output` or `--format` with an unknown word."""

    code = "UNKNOWN_OUTPUT_FORMAT"


class BadSetting(ServerError):
    """`\\set` with a name that there is not, or a value that does not fit."""

    code = "BAD_SETTING"


@dataclass(slots=True)
class Settings:
    """The values may change while the shell runs. `ENTRIES` describes each."""

    format: OutputFormat = "table"
    expanded: bool = False
    timing: bool = False
    pager: bool = True
    redraw: bool = True
    cut: bool = True
    keys: Keys = "emacs"
    suggest: bool = True
    wait: bool = True
    width: int = 0
    limit: int = 0
    timeout: int = 0

    def set(self, name: str, value: str | None) -> None:
        """Sets a value. In: `value`: None toggles a switch. Raises `BadSetting`, `UnknownOutputFormat`."""
        entry = ENTRIES.get(name.lower())
        if entry is None:
            raise BadSetting(f'there is no setting "{name}"', hint=did_you_mean(name, ENTRIES) or _all_names())
        if value is not None:
            setattr(self, entry.name, entry.read(value))
        elif isinstance(getattr(self, entry.name), bool):
            setattr(self, entry.name, not getattr(self, entry.name))

    def shown(self, name: str) -> str:
        """The value as `\\set` takes it."""
        value = getattr(self, name)
        return ("on" if value else "off") if isinstance(value, bool) else str(value)

    def as_rows(self) -> list[list[str]]:
        """The name, value, choices and meaning of each setting."""
        return [[entry.name, self.shown(entry.name), entry.choices, entry.doc] for entry in ENTRIES.values()]


@dataclass(frozen=True, slots=True)
class SettingEntry:
    """`read` raises an error if the value is not allowed."""

    name: str
    choices: str
    doc: str
    read: Callable[[str], Any]


def output_format(word: str) -> OutputFormat:
    """The format with this name. Raises `UnknownOutputFormat`."""
    name = word.lower()
    if name in _FORMAT_ALIASES:
        return _FORMAT_ALIASES[name]
    if name not in FORMATS:
        raise UnknownOutputFormat(f'there is no output format "{word}"', hint=f"There are {_listed(FORMATS)}.")
    return name


def _switch(word: str) -> bool:
    if word.lower() not in _SWITCH:
        raise BadSetting(f'"{word}" is neither on nor off')
    return _SWITCH[word.lower()]


def _keys(word: str) -> Keys:
    match word.lower():
        case "emacs":
            return "emacs"
        case "vi" | "vim":
            return "vi"
        case _:
            raise BadSetting(f'there are no keys as in "{word}"', hint="There are emacs and vi.")


def whole_number(word: str) -> int:
    """Raises `BadSetting`."""
    digits = word.lstrip("0") or "0"
    if not (word.isascii() and word.isdecimal()) or len(digits) > _DIGITS_MAX or int(digits) > _NUMBER_MAX:
        raise BadSetting(f'"{word}" is no number from 0 to {_NUMBER_MAX}')
    return int(digits)


def _listed(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _all_names() -> str:
    return f"There are {_listed(tuple(ENTRIES))}."


_NUMBER_MAX: Final = 2**31 - 1
_DIGITS_MAX: Final = 10
_SWITCH_CHOICES: Final = "on, off"
ENTRIES: Final[Mapping[str, SettingEntry]] = {
    entry.name: entry
    for entry in (
        SettingEntry("format", ", ".join(FORMATS), "How results look.", output_format),
        SettingEntry("expanded", _SWITCH_CHOICES, "Tables show a line per column (\\x).", _switch),
        SettingEntry("timing", _SWITCH_CHOICES, "Say how long each statement took (\\timing).", _switch),
        SettingEntry("pager", _SWITCH_CHOICES, "Long results go through a pager, on a terminal.", _switch),
        SettingEntry(
            "redraw", _SWITCH_CHOICES, "Push queries on tables redraw their rows in place, on a terminal.", _switch
        ),
        SettingEntry("cut", _SWITCH_CHOICES, "Tables are cut to the width of the terminal.", _switch),
        SettingEntry("keys", "emacs, vi", "What the keys of the line editor do.", _keys),
        SettingEntry("suggest", _SWITCH_CHOICES, "Show what is completed while one types, not only on Tab.", _switch),
        SettingEntry(
            "wait",
            _SWITCH_CHOICES,
            "In scripts a pull query waits for the results of what the script inserted.",
            _switch,
        ),
        SettingEntry(
            "width", "letters", "Each column of a table of rows is so wide; 0: as wide as its values.", whole_number
        ),
        SettingEntry("limit", "rows", "A push query or PRINT ends after so many rows; 0: it goes on.", whole_number),
        SettingEntry(
            "timeout", "milliseconds", "A push query or PRINT ends after so long; 0: it goes on.", whole_number
        ),
    )
}
