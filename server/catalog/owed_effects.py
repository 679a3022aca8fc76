"""Effects of accepted statements that failed (disk full, no broker): they are retried until they succeed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

import structlog

from millstream.errors import MillstreamError, ServerError

from .commands import Command

_AGAIN_S: Final = 2.0
_AGAIN_MAX_S: Final = 60.0
_ENDS_S: Final = 1.0
_log = structlog.get_logger("millstream.server")


class EffectsDelayed(ServerError):
    """The statement is accepted, but its effects are not complete yet."""

    code = "EFFECTS_DELAYED"


class OwedEffects:
    """State: commands that are written but not carried out, by offset, and a thread while there are any.

    In: `carry_out(command)` completes a command and may be called repeatedly. `lock`: held during that, and by callers
    of all methods except `close`. `done()` is called after each command that succeeds.
    """

    def __init__(
        self, carry_out: Callable[[Command], None], done: Callable[[], None], lock: AbstractContextManager[object]
    ) -> None:
        self._carry_out = carry_out
        self._done = done
        self._lock = lock
        self._owed: dict[int, Command] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def first_offset(self) -> int | None:
        """The offset of the oldest command; None if nothing is owed."""
        return min(self._owed, default=None)

    @property
    def commands(self) -> list[Command]:
        return [command for _, command in sorted(self._owed.items())]

    def owe(self, offset: int, command: Command, error: Exception) -> EffectsDelayed:
        """Records the command and returns the error for the client that sent the statement."""
        foreseen = isinstance(error, MillstreamError)
        reason = error.message if foreseen else f"{type(error).__name__}: {error}"
        what = "a statement is accepted and not complete yet"
        _log.error(what, offset=offset, error=reason, exc_info=None if foreseen else error)
        self._owed[offset] = command
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="millstream-owed-effects", daemon=True)
            self._thread.start()
        return EffectsDelayed(
            f"the statement is accepted, but not complete yet: {reason}",
            hint="Do not send it again: it is retried until it succeeds.",
        )

    def pay(self) -> None:
        """Retries the commands in order and stops at the first that fails: without disk space or a broker, the others
        would fail, too."""
        for offset, command in sorted(self._owed.items()):
            try:
                self._carry_out(command)
            except Exception as error:
                _log.warning("a statement is still not complete", offset=offset, error=str(error))
                return
            del self._owed[offset]
            _log.info("a statement is complete", offset=offset)
            self._done()

    def close(self) -> None:
        """Ends the retries. Does not wait longer than `_ENDS_S`, because the holder of the lock may be waiting for an
        external system. In: the caller does not hold the lock."""
        self._closed.set()
        thread = self._thread
        if thread is not None:
            thread.join(_ENDS_S)

    def _run(self) -> None:
        wait_s = _AGAIN_S
        while not self._closed.wait(wait_s):
            wait_s = min(2 * wait_s, _AGAIN_MAX_S)
            with self._lock:
                if self._closed.is_set():
                    return
                self.pay()
                if not self._owed:
                    self._thread = None
                    return
