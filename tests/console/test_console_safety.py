"""What the console does with hostile content, with users, without a mouse, and with very much of everything."""

from __future__ import annotations

import importlib.resources
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cheap_hashes import cheap_hash
from console_lab import LONG, SCRIPT, Console, ConsoleLab
from playwright.sync_api import Page, Route, expect
from repository import REPOSITORY

from millstream.server.security.access import hash_token

PAGES = (
    "overview", "queries", "queries/CSAS_BIG_1", "sources", "sources/BIG", "topics", "topics/clicks", "graph", "editor",
    "groups", "connectors", "connectors/DEMO_ORDERS", "mirrors", "mirrors/DEMO_MIRROR", "registry",
    "registry/contracts-value", "cluster", "log", "settings",
)  # fmt: skip
AXE = {  # what the scheme changes are colours
    "light": "{ resultTypes: ['violations'] }",
    "dark": "{ resultTypes: ['violations'], runOnly: ['color-contrast', 'link-in-text-block'] }",
}
PASSWORD = "open sesame"
ACCESS = {
    "users": {
        "root": {"password": cheap_hash(PASSWORD), "tokens": [hash_token("rooted")], "roles": ["admin"]},
        "ana": {"password": cheap_hash(PASSWORD), "roles": ["reader"]},
    },
    "roles": {"admin": {"admin": True}, "reader": {"read": ["pub*"]}},
}
SECRETS = """
CREATE STREAM pub (id INT KEY, v INT) WITH (kafka_topic='pub', value_format='JSON', partitions=1);
CREATE STREAM secret (id INT KEY, v INT) WITH (kafka_topic='secret', value_format='JSON', partitions=1);
"""


# ---------------------------------------------------------------- hostile content


def test_markup_in_records_is_text(console: Console) -> None:
    page = console.open("topics/hostile")
    row = console.grid("Records").locator("[role=row]", has_text="<script>")
    expect(row).to_contain_text("<script>")
    row.locator("[role=gridcell]").first.click()
    expect(page.locator("dialog pre").first).to_contain_text("<script>")
    assert page.locator("main script, main img, dialog img, dialog script").count() == 0
    assert page.title() == "hostile · Millstream"


def test_markup_in_live_rows_is_text(console: Console) -> None:
    page = console.open("editor?sql=SELECT%20*%20FROM%20hostile%20EMIT%20CHANGES%3B")
    page.get_by_role("button", name="Run").click()
    texts = [cell for row in console.rows("Rows", 5) for cell in row]
    assert SCRIPT in texts
    assert page.locator("main script, main img").count() == 0
    assert page.title() == "Editor · Millstream"


def test_links_in_records_are_no_links(console: Console) -> None:
    page = console.open("topics/hostile")
    console.rows("Records", 5)
    assert page.locator("a[href^='javascript' i]").count() == 0


def test_characters_that_reorder_or_hide_text_are_spelled_out(console: Console) -> None:
    console.open("topics/hostile")
    console.rows("Records", 5)
    shown = console.grid("Records").inner_text()
    assert "U+202E" in shown and "U+2066" in shown and "U+200B" in shown
    assert "U+0007" in shown and "U+001B" in shown
    assert not {"\u202e", "\u2066", "\u200b", "\u0007", "\u001b", "\u0000"} & set(shown)


def test_a_cell_of_a_megabyte_is_cut_and_can_be_read_whole(console: Console) -> None:
    page = console.open("topics/hostile")
    more = console.grid("Records").get_by_role("button", name="characters")
    expect(more).to_have_text("1,000,011 characters")
    more.click()
    expect(page.locator("dialog .soft")).to_have_text("1,000,011 characters")
    assert len(page.locator("dialog pre").inner_text()) < 30_000
    page.get_by_role("button", name="Show more").click()
    expect(page.get_by_role("button", name="Show more")).to_contain_text("characters left")


