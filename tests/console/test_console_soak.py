"""A live page for twenty minutes: 10,000 rows a second, at most ten redraws a second, and a heap that stays flat.

MILLSTREAM_SOAK_CONSOLE_SECONDS changes how long.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from typing import Final

import pyarrow as pa
import pytest
from console_lab import Console, ConsoleLab
from playwright.sync_api import expect

from millstream.server.engine.session import Session

SECONDS: Final = float(os.environ.get("MILLSTREAM_SOAK_CONSOLE_SECONDS", "1200"))
ROWS_PER_SECOND: Final = 10_000
_BATCHES_PER_SECOND: Final = 10
_LOOKS: Final = 40
_REDRAWS_MAX: Final = 10.5  # a second; a timer of 100 ms is not exact
_HEAP_GROWTH_MAX: Final = 3_000_000  # bytes, between the second quarter and the last one


@pytest.mark.soak
def test_ten_thousand_rows_a_second_are_ten_redraws_a_second_and_a_flat_heap(lab: ConsoleLab) -> None:
    options = "kafka_topic='torrent', value_format='JSON', partitions=1"
    lab.ksql(f"CREATE STREAM torrent (k INT KEY, v BIGINT) WITH ({options});")
    done = threading.Event()
    sent: list[int] = []
    with lab.console() as console:
        _start(console)
        writer = threading.Thread(target=_write, args=(lab, done, sent))
        writer.start()
        try:
            heaps, redraws = _watched(console, SECONDS)
        finally:
            done.set()
            writer.join()
        received = f"{sum(sent):,} rows"
        console.until("text => document.querySelector('.answer .soft').textContent.startsWith(text)", received)
    rate = sum(sent) / SECONDS
    quarter = max(1, len(heaps) // 4)
    growth = statistics.median(heaps[-quarter:]) - statistics.median(heaps[quarter : 2 * quarter])
    print(
        f"{rate:,.0f} rows/s, {redraws:.1f} redraws/s, heap {growth / 1e6:+.2f} MB, {min(heaps) / 1e6:.1f} MB at least"
    )
    assert redraws <= _REDRAWS_MAX
    assert growth < _HEAP_GROWTH_MAX, heaps


def _start(console: Console) -> None:
    page = console.open("editor")
    page.get_by_role("combobox", name="SQL", exact=True).fill("SELECT k, v FROM torrent EMIT CHANGES;")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".live-state")).to_have_text("live")
    page.evaluate("""() => {
        window.drawn = 0;
        new MutationObserver(() => drawn++)
            .observe(document.querySelector('.answer .soft'), { childList: true, characterData: true, subtree: true });
    }""")


def _write(lab: ConsoleLab, done: threading.Event, sent: list[int]) -> None:
    rows = ROWS_PER_SECOND // _BATCHES_PER_SECOND
    table = pa.table({"K": pa.array(range(rows), pa.int32()), "V": pa.array(range(rows), pa.int64())})
    due = time.monotonic()
    while not done.wait(max(0.0, due - time.monotonic())):
        sent.append(lab.service.engine.insert("TORRENT", table, Session()))
        due += 1 / _BATCHES_PER_SECOND


def _watched(console: Console, seconds: float) -> tuple[list[int], float]:
    """The heap in bytes at each look, after a collection; and redraws a second."""
    heaps: list[int] = []
    began = time.monotonic()
    for look in range(1, _LOOKS + 1):
        console.page.wait_for_timeout(max(0.0, began + look * seconds / _LOOKS - time.monotonic()) * 1000)
        heaps.append(console.page.evaluate("() => { gc(); return performance.memory.usedJSHeapSize; }"))
    redraws = console.page.evaluate("drawn")
    return heaps, redraws / (time.monotonic() - began)
