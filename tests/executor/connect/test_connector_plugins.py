"""The connectors of other packages are found in the installed packages, whenever those change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.executor.connect.connector_plugins import ENTRY_POINTS, plugins

DATAGEN = "millstream.executor.connect.sources.datagen:Datagen"
LONG_AGO_S = 1_700_000_000


def _install(folder: Path, name: str) -> None:
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{name} = {DATAGEN}\n")


def _found() -> set[str]:
    return {plugin.name for plugin in plugins()} & {"squares", "cubes"}


def test_a_package_is_found_when_it_is_installed_and_forgotten_when_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _found() == set()
    monkeypatch.syspath_prepend(tmp_path)
    _install(tmp_path, "squares")
    os.utime(tmp_path, (LONG_AGO_S, LONG_AGO_S))
    assert _found() == _found() == {"squares"}

    _install(tmp_path, "cubes")
    assert _found() == {"squares", "cubes"}
    (tmp_path / "squares-1.0.dist-info").rename(tmp_path / "removed")
    assert _found() == {"cubes"}


def test_an_installation_that_is_under_way_is_found_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder changed before the file in it was there."""
    monkeypatch.syspath_prepend(tmp_path)
    _install(tmp_path, "squares")
    entry_points = tmp_path / "squares-1.0.dist-info" / "entry_points.txt"
    text = entry_points.read_text()
    entry_points.unlink()
    assert _found() == set()
    entry_points.write_text(text)
    assert _found() == {"squares"}
