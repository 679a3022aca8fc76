"""Settings of what is no topic, of a log of one node."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.logcore.errors import CorruptLog
from millstream.logcore.log import open_log
from millstream.logcore.log_settings import GROUP, of_group


def test_they_are_there_after_a_restart_and_go_when_they_are_taken_back(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.change_settings(of_group("g"), {"a": "1", "b": "2"})
        log.change_settings(of_group("h"), {"a": "3"})
    with open_log(tmp_path) as log:
        assert log.settings(of_group("g")) == {"a": "1", "b": "2"}
        log.change_settings(of_group("g"), {"a": None, "b": None})
        assert list(log.resources(GROUP)) == [of_group("h")]


def test_one_of_the_two_copies_may_be_damaged_and_not_both(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.change_settings(of_group("g"), {"a": "1"})
    files = [tmp_path / "settings.json", tmp_path / "settings.json.copy"]
    files[0].write_bytes(b"nonsense")
    with open_log(tmp_path) as log:
        assert log.settings(of_group("g")) == {"a": "1"}
    for file in files:
        file.write_bytes(b"nonsense")
    with pytest.raises(CorruptLog, match="is damaged at position 0"):
        open_log(tmp_path)