def test_a_megabyte_in_a_live_row_is_cut(console: Console) -> None:
    page = console.open("editor?sql=SELECT%20*%20FROM%20hostile%20WHERE%20k%3D'long'%20EMIT%20CHANGES%3B")
    page.get_by_role("button", name="Run").click()
    (row,) = console.rows("Rows")
    assert len(row[1]) < 300 and row[1].startswith(f"{len(LONG):,} characters")


def test_headers_of_records_are_text(console: Console) -> None:
    page = console.open("topics/hostile")
    console.grid("Records").locator("[role=row]", has_text="long").locator("[role=gridcell]").first.click()
    expect(page.locator("dialog table")).to_contain_text("<script>")
    assert page.locator("dialog img").count() == 0


def test_names_of_streams_are_text(console: Console) -> None:
    page = console.open("sources")
    page.get_by_role("link", name="<img src=x onerror=alert(1)>").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("<img src=x onerror=alert(1)>")
    expect(page.locator(".facts")).to_contain_text("STREAM")
    assert page.locator("main img").count() == 0


def test_errors_with_markup_are_text(console: Console) -> None:
    page = console.open("log")
    expect(console.grid("Errors of records")).to_contain_text("CSAS_MENDED_10")
    page.goto(f"{console.url}/console/#/queries/{'%3Cimg%20src=x%20onerror=alert(1)%3E'}")
    expect(page.get_by_role("alert")).to_contain_text("<img")
    assert page.locator("main img").count() == 0


def test_no_text_can_become_markup_even_by_mistake(console: Console) -> None:
    page = console.open()
    refused = page.evaluate("""() => {
        const node = document.createElement('div');
        try { node.innerHTML = '<b>x</b>'; return 'taken'; } catch (error) { return error.constructor.name; }
    }""")
    assert refused == "TypeError"
    console.problems = [problem for problem in console.problems if "TrustedHTML" not in problem]


def test_code_in_the_page_does_not_run(console: Console) -> None:
    page = console.open()
    ran = page.evaluate("""async () => {
        const script = document.createElement('script');
        try { script.textContent = 'window.ran = true'; } catch { /* Trusted Types */ }
        script.setAttribute('nonce', 'guess');
        document.body.append(script);
        await new Promise((resolve) => setTimeout(resolve, 50));
        return window.ran === true;
    }""")
    assert ran is False
    assert console.problems
    console.problems.clear()


def test_nothing_is_asked_of_other_hosts(console: Console) -> None:
    """`Console` asserts it in every test; here is that it looks."""
    for path in ("overview", "queries"):
        with console.page.expect_request("**/ksql"):  # its files the browser may have already
            console.open(path)
    assert any(url.endswith("/ksql") for url in console.asked)
    assert all(url.startswith((console.url, "about:", "data:")) for url in console.asked)


def test_another_page_can_neither_ask_nor_read(console: Console, lab: ConsoleLab) -> None:
    elsewhere = lab.serve()
    with lab.console(f"http://{elsewhere.http_address}") as other:
        page = other.open("editor")
        answer = page.evaluate(
            """async (url) => {
                const headers = { 'content-type': 'application/json' };
                const post = { method: 'POST', body: '{"ksql": "SHOW STREAMS;"}', headers };
                const tried = (asking) => asking.then(() => 'read', () => 'refused');
                return [await tried(fetch(url + '/ksql', post)), await tried(fetch(url + '/metrics'))];
            }""",
            console.url,
        )
        assert answer == ["refused", "refused"]
        other.problems.clear()  # a policy of our own pages has refused it first


# ---------------------------------------------------------------- users


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from running_server import service_in

    with service_in(tmp_path_factory.mktemp("guarded"), access=ACCESS) as service:
        import httpx

        url = f"http://{service.http_address}"
        httpx.post(f"{url}/ksql", json={"ksql": SECRETS}, auth=("root", PASSWORD), timeout=60).raise_for_status()
        yield url


