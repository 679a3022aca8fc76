"""The image of deploy/Dockerfile: built in a root file system of its own, started as its user, asked, and stopped."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import eventually

from .chroot_image import (
    DOCKERFILE,
    ImageBuild,
    ImageStage,
    beside,
    first_process,
    missing,
    remove,
    sizes,
    start,
    steps_of,
)

ASKED = """import json, urllib.request
body = json.dumps({"ksql": %r}).encode()
asked = urllib.request.Request("http://127.0.0.1:8088/ksql", body, {"content-type": "application/json"})
print(urllib.request.urlopen(asked, timeout=60).read().decode())"""
CREATED = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
MEGABYTES_MAX = 550  # above the base image


def test_the_steps_of_the_dockerfile_are_found() -> None:
    words = [step.word for step in steps_of(DOCKERFILE.read_text())]
    assert words.count("FROM") == 2 and words[-2:] == ["ENTRYPOINT", "CMD"]
    assert {"USER", "HEALTHCHECK", "STOPSIGNAL", "VOLUME"} <= set(words)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageStage]:
    if (why := missing()) is not None:
        pytest.skip(f"no image is built: {why}")
    folder = tmp_path_factory.mktemp("image")
    given = os.environ.get("MILLSTREAM_IMAGE_BASE")
    try:
        yield ImageBuild(folder, print, Path(given) if given else None).run(DOCKERFILE.read_text())
    finally:
        remove(folder)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_image_serves_as_its_user_and_ends_when_it_is_told(built: ImageStage, tmp_path: Path) -> None:
    running = start(built, tmp_path / "said.txt")
    try:
        eventually(lambda: first_process(running) != 0)
        number = first_process(running)
        eventually(lambda: beside(built, number, built.health).returncode == 0, 60)
        status = Path(f"/proc/{number}/status").read_text()
        assert f"Uid:\t{built.user}\t{built.user}" in status
        answered = beside(built, number, ["python", "-c", ASKED % CREATED])
        assert json.loads(answered.stdout)[0]["commandStatus"]["status"] == "SUCCESS", answered.stderr
        data = built.root / "data"
        assert data.stat().st_mode & 0o777 == 0o700 and data.stat().st_uid == int(built.user)
        os.kill(number, getattr(signal, built.stop_signal))
        assert running.wait(60) == 0, (tmp_path / "said.txt").read_text()[-2000:]
    finally:
        running.kill()
        running.wait()
    found = sizes(built)
    print("\n".join(f"{megabytes:5} MB  {part}" for part, megabytes in found.items()))
    assert found["/opt"] < MEGABYTES_MAX
