"""The editor of the console: statements in, answers and live rows out."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable

import httpx
import pyarrow as pa
import pytest
from console_lab import BIG, Console, ConsoleLab
from playwright.sync_api import Locator, Page, expect
from running_server import service_in
from waiting import eventually

ARROW = {"content-type": "application/vnd.apache.arrow.stream"}


def sql(page: Page) -> Locator:
    return page.get_by_role("combobox", name="SQL", exact=True)


def run(console: Console, text: str) -> Page:
    page = console.open("editor")
    sql(page).fill(text)
    page.get_by_role("button", name="Run").click()
    return page


def push_queries(lab: ConsoleLab) -> float:
    lines = lab.http.get("/metrics", params={"name[]": "millstream_client_queries"}).text.splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if 'kind="push"' in line)


def insert_rows(lab: ConsoleLab, name: str, count: int, first: int = 0) -> None:
    table = pa.table({"K": pa.array(range(first, first + count), pa.int32()), "V": pa.array([7] * count, pa.int64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    httpx.post(
        f"{lab.url}/v1/sources/{name}/rows", content=sink.getvalue().to_pybytes(), headers=ARROW
    ).raise_for_status()


def test_a_list_is_a_table(console: Console) -> None:
    run(console, "SHOW TABLES;")
    assert [row[1] for row in console.rows("Answer", 3)] == ["PER_PAGE", "PER_URL", "PER_USER"]


def test_a_change_is_told_in_words(console: Console, lab: ConsoleLab) -> None:
    page = run(console, "CREATE STREAM told (k INT KEY) WITH (kafka_topic='told', value_format='JSON', partitions=1);")
    expect(page.locator(".done")).to_have_text("Stream created")
    lab.ksql("DROP STREAM told;")


def test_an_error_has_its_hint_and_its_place_is_marked(console: Console) -> None:
    page = run(console, "SHOW STREAMS;\nSELECT usr FROM clicks EMIT CHANGES;")
    error = page.get_by_role("alert")
    expect(error).to_contain_text("'USR' cannot be resolved")
    expect(error.locator("pre")).to_contain_text("^^^")
    expect(error.locator(".hint")).to_contain_text('Did you mean "USER"?')
    marked = sql(page).evaluate("field => field.value.slice(field.selectionStart, field.selectionEnd)")
    assert marked == "usr"


def test_statements_run_one_after_the_other_until_one_fails(console: Console) -> None:
    page = run(console, "SHOW TYPES;\n-- a comment; with a semicolon\nSHOW NONSENSE;\nSHOW TABLES;")
    expect(page.get_by_role("alert")).to_contain_text("NONSENSE")
    expect(page.locator(".answer")).to_have_count(2)


def test_what_is_selected_runs_alone(console: Console) -> None:
    page = console.open("editor")
    sql(page).fill("SHOW NONSENSE;\nSHOW TABLES;")
    sql(page).evaluate("field => field.setSelectionRange(15, 27)")
    sql(page).press("Control+Enter")
    assert [row[1] for row in console.rows("Answer", 3)] == ["PER_PAGE", "PER_URL", "PER_USER"]


def test_a_pull_query_ends_with_its_rows(console: Console) -> None:
    page = run(console, "SELECT url, n, total FROM per_url WHERE url = '/shop';")
    assert console.rows("Rows") == [["/shop", "1", "20"]]
    expect(page.locator(".live-state")).to_have_text("ended")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()


def test_a_push_query_keeps_a_row_for_each_key_until_it_is_stopped(console: Console, lab: ConsoleLab) -> None:
    page = run(console, "SELECT page, n FROM per_page EMIT CHANGES;")
    expect(page.locator(".live-state")).to_have_text("live")
    console.rows("Rows", 2)
    lab.ksql("INSERT INTO visits VALUES ('eve', '/live');")
    lab.ksql("INSERT INTO visits VALUES ('eve', '/live');")
    row = console.grid("Rows").locator("[role=row]", has_text="/live")
    expect(row.locator("[role=gridcell]").nth(1)).to_have_text("2")
    expect(row).to_have_count(1)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".live-state")).to_have_text("stopped")
    eventually(lambda: push_queries(lab) == 0)


def test_leaving_the_page_ends_its_query(console: Console, lab: ConsoleLab) -> None:
    page = run(console, "SELECT * FROM clicks EMIT CHANGES;")
    expect(page.locator(".live-state")).to_have_text("live")
    assert push_queries(lab) == 1
    page.get_by_role("link", name="Overview").click()
    eventually(lambda: push_queries(lab) == 0)


def test_rows_are_drawn_as_a_chart(console: Console) -> None:
    page = run(console, "SELECT url, n FROM per_url EMIT CHANGES;")
    console.rows("Rows", 2)
    page.get_by_role("button", name="Chart").click()
    expect(page.locator(".plot svg rect").first).to_be_visible()
    expect(page.locator(".plot svg")).to_have_attribute("aria-label", re.compile("Bars of N over URL"))
    page.get_by_role("button", name="Table").click()
    expect(console.grid("Rows")).to_be_visible()


def test_deleted_rows_of_a_table_go(console: Console, lab: ConsoleLab) -> None:
    lab.ksql(
        "CREATE TABLE spans (k INT PRIMARY KEY, v BIGINT)"
        " WITH (kafka_topic='spans', value_format='JSON', partitions=1);"
        "CREATE TABLE spans_too AS SELECT * FROM spans;"
        "INSERT INTO spans VALUES (1, 2); INSERT INTO spans VALUES (2, 3);"
    )
    page = run(console, "SELECT * FROM spans_too EMIT CHANGES;")
    console.rows("Rows", 2)
    lab.ksql("DELETE FROM spans WHERE k = 1;")
    expect(page.locator(".answer .soft").first).to_contain_text("1 deleted")
    assert console.rows("Rows") == [["2", "3"]]
    lab.ksql("DROP TABLE spans_too CASCADE; DROP TABLE spans;")


def test_print_shows_records_as_lines(console: Console) -> None:
    page = run(console, "PRINT clicks FROM BEGINNING LIMIT 2;")
    expect(page.locator(".live-state")).to_have_text("ended")
    assert any("rowtime: 1970/01/01" in row[0] for row in console.rows("Rows", 2))


def test_large_numbers_keep_their_digits(console: Console) -> None:
    run(console, "SELECT * FROM numbers EMIT CHANGES;")
    assert console.rows("Rows") == [["1", BIG, "3.50"]]


def test_completion_knows_which_keywords_may_follow(console: Console) -> None:
    page = console.open("editor")
    sql(page).fill("SELECT * FROM clicks EMIT ")
    sql(page).press("Control+Space")
    options = page.locator(".completions [role=option]")
    expect(options.filter(has_text="CHANGES")).to_be_visible()
    expect(options.filter(has_text="FINAL")).to_be_visible()
    expect(options.filter(has_text="CREATE")).to_have_count(0)


def test_completion_takes_names_with_the_keyboard(console: Console) -> None:
    page = console.open("editor")
    sql(page).fill("")
    sql(page).press_sequentially("SELECT * FROM per_ur")
    expect(page.locator(".completions [role=option]", has_text="PER_URL")).to_have_attribute("aria-selected", "true")
    sql(page).press("Enter")
    expect(sql(page)).to_have_value("SELECT * FROM PER_URL ")
    expect(sql(page)).to_have_attribute("aria-expanded", "false")


def test_escape_closes_the_list_and_tab_moves_on(console: Console) -> None:
    page = console.open("editor")
    sql(page).fill("SEL")
    sql(page).press("Control+Space")
    expect(page.locator(".completions [role=option]", has_text="SELECT")).to_be_visible()
    sql(page).press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()
    sql(page).press("Tab")
    expect(page.get_by_role("button", name="Run")).to_be_focused()


def test_earlier_statements_come_back(console: Console) -> None:
    page = run(console, "SHOW TYPES;")
    expect(page.locator(".entity")).to_be_visible()
    sql(page).fill("SHOW TABLES;")
    page.get_by_label("Earlier statements").select_option("0")
    expect(sql(page)).to_have_value("SHOW TYPES;")


def test_the_text_stays_while_other_pages_are_looked_at(console: Console) -> None:
    page = console.open("editor")
    sql(page).fill("SELECT 'draft'")
    page.get_by_role("link", name="Topics", exact=True).click()
    page.get_by_role("link", name="Editor", exact=True).click()
    expect(sql(page)).to_have_value("SELECT 'draft'")


def test_many_rows_are_drawn_at_most_ten_times_a_second_and_bounded(console: Console, lab: ConsoleLab) -> None:
    lab.ksql("CREATE STREAM flood (k INT KEY, v BIGINT) WITH (kafka_topic='flood', value_format='JSON', partitions=1);")
    page = run(console, "SELECT k, v FROM flood EMIT CHANGES;")
    expect(page.locator(".live-state")).to_have_text("live")
    page.evaluate("""() => {
        window.drawn = [];
        new MutationObserver(() => drawn.push(performance.now()))
            .observe(document.querySelector('.answer .soft'), { childList: true, characterData: true, subtree: true });
    }""")
    for batch in range(10):
        insert_rows(lab, "FLOOD", 3000, batch * 3000)
    console.until("() => document.querySelector('.answer .soft').textContent.startsWith('30,000 rows')")
    drawn = page.evaluate("drawn")
    gaps = sorted(after - before for before, after in itertools.pairwise(drawn))
    assert gaps[0] > 60, gaps[:5]
    expect(page.locator(".answer .soft").first).to_contain_text("1,000 kept, the newest")
    assert console.rows("Rows", 5)[0] == ["29999", "7"]
    assert page.locator(".grid-rows > [role=row]").count() < 60


def test_memory_does_not_grow_with_the_rows_that_pass(console: Console) -> None:
    page = console.open("editor")
    grown = page.evaluate("""async () => {
        const { LiveRows } = await import('./live-rows.js');
        const header = { kind: 'PUSH', queryId: 'q', columnNames: ['K', 'V'], columnTypes: ['INTEGER', 'STRING'] };
        header.keyColumns = null;
        const rows = new LiveRows(1000);
        rows.take([JSON.stringify(header)]);
        const feed = (times) => {
            for (let at = 0; at < times; at++) {
                rows.take(Array.from({ length: 1000 }, (_, i) => JSON.stringify([at * 1000 + i, 'value '.repeat(20)])));
                rows.rows();
            }
            gc();
            return performance.memory.usedJSHeapSize;
        };
        const early = feed(20);
        return { bytes: feed(180) - early, kept: rows.rows().length, received: rows.received };
    }""")
    assert (grown["kept"], grown["received"]) == (1000, 200_000)
    assert grown["bytes"] < 1_000_000


def test_a_server_that_dies_among_the_rows_is_shown_and_found_again(
    lab: ConsoleLab, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("dying")
    server = service_in(folder)
    server.start()
    address = str(server.http_address)
    url = f"http://{address}"
    stream = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
    httpx.post(f"{url}/ksql", json={"ksql": stream}, timeout=60).raise_for_status()
    httpx.post(f"{url}/ksql", json={"ksql": "INSERT INTO s VALUES (1, 2);"}, timeout=60).raise_for_status()
    again = None
    try:
        with lab.console(url) as console:
            page = run(console, "SELECT * FROM s EMIT CHANGES;")
            console.rows("Rows")
            during(page, server.stop)
            expect(page.locator(".live-state")).to_have_text("reconnecting …")
            expect(page.locator(".lost")).to_contain_text("The server does not answer")
            assert console.rows("Rows") == [["1", "2"]]
            again = service_in(folder, http=address)
            during(page, again.start)
            expect(page.locator(".lost")).to_be_hidden()
            expect(page.locator(".live-state")).to_have_text("live")
            httpx.post(f"{url}/ksql", json={"ksql": "INSERT INTO s VALUES (3, 4);"}, timeout=60).raise_for_status()
            assert sorted(console.rows("Rows", 2)) == [["1", "2"], ["3", "4"]]
            page.get_by_role("button", name="Stop").click()
            expect(page.locator(".live-state")).to_have_text("stopped")
    finally:
        server.stop()
        if again is not None:
            again.stop()


def during(page: Page, act: Callable[[], None]) -> None:
    """The browser goes on meanwhile: Playwright's events are handled only while it is asked."""
    thread = threading.Thread(target=act)
    thread.start()
    deadline = time.monotonic() + 60
    while thread.is_alive() and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    thread.join()
