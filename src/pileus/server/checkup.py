"""One run of a health check that can neither raise into the server nor hang it."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

Check = Callable[[], str | None]
"""Returns None if all is well, else why not. Called in a thread of its own: it only reads."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check said; `failure` is None if all is well."""

    name: str
    failure: str | None = None
    excluded: bool = False


class Checkup:
    """A named check. While one run hangs no other is started, so that threads cannot pile up."""

    def __init__(self, name: str, check: Check) -> None:
        self.name = name
        self._check = check
        self._running: asyncio.Future[str | None] | None = None

    async def run(self, patience: float) -> Outcome:
        """The check's outcome; a failure if it raises, or takes longer than `patience` seconds."""
        running = self._running
        if running is None or running.done():
            running = self._running = self._start()
        try:
            async with asyncio.timeout(patience):
                return Outcome(self.name, await asyncio.shield(running))
        except TimeoutError:
            return Outcome(self.name, f"the check has not answered within {patience:g} s")

    def _start(self) -> asyncio.Future[str | None]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str | None] = loop.create_future()

        def work() -> None:
            failure = self._ask()
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(_settle, answer, failure)

        # A daemon: a check that hangs must not keep the process from exiting either.
        threading.Thread(target=work, name=f"healthcheck-{self.name}", daemon=True).start()
        return answer

    def _ask(self) -> str | None:
        try:
            return self._check()
        except Exception as error:  # noqa: BLE001 -- whatever a check raises is its failure
            return f"the check itself failed: {error!r}"


def _settle(answer: asyncio.Future[str | None], failure: str | None) -> None:
    if not answer.done():
        answer.set_result(failure)
