"""The tests that come with librdkafka, against three nodes.

They are in no registry: whoever has built them (`make -C tests build` in its sources) names their folder in
`MILLSTREAM_LIBRDKAFKA_TESTS`; elsewhere they are skipped.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from .serving import ProductCluster, run

_SHARE_GROUPS_FROM: Final = "0155"
_BY_SCRIPTS: Final = "it runs the scripts of a Kafka that is unpacked somewhere"
_FOUR_PARTITIONS: Final = "it wants topics that are made by themselves to have four partitions, and they have one"
_EXPECTED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("0052", "0077", "0109", "0115", "0119"), _BY_SCRIPTS),
    **dict.fromkeys(("0012", "0015", "0029", "0054", "0056", "0057", "0118"), _FOUR_PARTITIONS),
    "0038": "it measures",
    "0081": "it sets ACLs, and fails on an Apache Kafka without an authorizer, too; topics and settings come first",
}


def _numbers(folder: Path) -> list[str]:
    """Those that need brokers; the others are about librdkafka alone."""
    found = {path.name[:4] for path in folder.glob("0[0-9][0-9][0-9]-*.c*") if "mock" not in path.name}
    return sorted(number for number in found if number < _SHARE_GROUPS_FROM)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_librdkafkas_own_tests_pass_but_those_that_want_another_setup(tmp_path: Path) -> None:
    named = os.environ.get("MILLSTREAM_LIBRDKAFKA_TESTS")
    if not named or not Path(named, "test-runner").exists():
        pytest.skip("MILLSTREAM_LIBRDKAFKA_TESTS names no folder with librdkafka's built tests")
    folder, configuration = Path(named), tmp_path / "test.conf"
    libraries = ":".join(str(folder.parent / name) for name in ("src", "src-cpp"))
    failed: dict[str, str] = {}
    with ProductCluster(tmp_path) as cluster:
        configuration.write_text(
            f"metadata.broker.list={cluster.address}\ntest.topic.random=true\ntest.timeout.multiplier=3\n"
        )
        for number in _numbers(folder):
            environment = {"TESTS": number, "RDKAFKA_TEST_CONF": str(configuration), "LD_LIBRARY_PATH": libraries}
            try:
                code, said = run(["./test-runner", "-p1", "-Q", "-E"], folder, timeout_s=180, **environment)
            except subprocess.TimeoutExpired:
                code, said = 1, "it does not end"
            if code:
                failed[number] = said[-1500:]
        assert "Traceback" not in cluster.said
    assert failed.keys() <= _EXPECTED.keys(), {number: failed[number] for number in failed.keys() - _EXPECTED.keys()}
