"""The folders at the top are installed as packages of `millstream`, from a wheel and in place."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from repository import REPOSITORY, module_name, package_dir, pyproject, source_files

pytestmark = pytest.mark.timeout(300)  # building fetches setuptools from PyPI

SETUPTOOLS = pyproject()["tool"]["setuptools"]

LOOK_AROUND = """
import importlib, importlib.util, pathlib, sys
import millstream.sql.types, millstream.planner.catalog, millstream.errors
for package in sys.argv[1].split():
    importlib.import_module(package)
for name in ("sql", "planner", "executor", "logcore", "server", "repl"):
    spec = importlib.util.find_spec(name)
    found = [pathlib.Path(folder).resolve() for folder in spec and spec.submodule_search_locations or ()]
    ours = pathlib.Path(importlib.import_module(f"millstream.{name}").__file__).resolve().parent
    assert ours not in found, f"`import {name}` finds {spec}"  # another's is none of ours: JupySQL installs a `sql`
print(pathlib.Path(millstream.sql.types.__file__).resolve())
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a wheel is built from: no old build result slips in, and nobody edits it meanwhile."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    for folder in package_dir().values():
        shutil.copytree(REPOSITORY / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(source), cwd=source)
    (found,) = out.glob("*.whl")
    return found


def run(*command: str, cwd: Path) -> str:
    """What a command prints; its complaints, when it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def packages_with_python() -> set[str]:
    return {module_name(path.parent / "__init__.py") for path in source_files()}


def test_pyproject_lists_every_folder_that_contains_python_files() -> None:
    listed = set(SETUPTOOLS["packages"])
    found = packages_with_python()
    assert listed == found, (
        f"in [tool.setuptools] of pyproject.toml: add {sorted(found - listed)}, remove {sorted(listed - found)}"
    )


def test_every_package_folder_has_an_init_file() -> None:
    assert [path.parent for path in source_files() if not (path.parent / "__init__.py").exists()] == []


def test_every_top_folder_with_an_init_file_is_mapped() -> None:
    top = {path.parent.name for path in REPOSITORY.glob("*/__init__.py")}
    assert top - {"bench", "tests"} == set(package_dir().values())


def test_the_wheel_contains_every_source_file_and_nothing_beside_millstream(wheel: Path, source: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    modules = {name for name in names if name.endswith(".py")}
    assert modules == {wheel_path(path, source) for path in source_files(source)}
    assert {name.split("/")[0].split("-")[0] for name in names} == {"millstream"}


def test_the_wheel_contains_the_data_files(wheel: Path, source: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    data = [
        path
        for folder in package_dir().values()
        for path in (source / folder).rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc", ".md"}
    ]
    assert "millstream/py.typed" in names
    assert [path for path in data if wheel_path(path, source) not in names] == [], (
        "add them to [tool.setuptools.package-data]"
    )


def wheel_path(path: Path, source: Path) -> str:
    return module_name(path.parent / "__init__.py", source).replace(".", "/") + "/" + path.name


def test_an_installed_wheel_imports_away_from_the_repository(wheel: Path, tmp_path: Path) -> None:
    """The wheel goes into a fresh environment, without its dependencies: these come from this one, through a path file
    (which runs no editable finder, so nothing can come from the repository)."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    (library,) = environment.glob("lib/python*/site-packages")
    run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"),
        *("--target", str(library), str(wheel)),
        cwd=tmp_path,
    )
    (library / "zz_dependencies.pth").write_text("\n".join(directories_of_dependencies()))
    found = run(str(environment / "bin" / "python"), "-c", LOOK_AROUND, " ".join(SETUPTOOLS["packages"]), cwd=tmp_path)
    assert Path(found.strip()).is_relative_to(library.resolve())


def directories_of_dependencies() -> list[str]:
    return [entry for entry in sys.path if entry.endswith("-packages")]


@pytest.mark.soak
def test_this_installation_imports_away_from_the_repository(tmp_path: Path) -> None:
    found = run(sys.executable, "-c", LOOK_AROUND, " ".join(SETUPTOOLS["packages"]), cwd=tmp_path)
    assert Path(found.strip()) == REPOSITORY / "sql" / "types.py", "not the editable install of this tree"


def test_importing_the_errors_imports_no_other_package(tmp_path: Path) -> None:
    loaded = run(
        sys.executable,
        "-c",
        "import sys, millstream.errors; print([m for m in sys.modules if m.startswith('millstream.')])",
        cwd=tmp_path,
    )
    assert loaded.strip() == "['millstream.errors']"
