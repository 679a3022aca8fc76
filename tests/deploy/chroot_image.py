"""Builds the image of deploy/Dockerfile where there is no container engine: its steps, in order, in root file systems,
each step in a mount namespace of its own.

    python tests/deploy/chroot_image.py FOLDER

Needs root and debootstrap (the Debian package). The base image is imitated: the Debian that it names, with Debian's
Python of the same version. What COPY takes, `.dockerignore` decides.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
DOCKERFILE: Final = REPOSITORY / "deploy" / "Dockerfile"
_BASE: Final = re.compile(r"python:(?P<python>\d+\.\d+)-slim-(?P<release>[a-z]+)")
_OF_BASE: Final = "python3,python3-venv,python3-pip,ca-certificates,netbase,tzdata"  # as in python:…-slim
_HANDED_ON: Final = re.compile(r"PIP_(DEFAULT_TIMEOUT|INDEX_URL|EXTRA_INDEX_URL|NO_INDEX)|https?_proxy|no_proxy", re.I)
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TIMEOUT_S: Final = 1800


@dataclass(frozen=True, slots=True)
class Step:
    """`RUN` and what stands behind it."""

    word: str
    rest: str


@dataclass(slots=True)
class ImageStage:
    """A stage of the build, and what its steps have set."""

    root: Path
    arguments: dict[str, str] = field(default_factory=dict[str, str])
    env: dict[str, str] = field(default_factory=lambda: {"PATH": _PATH})
    user: str = "0"
    command: list[str] = field(default_factory=list[str])
    entrypoint: list[str] = field(default_factory=list[str])
    health: list[str] = field(default_factory=list[str])
    stop_signal: str = "SIGTERM"

    @property
    def started(self) -> list[str]:
        return [*self.entrypoint, *self.command]


def missing() -> str | None:
    """Why it cannot be done here."""
    if os.geteuid() != 0:
        return "needs root"
    tools = [tool for tool in ("debootstrap", "unshare", "nsenter", "ip", "findmnt") if shutil.which(tool) is None]
    return f"needs {', '.join(tools)}" if tools else None


def steps_of(text: str) -> Iterator[Step]:
    """The instructions, without comments, with continued lines as one.

    >>> list(steps_of("# a\\nRUN a \\\\\\n # b\\n && c\\nUSER 7\\n"))
    [Step(word='RUN', rest='a && c'), Step(word='USER', rest='7')]
    """
    lines = (line.strip() for line in text.splitlines())
    whole = ""
    for line in lines:
        if line.startswith("#") or not line:
            continue
        if line.endswith("\\"):
            whole += line.removesuffix("\\").rstrip() + " "
            continue
        word, _, rest = (whole + line).partition(" ")
        whole = ""
        yield Step(word.upper(), rest.strip())


class ImageBuild:
    """One build, in an empty folder of its own. State: its stages by name."""

    def __init__(self, folder: Path, say: Callable[[str], None], base: Path | None = None) -> None:
        """In: `base`: a file system that `debootstrap` made before, which is copied."""
        self._folder = folder
        self._say = say
        self._base = base
        self._stages: dict[str, ImageStage] = {}

    def run(self, text: str) -> ImageStage:
        """Gives the last stage. Raises `CalledProcessError` where a step fails, ValueError where one is unknown."""
        outside: dict[str, str] = {}
        stage: ImageStage | None = None
        for step in steps_of(text):
            self._say(f"{step.word} {step.rest}"[:110])
            if step.word == "ARG" and stage is None:
                name, _, value = step.rest.partition("=")
                outside[name] = value.strip('"')
            elif step.word == "FROM":
                stage = self._from(step.rest, outside)
            else:
                assert stage is not None
                self._do(stage, step)
        assert stage is not None
        return stage

    def _from(self, rest: str, outside: dict[str, str]) -> ImageStage:
        image, _, name = _filled(rest, outside).partition(" AS ")
        matched = _BASE.fullmatch(image.strip())
        if matched is None:
            raise ValueError(f"{image} is no base that can be imitated here")
        if self._base is None:
            self._base = self._folder / "base"
            _debootstrap(self._base, matched["release"])
        python = self._base / "usr/bin" / f"python{matched['python']}"
        if not python.exists():
            raise ValueError(f"Debian {matched['release']} has no Python {matched['python']}")
        name = name.strip() or "image"
        root = self._folder / name
        subprocess.run(["cp", "-a", "--reflink=auto", self._base, root], check=True, timeout=_TIMEOUT_S)
        (root / "usr/local/bin/python").symlink_to(f"/usr/bin/python{matched['python']}")
        self._stages[name] = ImageStage(root)
        return self._stages[name]

    def _do(self, stage: ImageStage, step: Step) -> None:
        filled = _filled(step.rest, {**stage.arguments, **stage.env})
        match step.word:
            case "ARG":
                name, _, value = step.rest.partition("=")
                stage.arguments[name] = value.strip('"')
            case "ENV":
                stage.env |= dict(pair.split("=", 1) for pair in filled.split())
            case "COPY":
                self._copy(stage, filled)
            case "RUN":
                inside(stage, ["sh", "-c", step.rest], stage.arguments, network=True)
            case "USER":
                stage.user = filled
            case "ENTRYPOINT":
                stage.entrypoint = json.loads(step.rest)
            case "CMD":
                stage.command = json.loads(step.rest)
            case "HEALTHCHECK":
                stage.health = json.loads(step.rest[step.rest.index("[") :])
            case "STOPSIGNAL":
                stage.stop_signal = filled
            case "VOLUME" | "EXPOSE":
                pass
            case _:
                raise ValueError(f"{step.word} is unknown here")

    def _copy(self, stage: ImageStage, rest: str) -> None:
        *options, source, target = rest.split()
        into = stage.root / target.lstrip("/")
        if options:
            (origin,) = options
            other = self._stages[origin.removeprefix("--from=")]
            subprocess.run(["cp", "-a", other.root / source.lstrip("/"), into], check=True, timeout=_TIMEOUT_S)
            return
        if source != ".":
            raise ValueError(f"COPY {source} is unknown here")
        into.mkdir(parents=True)
        for name in _kept():
            found = REPOSITORY / name
            if found.is_dir():
                shutil.copytree(found, into / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
            else:
                shutil.copy(found, into / name)


def _kept() -> list[str]:
    """What `.dockerignore` lets through: nothing but what it names."""
    lines = (REPOSITORY / ".dockerignore").read_text().split()
    if lines[0] != "**" or [line for line in lines[1:] if line[0] != "!" and line != "**/__pycache__"]:
        raise ValueError(".dockerignore has lines that are unknown here")
    return [line[1:] for line in lines if line[0] == "!"]


def _filled(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda found: values.get(found[1], ""), text)


def _debootstrap(root: Path, release: str) -> None:
    """What it mounts is in a mount namespace of its own, and gone with it."""
    command = ["unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={_OF_BASE}", release, str(root)]
    subprocess.run(command, check=True, timeout=_TIMEOUT_S, stdout=subprocess.DEVNULL)


def entered(stage: ImageStage, command: Sequence[str]) -> list[str]:
    """The command as its user, with its environment, in its root."""
    env = [f"{name}={value}" for name, value in stage.env.items()]
    return ["chroot", f"--userspec={stage.user}:{stage.user}", str(stage.root), "env", "-i", *env, *command]


def inside(
    stage: ImageStage, command: Sequence[str], arguments: dict[str, str] | None = None, *, network: bool = False
) -> None:
    """Runs a step to its end. In: `network`: names are found, and packages come from where they come from here."""
    handed = {name: value for name, value in os.environ.items() if network and _HANDED_ON.fullmatch(name)}
    if network:
        for name in ("etc/resolv.conf", "etc/hosts", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt"):
            if Path("/", name).exists():
                shutil.copy(Path("/", name), stage.root / name)
    given = [f"{name}={value}" for name, value in {**handed, **(arguments or {})}.items()]
    within = entered(stage, ["env", *given, *command])
    script = 'mount -t proc proc "$0/proc" && exec "$@"'
    run = ["unshare", "--mount", "sh", "-c", script, str(stage.root), *within]
    subprocess.run(run, check=True, timeout=_TIMEOUT_S, stdout=subprocess.DEVNULL)


def start(stage: ImageStage, say: Path) -> subprocess.Popen[bytes]:
    """The image's process as the first one of a PID namespace, in a network that has no other host. `say` gets what it
    writes; `first_process` is its number."""
    script = 'mount -t proc proc "$0/proc" && ip link set lo up && exec "$@"'
    spaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
    command = [*spaces, "sh", "-c", script, str(stage.root), *entered(stage, stage.started)]
    with say.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)


def first_process(running: subprocess.Popen[bytes]) -> int:
    """0 before it is there."""
    return int((Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split() or ["0"])[0])


def beside(stage: ImageStage, number: int, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """As `docker exec` does."""
    spaces = ["nsenter", f"--target={number}", "--mount", "--net", "--pid"]
    run = [*spaces, *entered(stage, command)]
    return subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)


def sizes(stage: ImageStage) -> dict[str, int]:
    """Megabytes of 10^6: of the whole image, of what it adds to the base, and of each part of that above 5."""
    (packages,) = stage.root.glob("opt/*/lib/python*/site-packages")
    parts = {path.name: _size(path) for path in packages.iterdir() if not path.name.endswith(".dist-info")}
    largest = sorted(parts.items(), key=lambda part: -part[1])
    added = _size(stage.root / "opt")
    whole = {"image": _size(stage.root), "base": _size(stage.root) - added, "/opt": added}
    return whole | {name: size for name, size in largest if size >= 5}


def _size(path: Path) -> int:
    said = subprocess.run(["du", "--one-file-system", "-s", "-B1", path], capture_output=True, text=True, check=True)
    return round(int(said.stdout.split()[0]) / 1e6)


def remove(folder: Path) -> None:
    """Removes a build's folder. Raises RuntimeError where something is mounted below it."""
    mounts = subprocess.run(["findmnt", "--noheadings", "--output", "TARGET", "--list"], capture_output=True, text=True)
    below = [line for line in mounts.stdout.splitlines() if Path(line).is_relative_to(folder.resolve())]
    if below:
        raise RuntimeError(f"{below} are mounted: nothing is removed")
    shutil.rmtree(folder)


if __name__ == "__main__":
    if (why := missing()) is not None:
        sys.exit(f"not built: {why}")
    target = Path(sys.argv[1])
    built = ImageBuild(target, print).run(DOCKERFILE.read_text())
    for part, megabytes in sizes(built).items():
        print(f"{megabytes:5} MB  {part}")
