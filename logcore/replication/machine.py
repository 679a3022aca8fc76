"""What the machines of replication take and give.

A machine is stepped with one input and answers with effects, in the order in which they are to be carried out. It never
waits: what depends on durability is named by the `operation` of the `Persist` it needs, and goes on with `Persisted`.
The same machines run on sockets and files (`node_runtime.py`) and in the simulator (`tests/simulation/`).

A node runs several machines, each under a name: `controller` (the metadata quorum and what it decides) and `broker`
(its replicas). They talk to each other as they talk to other nodes: a message to the own node is delivered, too.
Inputs and effects are named tuples, for millions of them are made: look at their type, not at their length. All that
they may carry is listed in `machine_messages.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, NewType, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from .controller.metadata_image import MetadataImage
    from .machine_messages import Answer, Change, Message, Request
    from .raft.quorum_messages import LogRecord

NodeId = NewType("NodeId", int)
Operation = NewType("Operation", int)  # numbered by the machine, unique within one life of it
RequestId = NewType("RequestId", int)  # given by the shell to a client's request

CONTROLLER: Final = "controller"
BROKER: Final = "broker"

_Message = TypeVar("_Message", covariant=True)
_Request = TypeVar("_Request", covariant=True)


# Inputs


class Received(NamedTuple, Generic[_Message]):
    """A message of a machine of this or another node. Any message may be lost, late, twice or out of order."""

    sender: NodeId
    message: _Message


class Tick(NamedTuple):
    """Time went on. `now_ms` is monotonic within one life of the node and says nothing about the time of day.

    `wall_ms` is the time of day, milliseconds since 1970: it may jump, so nothing but people's times hangs on it.
    """

    now_ms: int
    wall_ms: int = 0


class Persisted(NamedTuple):
    """The change of this operation is durable, with all changes before it; or will never be (`failed`: what it is)."""

    operation: Operation
    failed: str | None = None


class Asked(NamedTuple, Generic[_Request]):
    """A client's request; its answer is a `Reply` with the same `request`."""

    request: RequestId
    body: _Request


class Committed(NamedTuple):
    """What the metadata quorum has decided for good: an effect of `controller`, an input of the node's other machines.

    Every node gets the same records at the same indexes, in order, from index 1 or from a snapshot on: with `image` not
    None everything before is replaced by it (it is the fold of all records below `first_index`). `folded`: what all of
    it comes to, so that only one machine of a node has to find out; None where nobody has yet.
    """

    first_index: int
    records: tuple[LogRecord, ...]
    image: MetadataImage | None = None
    folded: MetadataImage | None = None


Input: TypeAlias = "Received[Message] | Tick | Persisted | Asked[Request] | Committed"


# Effects


class Send(NamedTuple):
    """To the machine of this name on that node; None: to the one of the sender's own name."""

    to: NodeId
    message: Message
    machine: str | None = None


class Persist(NamedTuple):
    """Carry out this change on the disk, after those before it, then step `Persisted`. Reads see it at once."""

    operation: Operation
    change: Change


class Reply(NamedTuple):
    request: RequestId
    response: Answer


class Panic(NamedTuple):
    """The process ends: going on could lose or alter what was acknowledged. The reason is for people."""

    reason: str


Effect = Send | Persist | Reply | Panic | Committed


class Machine(Protocol):
    def step(self, given: Input) -> list[Effect]:
        """Takes one input; gives what is to be done, in order. Raises nothing for any input another node can cause."""
        ...
