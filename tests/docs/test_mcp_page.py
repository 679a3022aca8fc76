"""docs/mcp.md is true: its configuration turns MCP on, and its program prints what the page shows."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

from repository import REPOSITORY
from running_server import service_in
from waiting import eventually

from millstream.server.config.configuration import load_configuration
from millstream.server.engine.session import Session
from millstream.server.mcp.tools import ROWS_MAX, SECONDS_MAX, TOOLS

PAGE = (REPOSITORY / "docs" / "mcp.md").read_text(encoding="utf-8")
MADE = """
SET 'auto.offset.reset' = 'earliest';
CREATE STREAM clicks (id INT KEY, url STRING, size BIGINT)
  WITH (kafka_topic='clicks', value_format='JSON', partitions=2);
CREATE TABLE per_url AS SELECT url, COUNT(*) AS n FROM clicks GROUP BY url;
INSERT INTO clicks VALUES (1, '/a', 10); INSERT INTO clicks VALUES (2, '/b', 20);
INSERT INTO clicks VALUES (3, '/a', 30);
"""


def test_the_program_prints_what_the_page_shows(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    shown = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    with service_in(tmp_path, mcp=True, properties={"millstream.pull.full.sql": "true"}) as service:
        session = Session()
        service.engine.execute(MADE, session)
        counted = "SELECT * FROM per_url WHERE n > 1;"
        eventually(lambda: [row.values for row in service.engine.query(counted, session)] == [("/a", 2)])
        program = program.replace("127.0.0.1:8088", str(service.http_address))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert ast.literal_eval(done.stdout) == shown[-1]
    assert shown[0]["mcpServers"]["millstream"]["url"].endswith("/mcp")


def test_the_configuration_of_the_page_turns_it_on(tmp_path: Path) -> None:
    (text,) = re.findall(r"^    # millstream.toml.*\n(?:    .*\n)+", PAGE, re.MULTILINE)
    text = textwrap.dedent(text)
    assert tomllib.loads(text)["mcp"] is True
    (tmp_path / "millstream.toml").write_text(text)
    assert load_configuration(tmp_path / "millstream.toml", {}).mcp is True


def test_the_page_names_every_tool_argument_and_bound() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE))
    assert rows.keys() == {tool.name for tool in TOOLS}
    for tool in TOOLS:
        assert set(re.findall(r"`(\w+)`", rows[tool.name])) == tool.properties.keys()
    assert f"at most {ROWS_MAX:,}" in PAGE and f"at most {SECONDS_MAX}" in PAGE