@pytest.fixture
def visitor(lab: ConsoleLab, guarded: str) -> Iterator[Console]:
    """Somebody who has the console's files already, and is not logged in."""
    with lab.shared_console(guarded) as console:
        yield console
        console.page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        console.page.goto("about:blank")
        console.context.clear_cookies()


def log_in(page: Page, name: str, password: str = PASSWORD) -> None:
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Log in").click()


def test_a_login_leads_to_the_page_that_was_asked_for(visitor: Console) -> None:
    page = visitor.open("sources")
    log_in(page, "root", "wrong")
    expect(page.get_by_role("alert")).to_contain_text("the name, the password or the token is wrong")
    log_in(page, "root")
    assert [row[0] for row in visitor.rows("Streams and tables", 2)] == ["PUB", "SECRET"]
    expect(page.locator(".who")).to_have_text("root")
    assert PASSWORD not in page.url
    kept = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
    assert PASSWORD not in kept and "Basic" not in kept
    assert visitor.context.cookies() == []


def test_a_token_is_a_login(visitor: Console) -> None:
    page = visitor.open("sources")
    page.get_by_text("With a token").click()
    page.get_by_label("Token", exact=True).fill("rooted")
    page.get_by_role("button", name="Log in").click()
    visitor.rows("Streams and tables", 2)


def test_a_reader_sees_what_he_may_read(visitor: Console, guarded: str) -> None:
    page = visitor.open("sources")
    log_in(page, "ana")
    assert [row[0] for row in visitor.rows("Streams and tables")] == ["PUB"]
    page.goto(f"{guarded}/console/#/topics/secret")
    expect(page.get_by_role("alert").first).to_contain_text('ana has no right "read" on secret')
    page.goto(f"{guarded}/console/#/settings")
    expect(page.get_by_role("region", name="Users and rights")).to_contain_text("pub*")
    expect(page.get_by_role("region", name="Users and rights")).not_to_contain_text("root")


def test_a_login_that_is_no_longer_good_is_asked_for_again(visitor: Console) -> None:
    page = visitor.open("sources")
    log_in(page, "root")
    visitor.rows("Streams and tables", 2)
    refusal = {
        "@type": "generic_error",
        "error_code": 40100,
        "message": "the name, the password or the token is wrong",
    }
    page.route("**/ksql", lambda route: route.fulfill(status=401, json=refusal))
    page.get_by_role("link", name="Queries").click()
    expect(page.get_by_role("heading", name="Log in to Millstream")).to_be_visible()
    page.unroute("**/ksql")
    log_in(page, "root")
    expect(page.locator(".bar [role=status]")).to_have_text("0 of 0")


def test_logging_out_forgets(visitor: Console) -> None:
    page = visitor.open("sources")
    log_in(page, "root")
    visitor.rows("Streams and tables", 2)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in to Millstream")).to_be_visible()
    expect(page.locator("main")).not_to_contain_text("SECRET")


# ---------------------------------------------------------------- eyes and hands


@pytest.fixture(scope="module")
def axe() -> str:
    package = pytest.importorskip("axe_playwright_python", reason="needs axe: pip install -e '.[dev]'")
    return (importlib.resources.files(package) / "axe.min.js").read_text(encoding="utf-8")


def _picture(path: str) -> str:
    return f"{path.replace('/', '-').lower()}.png"


def test_the_docs_have_a_picture_of_each_page_light_and_dark() -> None:
    text = (REPOSITORY / "docs/console.md").read_text(encoding="utf-8")
    for scheme in ("light", "dark"):
        found = {file.name for file in (REPOSITORY / "docs/images/pages" / scheme).iterdir()}
        assert found == set(map(_picture, PAGES))
        assert [name for name in found if f"images/pages/{scheme}/{name}" not in text] == []


