"""A node without links to others: whoever asks it carries out what the machines decide, on his own thread.

A node of a cluster steps its machines in one thread, syncs in another one and answers from the first: three changes of
threads for an append, most of what it costs. A node that is alone hears from nobody but those who ask, so they take
turns with its machines. Who waits for an answer makes durable what that needs; what others have asked for meanwhile
shares the sync, or is left to the thread that also tells the time.

The rules are those of `node_runtime.py`: machines are stepped one after the other, and the changes of one machine
become durable in order, one sync at a time. Records for a leader that nobody else copies are no request to a machine,
and their sync is no change of one (`lone_leaders.py`): partitions do not wait for each other.
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

_log: Final = structlog.get_logger(__name__)
_TICK_S: Final = 0.05
_TICK_S_MAX: Final = 0.5  # where nobody has asked for anything: to wake up costs more than what a tick does
_FIRST_TICKS: Final = 20  # until it serves, which takes a handful of them
_FIRST_TICK_S: Final = 0.001  # of those behind them
_LOOK_S: Final = 0.0005
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class _Syncing:
    """Per machine: the changes that wait for the next sync, and whether one is under way."""

    def __init__(self) -> None:
        self.waiting: list[Persist] = []
        self.under_way = False


class _Bell:
    """Wakes one thread. What an `Event` is, for a tenth of the work. State: the lock is free once it has rung."""

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """Twice before anybody hears it is once."""
        try:
            self._silent.release()
        except RuntimeError:  # it has not been heard yet
            pass

    def wait(self, timeout_s: float) -> None:
        self._silent.acquire(timeout=timeout_s)


class _Awaited:
    """What a `Future` is to who does not wait on the thread that asked, for a tenth of the work: most answers are there
    before anybody has to wait. State: the answer, or why there is none; all of it belongs to whose turn it is."""

    __slots__ = ("answer", "done", "failure", "woken")

    def __init__(self) -> None:
        self.done = False
        self.answer: Answer = None
        self.failure: Exception | None = None
        self.woken: threading.Event | None = None  # somebody waits

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
    """What `NodeRuntime` is to its process. State: the machines, whose turn it is, and who waits for an answer.

    Any thread may call any method. `panicked(reason)` is called once, on whichever thread, when a machine cannot go on.
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
        """In: `serves`: whether the machines have come to know each other; `now_ms`: the time of day; `leaders`: of the
        machine `broker`."""
        self._now_ms = now_ms
        self.id = node
        self._serves = serves
        self.served = threading.Event()
        """Is set once the machines have come to know each other, or never will."""
        self._machines = dict(machines)
        self._panicked = panicked
        self._turn = threading.RLock()  # who has it steps the machines; all that is below belongs to him
        self._todo: deque[tuple[str, Input]] = deque()
        self._stepping = self._stopped = False
        self._stepper = 0  # the thread that does so, or did last
        self._syncing = {name: _Syncing() for name in machines}
        self._requests = 0
        self._told_requests = 0  # how many requests there were when the machines heard last what time it is
        self._rests = False  # nobody has asked for anything, so they hear it seldom
        self._leaders = leaders
        self._left: list[tuple[Stored, Awaiting]] = []  # to the node's thread
        self._own_syncs = 0  # of partitions, by who waits for them
        self._holds = 0  # callers of `hold`: no sync begins
        self._asked: dict[RequestId, Awaiting] = {}
        self._unsynced: dict[str, None] = {}  # the machines that have changes waiting, in order
        self._bell = _Bell()  # there is something to make durable that nobody waits for
        self._thread = threading.Thread(target=self._run, name=f"node {node}", daemon=True)

    @property
    def traffic(self) -> Mapping[NodeId, LinkTraffic]:
        return {}

    @property
    def is_stepping(self) -> bool:
        """Whether this thread is about to step a machine: it waits for no answer."""
        return self._stepping and self._stepper == threading.get_ident()

    def start(self) -> None:
        """The machines come to know each other on this thread, which has nothing else to do: to wait for ticks of
        another one takes several times as long. `served` says whether they have, then or later."""
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
        """Ends it; who waits for an answer gets `NodeStopped`. Twice is fine."""
        with self._turn:
            self._stopped = True
        self._bell.ring()
        self.served.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        with self._turn:
            self._end_waiting(f"node {self.id} was stopped")

    def set_peer(self, node: NodeId, address: PeerAddress | None) -> None:
        """It speaks to nobody: to let others in, it is started with an address of its own."""

    def use_version(self, version: int) -> None:
        """There is nobody who might not speak it."""

    # What it is asked

    def ask(self, machine: str, body: Request, *, at: NodeId | None = None, timeout_s: float = ASK_S) -> Future[Answer]:
        """As `NodeRuntime.ask`."""
        del timeout_s
        future: Future[Answer] = Future()
        future.set_running_or_notify_cancel()
        self._begin(machine, body, at, future)
        self._leave_the_rest()
        return future

    def answer(self, machine: str, body: Request, *, at: NodeId | None = None, timeout_s: float = ASK_S) -> Answer:
        """As `NodeRuntime.answer`: who asks waits on this thread, and might as well work for the answer."""
        awaited = _Awaited()
        self._begin(machine, body, at, awaited)
        return self._answer_of(awaited, timeout_s)

    def answers(self, machine: str, bodies: Sequence[Request], *, timeout_s: float = ASK_S) -> list[Answer]:
        """The answers to several requests to a machine of this node, whose changes become durable together. Raises as
        `answer` does, where one of them has none."""
        awaited = [_Awaited() for _ in bodies]
        with self._turn:
            for body, each in zip(bodies, awaited, strict=True):
                self._begin(machine, body, None, each)
        return [self._answer_of(each, timeout_s) for each in awaited]

    # Leaders that nobody else copies: see `lone_leaders.py`

    def produce(self, partition: PartitionId, asked: Produce, *, timeout_s: float = ASK_S) -> Answer:
        """As `answer`, of the partition's replica. Raises as that does."""
        with self._turn:
            stored = self._in_turn(LoneLeaders.store, partition, asked)
            if isinstance(stored, Stored):
                self._own_syncs += 1
        if stored is None:
            return self.answer(BROKER, ForPartition(partition, asked), timeout_s=timeout_s)
        return self._synced(stored) if isinstance(stored, Stored) else stored

    def answer_now(self, asked: ForTransaction | ForGroup, *, timeout_s: float = ASK_S) -> Answer:
        """As `answer`, of a coordinator that is asked for nothing that it writes down."""
        with self._turn:
            answer = self._in_turn(LoneLeaders.answer_now, asked)
        return self.answer(BROKER, asked, timeout_s=timeout_s) if answer is None else answer

    def commit(self, partitions: Sequence[PartitionId]) -> list[Answer]:
        """Returns when all that is in their logs is committed, which become durable together. Gives the answers to
        `AwaitCommitted` of those where that is not known. Raises as `answers` does."""
        with self._turn:
            ends = self._in_turn(LoneLeaders.begin_commit, partitions)
            if ends is not None and self._leaders is not None:
                self._carry_out_all(self._leaders.take_effects())
        while ends and self._leaders is not None and not self._leaders.are_committed(ends):
            if not self._make_durable():  # another thread is at it
                return self.answers(BROKER, [ForPartition(each, AwaitCommitted()) for each in ends])
        if ends is None:
            return self.answers(BROKER, [ForPartition(each, AwaitCommitted()) for each in partitions])
        return []

    def begin_produce(self, partition: PartitionId, asked: Produce, waiting: Awaiting) -> None:
        """The same for who does not wait on this thread: another one makes it durable."""
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
        """Makes durable what `begin_produce` has left to this thread. False where there was nothing to do."""
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
        """None where nothing was done: no sync is to begin. In: it is this thread's turn."""
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
        """Makes durable what is not, on this thread; others do so with other partitions meanwhile."""
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
        """Those of the broker. In: it is this thread's turn."""
        if effects:
            for effect in effects:
                self._carry_out(BROKER, effect)
            self._step_all()

    def _answer_of(self, awaited: _Awaited, timeout_s: float) -> Answer:
        while not awaited.done and self._make_durable():
            pass
        if self._unsynced and self._asked:  # else nobody waits for it: it shares the next sync, or that of a tick
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
        """After a rest the machines hear first what time it is, so that no deadline of a request is counted from before
        it, and ticks are frequent again. In: it is this thread's turn."""
        self._requests += 1
        if self._rests:
            self._rests = False
            self._tell_the_time()
            self._bell.ring()

    def _wait(self, awaited: _Awaited, timeout_s: float) -> None:
        """Another thread is at what the answer needs. Raises `NoAnswer`."""
        with self._turn:
            if awaited.done:
                return
            woken = awaited.woken = threading.Event()
        if not woken.wait(timeout_s):
            raise NoAnswer(f"node {self.id} has not answered in {timeout_s} s")

    def tell(self, machine: str, body: Request) -> None:
        """As `NodeRuntime.tell`."""
        with self._turn:
            if not self._stopped and machine in self._machines:
                self._note_request()
                self._take(machine, Asked(RequestId(self._requests), body))
        self._leave_the_rest()

    def caught_up(self) -> Future[Answer]:
        """At once: who tells it something has done what that takes."""
        future: Future[Answer] = Future()
        future.set_running_or_notify_cancel()
        future.set_result(None)
        return future

    def hold(self, look: Callable[[], _Result]) -> _Result:
        """Calls it while no machine is stepped and no sync is under way: the files are as a crash at this moment would
        leave them, if the machine goes on. Whoever asks for something meanwhile waits. Raises what `look` raises."""
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
        """Steps the machine, and whatever that leads to, one after the other. In: it is this thread's turn."""
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
            return  # it ends already
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
        """What waits now, unless another thread is at it; False where there was nothing to do."""
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
        """Makes durable what is left to this thread meanwhile. A rest ends with the first request."""
        next_tick, resting = time.monotonic() + pause_s, self._rests
        while not self._stopped and (left_s := next_tick - time.monotonic()) > 0 and self._rests == resting:
            if not (self._sync_left() or self._make_durable()):
                self._bell.wait(left_s)
