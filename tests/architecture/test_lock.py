"""`constraints.txt` is what the tests run with, and what pyproject.toml allows."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from repository import pyproject

from scripts import lock

PROJECT = pyproject()["project"]
DIRECT = [
    requirement
    for listed in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for requirement in map(Requirement, listed)
]


@pytest.mark.parametrize("requirement", DIRECT, ids=str)
def test_each_dependency_is_locked_at_a_version_that_it_allows(requirement: Requirement) -> None:
    version = lock.locked().get(canonicalize_name(requirement.name))
    assert version is not None, "make lock"
    assert version in requirement.specifier


def test_what_is_installed_is_what_is_locked() -> None:
    locked = lock.locked()
    differing = {name: version for name, version in lock.installed().items() if locked.get(name) != version}
    assert differing == {}, "`make distclean` and `make` install what constraints.txt says"