@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_serious_light_or_dark(lab: ConsoleLab, axe: str, path: str, tmp_path: Path) -> None:
    """With a picture of each page, and with a dark one where MILLSTREAM_CONSOLE_SHOTS says where they go:
    docs/images/pages has them."""
    shots = os.environ.get("MILLSTREAM_CONSOLE_SHOTS")
    folder = Path(shots or tmp_path)
    with lab.shared_console(bypass_csp=True, reduced_motion="reduce") as console:
        page = console.open(path)
        page.wait_for_timeout(500)
        if not page.evaluate("'axe' in window"):
            page.evaluate(axe + "; undefined")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            if shots or scheme == "light":
                (folder / scheme).mkdir(exist_ok=True)
                shot = page.screenshot(path=folder / scheme / _picture(path))
                assert len(shot) > 8_000
            found = page.evaluate(f"axe.run(document, {AXE[scheme]})")["violations"]
            told = [(each["id"], each["impact"], [node["html"][:120] for node in each["nodes"][:3]]) for each in found]
            assert [each for each in told if each[1] in ("serious", "critical")] == [], scheme


def test_the_keyboard_reaches_rows_and_opens_them(console: Console) -> None:
    page = console.open("queries")
    second = console.rows("Queries", 5)[1][0]
    console.grid("Queries").focus()
    page.keyboard.press("End")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".grid-row.active [role=gridcell]").first).to_have_text(second)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(second)
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_the_first_tab_skips_the_navigation(console: Console) -> None:
    page = console.open(load=True)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_a_dialog_keeps_the_focus_and_gives_it_back(console: Console) -> None:
    page = console.open("queries/CSAS_BIG_1")
    expect(page.locator(".bar .state")).to_have_text("RUNNING")
    page.get_by_role("button", name="Terminate").focus()
    page.keyboard.press("Enter")
    expect(page.locator("dialog").get_by_role("button", name="Run")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Terminate")).to_be_focused()


@pytest.fixture
def dark(console: Console) -> Iterator[Console]:
    """On a system with dark colours, for somebody who has not chosen any."""
    console.page.emulate_media(color_scheme="dark")
    yield console
    console.page.evaluate("localStorage.clear()")
    console.page.emulate_media(color_scheme="light")
    console.page.goto("about:blank")


def test_colours_follow_the_system_until_somebody_chooses(dark: Console) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    page = dark.open("settings", load=True)
    before = page.evaluate(background)
    button = page.get_by_role("button", name="Colours")
    button.click()
    assert page.evaluate(background) != before
    button.click()
    assert page.evaluate(background) == before
    page.reload()
    expect(button).to_have_text("☾ Colours: dark")


@pytest.fixture
def narrow(console: Console) -> Iterator[Console]:
    before = console.page.viewport_size
    assert before is not None
    console.page.set_viewport_size({"width": 420, "height": 800})
    yield console
    console.page.set_viewport_size(before)


def test_a_narrow_screen_needs_no_scrolling_sideways(narrow: Console) -> None:
    for path in ("overview", "queries", "topics/clicks", "editor"):
        page = narrow.open(path)
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_a_proxy_may_serve_it_below_a_path(lab: ConsoleLab) -> None:
    front = "http://localhost:1/deep/millstream"

    def passed_on(route: Route) -> None:
        """As a proxy does that keeps the host."""
        url = lab.url + route.request.url.removeprefix(front)
        headers = {**route.request.all_headers(), "host": "localhost:1"}
        route.fulfill(response=route.fetch(url=url, headers=headers, max_redirects=0))

    with lab.console(front) as console:
        console.page.route("**/*", passed_on)
        console.open("sources/BIG")
        assert len(console.rows("Columns", 3)) == 3
        assert any(url.endswith("/deep/millstream/ksql") for url in console.asked)


# ---------------------------------------------------------------- very much


def answer(entities: list[dict[str, Any]]) -> Any:
    def fulfil(route: Route) -> None:
        route.fulfill(status=200, content_type="application/json", body=json.dumps(entities))

    return fulfil


def test_twenty_thousand_topics_are_listed_and_searched(console: Console) -> None:
    topics = [
        {"name": f"topic-{number:05}", "replicaInfo": [1] * 3, "consumerCount": 0, "consumerGroupCount": 0}
        for number in range(20_000)
    ]
    console.page.route("**/ksql", answer([{"@type": "kafka_topics_extended", "statementText": "", "topics": topics}]))
    page = console.open("topics")
    expect(page.locator(".bar [role=status]")).to_have_text("20,000 of 20,000")
    console.rows("Topics", 5)
    assert page.locator("main [role=row]").count() < 80
    console.grid("Topics").focus()
    page.keyboard.press("End")
    expect(page.locator(".grid-row.active")).to_contain_text("topic-19999")
    took = page.evaluate("""async () => {
        const began = performance.now();
        const field = document.querySelector('input[type=search]');
        field.value = 'topic-1234';
        field.dispatchEvent(new Event('input'));
        await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
        return performance.now() - began;
    }""")
    expect(page.locator(".bar [role=status]")).to_have_text("10 of 20,000")
    assert took < 1000  # about 30 on a machine with nothing else to do


@pytest.mark.parametrize(
    "limit_ms", [10_000, pytest.param(1_000, marks=pytest.mark.soak)], ids=["beside other work", "on a quiet machine"]
)
def test_the_first_view_with_a_hundred_topics_is_there_soon(lab: ConsoleLab, limit_ms: int) -> None:
    """Of three visits by browsers that have none of its files, the fastest: other work may hold up one of them."""
    crowded = lab.serve()
    for number in range(100):
        crowded.engine.log.create_topic(f"topic-{number:03}", 1)
    took: list[float] = []
    while len(took) < 3 and min(took, default=limit_ms) >= limit_ms:
        with lab.console(f"http://{crowded.http_address}") as console:
            page = console.open("topics")
            expect(page.locator(".bar [role=status]")).to_have_text(re.compile(r"^1\d\d of 1\d\d$"))
            console.rows("Topics", 5)
            took.append(page.evaluate("performance.now()"))  # since the navigation began
    print("first view:", ", ".join(f"{ms:.0f} ms" for ms in took))
    assert min(took) < limit_ms


def test_two_thousand_queries_are_listed_sorted_and_searched(console: Console) -> None:
    queries = [
        {"id": f"CSAS_Q_{number}", "queryString": f"SELECT {number};", "state": "RUNNING", "executor": "duckdb",
         "sinks": [f"Q_{number}"], "sinkKafkaTopics": [], "queryType": "PERSISTENT", "statusCount": {}}
        for number in range(2_000)
    ]  # fmt: skip
    console.page.route("**/ksql", answer([{"@type": "queries", "statementText": "", "queries": queries}]))
    page = console.open("queries")
    expect(page.locator(".bar [role=status]")).to_have_text("2,000 of 2,000")
    page.get_by_role("columnheader", name="Query").get_by_role("button").click()
    assert console.rows("Queries", 5)[0][0] == "CSAS_Q_0"
    page.get_by_label("Search queries and statements").fill("SELECT 1999")
    expect(page.locator(".bar [role=status]")).to_have_text("1 of 2,000")


def test_the_heap_stays_flat_while_a_page_looks_again_and_again(console: Console) -> None:
    page = console.open("queries")
    console.rows("Queries", 5)
    size = "() => { gc(); return performance.memory.usedJSHeapSize; }"
    visit = """async () => {
        for (const path of ['topics', 'sources', 'groups', 'settings', 'queries/CSAS_BIG_1', 'editor', 'queries']) {
            location.hash = `#/${path}`;
            await new Promise((resolve) => setTimeout(resolve, 120));
        }
    }"""
    page.evaluate(visit)
    before = page.evaluate(size)
    for _ in range(3):
        page.evaluate(visit)
    assert page.evaluate(size) - before < 1_500_000
