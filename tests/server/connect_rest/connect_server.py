"""The two servers that the suite asks the same, and all in which they differ."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
from connect_worker import QUIET_S
from waiting import eventually

SOURCE: Final = "org.apache.kafka.connect.file.FileStreamSourceConnector"


@dataclass(frozen=True)
class Difference:
    """What each of the servers answers; a number is a status."""

    millstream: Any
    kafka: Any
    reason: str


DIFFERENCES: Final = {
    "the root": Difference(
        308, 200, "GET / is ksqlDB's here and leads to /info; a worker tells its version, its commit and its cluster"
    ),
    "a body that is no such request": Difference(
        400, 500, "the mistake is the client's: who gets a 500 sends the request again, and its text is Jackson's"
    ),
    "an offset or a topic that cannot be": Difference(400, 500, "as above: the worker asks its broker, which refuses"),
    "an offset that its source cannot read": Difference(400, 500, "as above: the connector refuses it"),
    "a plugin that is not there": Difference(404, 500, "that validate is asked about; its settings: 404 in both"),
    "settings without a class": Difference(200, 500, "validate takes the class that the path names"),
    "a type that is not JSON's name": Difference(
        201, 415, "curl -d sends a form's type, and some send none, or one that ends in +json"
    ),
    "a name with a slash": Difference(
        200, 400, "the worker creates the connector, and answers no path with %2F or %25: nobody can remove it"
    ),
    "another name by PATCH": Difference(400, 200, "the worker keeps a connector whose settings have another name"),
    "a name of 256 characters": Difference(400, 201, "names are in file names and metrics"),
    "a null that nobody declares": Difference(200, 400, "PUT: null is a setting that is not given, whatever its name"),
    "an unknown setting": Difference(
        "********", "7", "whatever is not declared may be a password, and is shown to nobody"
    ),
    "topics of an unknown connector": Difference(404, 200, "an empty list says that it is there"),
    "reset of an unknown connector's topics": Difference(404, 403, "the connector is not there"),
    "topics of a sink that never ran": Difference(
        ["rows"], [], "topics are not tracked: they are those that the settings name and that exist"
    ),
    "offsets of a removed source": Difference(
        False, True, "a worker keeps them: who creates the connector anew gets no old record, and nobody can see why"
    ),
}  # fmt: skip


@dataclass(frozen=True)
class ConnectServer:
    """`kind`: "millstream" or "kafka"; `sink`: settings of one that does nothing while it is stopped."""

    kind: str
    http: httpx.Client
    lines: Path
    sink: dict[str, str]

    @property
    def source(self) -> dict[str, str]:
        return {"connector.class": SOURCE, "file": str(self.lines), "topic": "lines", "tasks.max": "1"}

    def gives(self, difference: str) -> Any:
        return getattr(DIFFERENCES[difference], self.kind)

    def create(self, name: str, *, sink: bool = False, state: str = "RUNNING") -> str:
        """Its path, once it has this state, and its tasks with it."""
        body = {"name": name, "config": self.sink if sink else self.source, "initial_state": state}
        answer = self.http.post("/connectors", json=body)
        assert answer.status_code == 201, answer.text
        path = path_of(name)
        self.wait_for(path, state)
        return path

    def wait_for(self, path: str, state: str) -> None:
        tasks = 0 if state == "STOPPED" else 1

        def has_come() -> bool:
            answer = self.http.get(f"{path}/status")
            if answer.status_code != 200 or answer.json()["connector"]["state"] != state:
                return False
            states = [task["state"] for task in answer.json()["tasks"]]
            return state == "PAUSED" or states == [state] * tasks

        eventually(has_come, QUIET_S, otherwise=f"{path} is not {state}")

    def names(self) -> list[str]:
        """Of the connectors, but for those that nobody can remove."""
        kept = {"a/b", "a%2Fb"} if self.kind == "kafka" else set[str]()
        return [name for name in self.http.get("/connectors").json() if name not in kept]

    def remove_all(self) -> None:
        for name in self.names():
            self.http.delete(path_of(name))
        eventually(lambda: not self.names(), QUIET_S)


def path_of(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


def shape(value: Any) -> Any:
    """The members and the types of a JSON value."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__


def refused(answer: httpx.Response, status: int, names: str = "") -> None:
    """A refusal has its code twice, and a message that `names` the matter; nothing else."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body.keys() == {"error_code", "message"}, body
    assert body["error_code"] == status
    assert isinstance(body["message"], str) and names in body["message"] and body["message"].strip(), body
