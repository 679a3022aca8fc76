"""Snippets of pages without a test of their own: configurations load, sessions and commands print what stands there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import warm_command
from repository import REPOSITORY
from running_server import service_in
from waiting import eventually

from millstream.server.config.configuration import load_configuration
from millstream.server.engine.session import Session
from millstream.server.security.access import hash_password, hash_token
from millstream.server.service import Service

DOCS = REPOSITORY / "docs"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    # millstream.toml.*\n(?:    .*\n|\n(?=    ))+", re.MULTILINE)

TESTED = {
    "tests/docs/test_connector_sdk_page.py": ("connector-sdk",),
    "tests/docs/test_cluster_page.py": ("backup", "cluster", "growing"),
    "tests/docs/test_connectors_page.py": ("connectors",),
    "tests/docs/test_examples.py": ("beyond-ksqldb", "pull-queries", "replacing-queries"),
    "tests/docs/test_explain_page.py": ("explain",),
    "tests/docs/test_mcp_page.py": ("mcp",),
    "tests/docs/test_mysql_page.py": ("mysql",),
    "tests/docs/test_mirrors_page.py": ("mirrors",),
    "tests/docs/test_pages.py": ("configuration", "http", "kafka", "migrations", "schema-registry", "shell"),
    "tests/docs/test_postgres_page.py": ("postgres",),
    "tests/docs/test_rest_proxy_page.py": ("rest-proxy",),
    "tests/docs/test_tutorials_page.py": ("tutorials",),
    "tests/integrations/test_dbt.py": ("dbt",),
    "tests/logcore/suites/test_kafka_shares.py": ("share-groups",),
    "tests/architecture/test_function_reference.py": ("functions",),
    "tests/millstream/test_function_docs.py": ("python-functions",),
    "tests/millstream/test_python_page.py": ("python",),
    "tests/millstream/test_spark_data_frames.py": ("spark",),
    "tests/millstream/test_sql_tests.py": ("sql-tests",),
    "tests/notebooks/test_notebook_page.py": ("notebooks",),
}
"""The pages with code in fences, by the test that runs it."""


def test_each_page_with_code_has_a_test_that_runs_it() -> None:
    tested = [page for pages in TESTED.values() for page in pages]
    assert sorted(tested) == sorted(page.stem for page in DOCS.glob("*.md") if FENCE.search(text_of(page.stem)))
    missing = [test for test in TESTED if not (REPOSITORY / test).is_file()]
    assert missing == []
    unread = [
        (test, page)
        for test, pages in TESTED.items()
        for page in pages
        if page not in (REPOSITORY / test).read_text(encoding="utf-8")
    ]
    assert unread == []


def text_of(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


# --------------------------------------------------------------------- configurations


def configurations() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        blocks = [block for kind, block in FENCE.findall(text) if kind == "toml" and "entry-points" not in block]
        blocks += [textwrap.dedent(block) for block in INDENTED.findall(FENCE.sub("", text))]
        found += [(page.stem, block) for block in blocks]
    return found


@pytest.mark.parametrize(("page", "text"), configurations())
def test_a_configuration_of_a_page_loads(page: str, text: str, tmp_path: Path) -> None:
    for shown, real in (
        ('"scrypt$…"', f'"{hash_password("open sesame")}"'),
        ('"sha256$…"', f'"{hash_token("token")}"'),
        ('"SCRAM-SHA-256$8192$…", "SCRAM-SHA-512$8192$…"', ""),
    ):
        text = text.replace(shown, real)
    roles = set(re.findall(r'roles = \["(\w+)"\]', text)) - set(re.findall(r"\[access\.roles\.(\w+)\]", text))
    text += "".join(f'\n[access.roles.{role}]\nread = ["x"]\n' for role in roles)  # another block of the page has them
    file = tmp_path / "millstream.toml"
    file.write_text(text)
    flags = {} if re.search(r"^data =", text, re.MULTILINE) else {"data": tmp_path}
    assert load_configuration(file, flags), page


# --------------------------------------------------------------------- sessions and commands


def test_the_first_session_of_the_readme_prints_what_stands_there(tmp_path: Path) -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (session,) = re.findall(r"(    millstream> SET.*?)\n\n", readme, re.DOTALL)
    (*before, last), said = typed_and_said(textwrap.dedent(session))
    with service_in(tmp_path, properties={"millstream.pull.full.sql": "true"}) as service:
        printed = shell(service, before)
        eventually(lambda: [row.values for row in service.engine.query(last, Session())] == [("/a", 2, 40)])
        printed += shell(service, [last])
    assert [line.strip() for line in printed.splitlines() if line.strip()] == [line.strip() for line in said]


def test_the_session_of_the_shells_page_prints_what_stands_there(tmp_path: Path) -> None:
    (session,) = [block for _, block in FENCE.findall(text_of("shell")) if block.startswith("millstream> ")]
    statements, said = typed_and_said(session)
    with service_in(tmp_path) as service:
        # One by one, as they are typed: lines of an error count from the statement's first.
        printed = "".join(shell(service, [each], code=int("sise" in each)) for each in statements)
    assert printed.splitlines() == said


def typed_and_said(session: str) -> tuple[list[str], list[str]]:
    """The statements of a session, and the lines that it shows between them."""
    statements: list[str] = []
    said: list[str] = []
    for line in session.splitlines():
        if line.startswith("millstream> "):
            statements.append(line.removeprefix("millstream> "))
        elif not statements[-1].endswith(";"):
            statements[-1] += "\n" + line.replace("        ... ", "")
        else:
            said.append(line)
    return statements, said


def shell(service: Service, statements: list[str], code: int = 0) -> str:
    command = [sys.executable, "-m", "millstream", "sql", f"http://{service.http_address}"]
    done = warm_command.run(command, input="\n".join(statements), timeout=100)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.mark.timeout(400)
def test_the_commands_of_migrations_print_what_stands_there(tmp_path: Path) -> None:
    folder = tmp_path
    with service_in(tmp_path / "data") as service:
        for kind, block in FENCE.findall(text_of("migrations")):
            if kind == "sql":
                path, _, statements = block.removeprefix("-- ").partition("\n")
                assert (folder / path).is_file(), "the command before has made it"
                (folder / path).write_text(statements)
                continue
            if "from statement 3 on" in block:  # the page says: once it is mended
                file = folder / "migrations" / "V000002__totals_per_user.sql"
                file.write_text(file.read_text().replace("bigg", "big"))
            for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                if command.startswith("cd "):
                    folder /= command.removeprefix("cd ")
                    continue
                words = shlex.split(command.replace("127.0.0.1:8088", str(service.http_address)))
                done = warm_command.run([sys.executable, "-m", *words], cwd=folder, timeout=100)
                printed = (done.stdout + done.stderr).rstrip("\n").splitlines()
                expected = shown.rstrip("\n").splitlines()
                assert len(printed) == len(expected), (command, printed)
                for line, pattern in zip(printed, expected, strict=True):
                    assert re.fullmatch(re.escape(pattern).replace("…", ".*"), line), (command, line, pattern)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_requests_of_pages_are_answered_as_they_stand_there(tmp_path: Path) -> None:
    with service_in(tmp_path, schema_registry="127.0.0.1:0") as service:
        register, _ = [block for kind, block in FENCE.findall(text_of("schema-registry")) if kind == "sh"]
        (create,) = [block for kind, block in FENCE.findall(text_of("schema-registry")) if kind == "sql"]
        made = json.loads(bash(register.replace("127.0.0.1:8081", str(service.schema_registry_address))))
        assert (made["id"], made["version"]) == (1, 1)
        service.engine.execute(create, Session())
        assert [column.name for column in service.engine.catalog.sources["CLICKS"].schema] == ["URL"]
        service.engine.execute("DROP STREAM clicks;", Session())
        made = (
            "CREATE STREAM clicks (id INT KEY, url STRING) WITH (kafka_topic='c', value_format='JSON', partitions=1);"
        )
        service.engine.execute(made, Session())
        insert, shown = [block for kind, block in FENCE.findall(text_of("http")) if not kind]
        assert bash(insert.replace("127.0.0.1:8088", str(service.http_address))).strip() == shown.strip()


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="curl or jq is not installed")
def test_schemas_of_another_registry_come_as_the_page_says(tmp_path: Path) -> None:
    register, bring = [block for kind, block in FENCE.findall(text_of("schema-registry")) if kind == "sh"]
    with (
        service_in(tmp_path / "old", schema_registry="127.0.0.1:0") as old,
        service_in(tmp_path / "new", schema_registry="127.0.0.1:0") as new,
    ):
        bash(
            register.replace("127.0.0.1:8081", str(old.schema_registry_address)).replace("clicks-value", "other-value")
        )
        bash(register.replace("127.0.0.1:8081", str(old.schema_registry_address)).replace("click\\", "press\\"))
        there, here = str(old.schema_registry_address), str(new.schema_registry_address)
        bash(bring.replace("old-registry:8081", there).replace("127.0.0.1:8081", here))
        asked = "curl -s http://{}/schemas | jq -S 'sort_by(.id)'"
        assert bash(asked.format(here)) == bash(asked.format(there))
        assert '"id": 2' in bash(asked.format(here))
        assert bash(f"curl -s http://{here}/mode") == '{"mode":"READWRITE"}'


def bash(command: str) -> str:
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
