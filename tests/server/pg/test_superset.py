"""Apache Superset draws a chart of a live table. It needs an environment of its own, for it wants SQLAlchemy 1.4:

    python -m venv V && V/bin/pip install apache-superset==6.1.0 psycopg2-binary 'flask-caching<2.4' 'cachelib<0.14' \\
        cachetools rich 'pandas<2.2'
    MILLSTREAM_SUPERSET=V/bin/python pytest -m soak tests/server/pg/test_superset.py
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from millstream.server.service import Service

PYTHON = os.environ.get("MILLSTREAM_SUPERSET")
CONFIGURATION = """SECRET_KEY = "of a test"
SQLALCHEMY_DATABASE_URI = "sqlite:///{}/superset.db"
PREVENT_UNSAFE_DB_CONNECTIONS = False
"""


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.skipif(PYTHON is None, reason="MILLSTREAM_SUPERSET names no Python with apache-superset")
def test_superset_finds_tables_and_draws_a_chart_of_one(service: Service, tmp_path: Path) -> None:
    assert PYTHON is not None and service.pg_address is not None
    (tmp_path / "superset_config.py").write_text(CONFIGURATION.format(tmp_path))
    env = {**os.environ, "SUPERSET_CONFIG_PATH": str(tmp_path / "superset_config.py"), "HOME": str(tmp_path)}
    prepared = [str(Path(PYTHON).parent / "superset"), "db", "upgrade"]
    subprocess.run(prepared, env=env, cwd=tmp_path, capture_output=True, timeout=600, check=True)
    uri = f"postgresql+psycopg2://ana@127.0.0.1:{service.pg_address.port}/millstream"
    command = [PYTHON, str(Path(__file__).parent / "superset_chart.py"), uri]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["schemas"] == ["information_schema", "public"]
    assert {"clicks", "secret", "totals"} <= set(found["tables"])
    assert found["columns"] == {"user_id": "TEXT", "size": "INTEGER"}
    assert found["error"] is None
    assert sorted(row["total"] for row in found["rows"]) == [2, 3]
