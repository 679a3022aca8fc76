"""The tests that come with franz-go's client, those among them that move all records through chains of groups and of
transactions while members come and go."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from .go_modules import GoTests
from .serving import Product, ProductCluster, count_of

_VERSION: Final = "v1.22.2"
_WITHIN_S: Final = 1500.0


def _served(nodes: int, folder: Path) -> AbstractContextManager[Product | ProductCluster]:
    return Product(folder / "data") if nodes == 1 else ProductCluster(folder)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("nodes", [1, 3])
def test_franz_go_finds_nothing_wrong(tmp_path: Path, nodes: int) -> None:
    """Tests of share groups are skipped by themselves, as there are none."""
    tests = GoTests("github.com/twmb/franz-go", _VERSION, "pkg/kgo")
    with _served(nodes, tmp_path) as served:
        results = tests.run(
            "",
            within_s=_WITHIN_S,
            KGO_SEEDS=served.address,
            KGO_TEST_RF=str(nodes),
            KGO_TEST_RECORDS=str(count_of("FRANZ_GO_RECORDS", 5_000)),
            KGO_LOG_LEVEL="none",
        )
        assert "Traceback" not in served.said
    assert not results.those("FAIL"), str(results)
    assert {"TestGroupETL", "TestTxnEtl", "Test848RegexBrokerResolves"} <= results.those("PASS"), str(results)
