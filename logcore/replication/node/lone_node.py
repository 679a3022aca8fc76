"""A node without links to others: the calling threads carry out the effects of its machines.

A node of a cluster steps its machines in one thread, syncs in another, and answers from the first: an append costs
three changes of threads, most of its time. A node that is alone gets inputs only from its callers, so they take turns
with its machines. A caller that waits for an answer runs the sync that the answer needs. Changes of other callers share
that sync, or are left to the node's thread, which also sends the ticks.

The rules are those of `node_runtime.py`: machines are stepped one after the other, and the changes of one machine
become durable in order, one sync at a time. Records for a leader that no other node copies are no request to a machine,
and their sync is not a change of one (`lone_leaders.py`), so partitions do not wait for each other.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar, assert_never

import structlog

from ..broker.lone_leaders import LoneLeaders, Stored
from ..machine import (
    BROKER,
    Asked,
    Committed,
    Effect,
    Input,
    NodeId,
    Panic,
    Persist,
    Persisted,
    Received,
    Reply,
    RequestId,
    Send,
    Tick,
)
from ..replica.replica_messages import AwaitCommitted, ForPartition, PartitionId, Produce
from ..shards.coordination_messages import ForGroup, ForTransaction
from .node_links import LinkTraffic, PeerAddress
from .node_runtime import ASK_S, Awaiting, NoAnswer, NodeStopped, Running, time_of_day_ms

if TYPE_CHECKING:
    from ..machine_messages import Answer, Request

_log: Final = structlog.get_logger("millstream.logcore")
_TICK_S: Final = 0.05
_TICK_S_MAX: Final = 0.5  # without requests: waking up costs more than the tick's work
_FIRST_TICKS: Final = 20  # at most, until it serves, which takes a handful
_FIRST_TICK_S: Final = 0.001  # the interval of ticks after those
_LOOK_S: Final = 0.0005
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class _Syncing:
    """Of one machine: the changes that wait for the next sync, and whether a sync is under way."""

    def __init__(self) -> None:
        self.waiting: list[Persist] = []
        self.under_way = False


class _Bell:
    """Wakes one thread: like `threading.Event`, for a tenth of the work. State: the lock is free after a ring."""

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """Several rings before the thread wakes count as one."""
        try:
            self._silent.release()
        except RuntimeError:  # the previous ring was not heard yet
            pass

    def wait(self, timeout_s: float) -> None:
        self._silent.acquire(timeout=timeout_s)


class _Awaited:
    """Like a `Future`, for a tenth of the work, because most answers exist before the caller has to wait. State: the
    answer, or why there is none; only the thread that has the turn may use it."""

    __slots__ = ("answer", "done", "failure", "woken")

    def __init__(self) -> None:
        self.done = False
        self.answer: Answer = None
        self.failure: Exception | None = None
        self.woken: threading.Event | None = None  # set if a thread waits

    def set_result(self, answer: Answer) -> None:
        self.answer = answer
        self._settle()

    def set_exception(self, failure: Exception) -> None:
        self.failure = failure
        self._settle()

    def _settle(self) -> None:
        self.done = True
        if self.woken is not None:
            self.woken.set()


class LoneNode:
    """Has the interface of `NodeRuntime`. State: the machines, the lock for turns, and the requests that wait.

    Any thread may call any method. `panicked(reason)` is called once, on any thread, when a machine cannot continue.
    """

    def __init__(
        self,
        node: NodeId,
        machines: Mapping[str, Running],
        panicked: Callable[[str], None],
        serves: Callable[[], bool] = lambda: True,
        now_ms: Callable[[], int] = time_of_day_ms,
        leaders: LoneLeaders | None = None,
    ) -> None:
        """In: `serves`: whether the node serves requests by now; `now_ms`: the time of day; `leaders`: those
        of the machine `broker`."""
        self._now_ms = now_ms
        self.id = node
        self._serves = serves
        self.served = threading.Event()
        """Set once the node serves, or never will."""
        self._machines = dict(machines)
        self._panicked = panicked
        self._turn = threading.RLock()  # only its holder steps the machines, and uses the fields below
        self._todo: deque[tuple[str, Input]] = deque()
        self._stepping = self._stopped = False
        self._stepper = 0  # the thread that steps, or did so last
        self._syncing = {name: _Syncing() for name in machines}
        self._requests = 0
        self._told_requests = 0  # the number of requests at the last tick
        self._rests = False  # there are no requests, so ticks are rare
        self._leaders = leaders
        self._left: list[tuple[Stored, Awaiting]] = []  # left to the node's thread
        self._own_syncs = 0  # syncs of partitions that callers run for themselves
        self._holds = 0  # callers of `hold`: no sync begins
        self._asked: dict[RequestId, Awaiting] = {}
        self._unsynced: dict[str, None] = {}  # the machines that have changes waiting, in order
        self._bell = _Bell()  # rings if the node's thread has something to sync
        self._thread = threading.Thread(target=self._run, name=f"node {node}", daemon=True)

    @property
    def traffic(self) -> Mapping[NodeId, LinkTraffic]:
        return {}

    @property
    def is_stepping(self) -> bool:
        """Whether the current thread is stepping a machine. Then it must not wait for an answer."""
        return self._stepping and self._stepper == threading.get_ident()

    def start(self) -> None:
        """Sends the first ticks on the calling thread, which has nothing else to do: waiting for the ticks of another
        thread takes several times as long. `served` is set when the node serves, during this call or later."""
        for _ in range(_FIRST_TICKS):
            if self._looks_whether_it_serves() or self._stopped or not self._machines:
                break
            with self._turn:
                self._tell_the_time()
            while self._make_durable():
                pass
        self._thread.start()

    def _looks_whether_it_serves(self) -> bool:
        if not self.served.is_set() and self._serves():
            self.served.set()
        return self.served.is_set()

    def stop(self) -> None:
        """Ends the node; waiting requests get `NodeStopped`. It may be called twice."""
        with self._turn:
            self._stopped = True
        self._bell.ring()
        self.served.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        with self._turn:
            self._end_waiting(f"node {self.id} was stopped")

    def set_peer(self, node: NodeId, address: PeerAddress | None) -> None:
        """Does nothing: this node has no links. To let others join, start it with an address of its own."""

    def use_version(self, version: int) -> None:
        """Does nothing: there is no other node that might not speak it."""

    # Requests

    def ask(self, machine: str, body: Request, *, at: NodeId | None = None, timeout_s: float = ASK_S) -> Future[Answer]:
        """Like `NodeRuntime.ask`."""
        del timeout_s
        future: Future[Answer] = Future()
        future.set_running_or_notify_cancel()
        self._begin(machine, body, at, future)
        self._leave_the_rest()
        return future

    def answer(self, machine: str, body: Request, *, at: NodeId | None = None, timeout_s: float = ASK_S) -> Answer:
        """Like `NodeRuntime.answer`. The waiting caller runs the syncs that its answer needs."""
        awaited = _Awaited()
        self._begin(machine, body, at, awaited)
        return self._answer_of(awaited, timeout_s)

    def answers(self, machine: str, bodies: Sequence[Request], *, timeout_s: float = ASK_S) -> list[Answer]:
        """The answers to several requests to a machine of this node, whose changes become durable together. Raises like
        `answer` if one of them has no answer."""
        awaited = [_Awaited() for _ in bodies]
        with self._turn:
            for body, each in zip(bodies, awaited, strict=True):
                self._begin(machine, body, None, each)
        return [self._answer_of(each, timeout_s) for each in awaited]

    # Leaders that no other node copies: see `lone_leaders.py`

    def produce(self, partition: PartitionId, asked: Produce, *, timeout_s: float = ASK_S) -> Answer:
        """Like `answer`, for the partition's replica. Raises like `answer`."""
        with self._turn:
            stored = self._in_turn(LoneLeaders.store, partition, asked)
            if isinstance(stored, Stored):
                self._own_syncs += 1
        if stored is None:
            return self.answer(BROKER, ForPartition(partition, asked), timeout_s=timeout_s)
        return self._synced(stored) if isinstance(stored, Stored) else stored

    def answer_now(self, asked: ForTransaction | ForGroup, *, timeout_s: float = ASK_S) -> Answer:
        """Like `answer`, for requests to a coordinator that need no record."""
        with self._turn:
            answer = self._in_turn(LoneLeaders.answer_now, asked)
        return self.answer(BROKER, asked, timeout_s=timeout_s) if answer is None else answer

    def commit(self, partitions: Sequence[PartitionId]) -> list[Answer]:
        """Returns when everything in these logs is committed; they become durable together. If another thread does the
        work, returns the answers to `AwaitCommitted`. Raises like `answers`."""
        with self._turn:
            ends = self._in_turn(LoneLeaders.begin_commit, partitions)
            if ends is not None and self._leaders is not None:
                self._carry_out_all(self._leaders.take_effects())
        while ends and self._leaders is not None and not self._leaders.are_committed(ends):
            if not self._make_durable():  # another thread does it
                return self.answers(BROKER, [ForPartition(each, AwaitCommitted()) for each in ends])
        if ends is None:
            return self.answers(BROKER, [ForPartition(each, AwaitCommitted()) for each in partitions])
        return []

    def begin_produce(self, partition: PartitionId, asked: Produce, waiting: Awaiting) -> None:
        """Like `produce`, for a caller that does not wait on this thread: the node's thread makes it durable."""
        stored: Stored | Answer = None
        try:
            with self._turn:
                stored = self._in_turn(LoneLeaders.store, partition, asked)
                if isinstance(stored, Stored):
                    self._left.append((stored, waiting))
        except NodeStopped as error:
            waiting.set_exception(error)
            return
        if isinstance(stored, Stored):
            self._bell.ring()
        elif stored is not None:
            waiting.set_result(stored)
        else:
            self._begin(BROKER, ForPartition(partition, asked), None, waiting)
            self._leave_the_rest()

    def _sync_left(self) -> bool:
        """Makes durable what `begin_produce` has left to this thread. False if there was nothing to do."""
        leaders = self._leaders
        with self._turn:
            if leaders is None or not self._left or self._holds or self._stopped:
                return False
            left, self._left = self._left, []
            self._own_syncs += 1
        durable_to, failed = dict[PartitionId, int](), None
        try:
            durable_to = leaders.sync_together([stored for stored, _ in left])
        except Exception as error:
            failed = str(error)
        answers: list[Answer] = []
        with self._turn:
            self._own_syncs -= 1
            if not self._stopped and self._machines:
                for stored, _ in left:
                    answers.append(leaders.synced(stored, durable_to.get(stored.partition, 0), failed))
                self._carry_out_all(leaders.take_effects())
        ended = NodeStopped(f"node {self.id} has ended")
        for index, (_, waiting) in enumerate(left):
            if failed is None and answers:
                waiting.set_result(answers[index])
            else:
                waiting.set_exception(ended)
        return True

    def _in_turn(
        self, act: Callable[Concatenate[LoneLeaders, _Given], _Result], *given: _Given.args, **named: _Given.kwargs
    ) -> _Result | None:
        """Calls a method of `LoneLeaders`. None: it was not called, because no sync may begin now or a machine is being
        stepped. In: it is this thread's turn."""
        if self._stopped or not self._machines:
            raise NodeStopped(f"node {self.id} has ended")
        if self._leaders is None or self._holds or self._stepping:
            return None
        self._note_request()
        try:
            return act(self._leaders, *given, **named)
        except Exception as error:
            self._broke(error)
            raise NodeStopped(f"node {self.id} has ended") from error

    def _synced(self, stored: Stored) -> Answer:
        """Syncs the partition on this thread, while other threads may sync other partitions."""
        leaders, durable_to, failed = self._leaders, 0, None
        assert leaders is not None
        try:
            durable_to = leaders.sync(stored)
        except Exception as error:
            failed = str(error)
        with self._turn:
            self._own_syncs -= 1
            if self._stopped or not self._machines:
                raise NodeStopped(f"node {self.id} was stopped")
            answer = leaders.synced(stored, durable_to, failed)
            self._carry_out_all(leaders.take_effects())
        if failed is not None:
            raise NodeStopped(f"node {self.id} has ended")
        return answer

    def _carry_out_all(self, effects: Sequence[Effect]) -> None:
        """Carries out effects of the broker. In: it is this thread's turn."""
        if effects:
            for effect in effects:
                self._carry_out(BROKER, effect)
            self._step_all()

    def _answer_of(self, awaited: _Awaited, timeout_s: float) -> Answer:
        while not awaited.done and self._make_durable():
            pass
        if self._unsynced and self._asked:  # otherwise no request waits for it, and a later sync includes it
            self._leave_the_rest()
        if not awaited.done:
            self._wait(awaited, timeout_s)
        if awaited.failure is not None:
            raise awaited.failure
        return awaited.answer

    def _begin(self, machine: str, body: Request, at: NodeId | None, answer: Awaiting) -> None:
        if at is not None and at != self.id:
            answer.set_exception(NoAnswer(f"there is no node {at}"))
            return
        with self._turn:
            if self._stopped or machine not in self._machines:
                answer.set_exception(NodeStopped(f"node {self.id} has ended"))
                return
            self._note_request()
            request = RequestId(self._requests)
            self._asked[request] = answer
            self._take(machine, Asked(request, body))

    def _note_request(self) -> None:
        """Counts a request. After a rest, the machines first get a tick, so that no deadline of the request counts from
        an old time, and ticks become frequent again. In: it is this thread's turn."""
        self._requests += 1
        if self._rests:
            self._rests = False
            self._tell_the_time()
            self._bell.ring()

    def _wait(self, awaited: _Awaited, timeout_s: float) -> None:
        """Waits for another thread that does what the answer needs. Raises `NoAnswer`."""
        with self._turn:
            if awaited.done:
                return
            woken = awaited.woken = threading.Event()
        if not woken.wait(timeout_s):
            raise NoAnswer(f"node {self.id} has not answered in {timeout_s} s")

    def tell(self, machine: str, body: Request) -> None:
        """Like `NodeRuntime.tell`."""
        with self._turn:
            if not self._stopped and machine in self._machines:
                self._note_request()
                self._take(machine, Asked(RequestId(self._requests), body))
        self._leave_the_rest()

    def caught_up(self) -> Future[Answer]:
        """Done immediately: `tell` steps the machines on the caller's thread."""
        future: Future[Answer] = Future()
        future.set_running_or_notify_cancel()
        future.set_result(None)
        return future

    def hold(self, look: Callable[[], _Result]) -> _Result:
        """Calls `look` while no machine is stepped and no sync is under way: the files are as a crash of the process at
        this time would leave them. Requests wait meanwhile. Raises what `look` raises."""
        with self._turn:
            self._holds += 1
        try:
            while True:
                with self._turn:
                    if not self._own_syncs and not any(each.under_way for each in self._syncing.values()):
                        return look()
                time.sleep(_LOOK_S)
        finally:
            with self._turn:
                self._holds -= 1
            self._bell.ring()

    # Turns

    def _take(self, machine: str, given: Input) -> None:
        """Steps the machine, and then others with the inputs that this causes. In: it is this thread's turn."""
        self._todo.append((machine, given))
        self._step_all()

    def _step_all(self) -> None:
        if self._stepping:
            return
        self._stepping, self._stepper = True, threading.get_ident()
        try:
            while self._todo and not self._stopped:
                name, now = self._todo.popleft()
                if name in self._machines:
                    for effect in self._machines[name].machine.step(now):
                        self._carry_out(name, effect)
        except Exception as error:
            self._broke(error)
        finally:
            self._stepping = False

    def _broke(self, error: Exception) -> None:
        _log.exception("a machine of this node broke")
        self._panic(f"{type(error).__name__}: {error}")

    def _carry_out(self, name: str, effect: Effect) -> None:
        match effect:
            case Send(to, message, machine):
                if to == self.id:
                    self._todo.append((machine or name, Received(self.id, message)))
            case Persist():
                self._syncing[name].waiting.append(effect)
                self._unsynced[name] = None
            case Reply(request, response):
                future = self._asked.pop(request, None)
                if future is not None:
                    future.set_result(response)
            case Committed():
                self._todo.extend((other, effect) for other in self._machines if other != name)
            case Panic(reason):
                self._panic(reason)
            case _:
                assert_never(effect)

    def _panic(self, reason: str) -> None:
        if not self._machines:
            return  # the node is ending already
        _log.error("this node ends, for going on could lose or alter records", reason=reason)
        self._todo.clear()
        self._machines.clear()
        self._end_waiting(f"node {self.id} has ended")
        self.served.set()
        self._panicked(reason)

    def _end_waiting(self, why: str) -> None:
        asked, self._asked = self._asked, {}
        left, self._left = self._left, []
        for waiting in (*asked.values(), *(each for _, each in left)):
            waiting.set_exception(NodeStopped(why))

    # Disks

    def _make_durable(self) -> bool:
        """Makes waiting changes durable, except those of machines that another thread is syncing. False if it did
        nothing."""
        worked = False
        for name in tuple(self._unsynced):
            worked = self._sync(name) or worked
        return worked

    def _sync(self, name: str) -> bool:
        with self._turn:
            syncing, running = self._syncing[name], self._machines.get(name)
            if running is None or self._stopped or self._holds or syncing.under_way or not syncing.waiting:
                return False
            effects, syncing.waiting, syncing.under_way = syncing.waiting, [], True
            self._unsynced.pop(name, None)
        failed = None
        try:
            for effect in effects:
                running.storage.apply(effect.change)
            running.storage.sync()
        except Exception as error:
            failed = str(error)
        with self._turn:
            syncing.under_way = False
            if name in self._machines:
                self._take(name, Persisted(effects[-1].operation, failed))
        return True

    def _leave_the_rest(self) -> None:
        if self._unsynced:
            self._bell.ring()

    # Time

    def _tell_the_time(self) -> None:
        """In: it is this thread's turn."""
        if self._leaders is not None and self._machines:
            self._leaders.hurry()
            self._carry_out_all(self._leaders.take_effects())
        now = Tick(time.monotonic_ns() // 1_000_000, self._now_ms())
        for name in list(self._machines):
            self._take(name, now)

    def _run(self) -> None:
        pause_s = _TICK_S
        while not self._stopped:
            with self._turn:
                self._tell_the_time()
                asked = self._told_requests != self._requests or self._asked or self._left
                busy = asked or self._unsynced or not self._looks_whether_it_serves()
                self._told_requests = self._requests
                self._rests = not busy
            pause_s = _TICK_S if busy else min(2 * pause_s, _TICK_S_MAX)
            self._pause(pause_s if self.served.is_set() else _FIRST_TICK_S)

    def _pause(self, pause_s: float) -> None:
        """Waits for the next tick, and meanwhile syncs what is left to this thread. The first request ends a rest."""
        next_tick, resting = time.monotonic() + pause_s, self._rests
        while not self._stopped and (left_s := next_tick - time.monotonic()) > 0 and self._rests == resting:
            if not (self._sync_left() or self._make_durable()):
                self._bell.wait(left_s)
