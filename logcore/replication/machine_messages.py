"""Closed unions of all messages between machines, requests, answers and changes on the disk.

Add a new kind to the union of its package; pyrefly then reports each place that must handle it, because a `match` ends
in `assert_never`, or in a name for the kinds that other code handles. A message from a link is one of these kinds, but
it may belong to another machine (`node_codec.py`), so a machine checks a message before it takes it.
"""

from __future__ import annotations

from .broker.broker import BrokerAnswer, BrokerRequest
from .controller.controller_messages import ControllerMessage, StandingMessage
from .controller.controller_requests import ControllerAnswer, ControllerRequest
from .raft.quorum_messages import QuorumChange, QuorumMessage
from .replica.replica_core import SyncLog
from .shards.transaction_messages import ForCoordinators, ReplicaMessage, ShardMessage

Message = QuorumMessage | ControllerMessage | StandingMessage | ReplicaMessage | ShardMessage | ForCoordinators
"""The message of `Send` and `Received`. `ForCoordinators` stays in the node: its broker forwards the inner message."""

Request = ControllerRequest | BrokerRequest
"""The body of `Asked`."""

Answer = ControllerAnswer | BrokerAnswer
"""The response of `Reply`."""

Change = QuorumChange | SyncLog
"""The change of `Persist`: what a machine wants written to its disk."""
