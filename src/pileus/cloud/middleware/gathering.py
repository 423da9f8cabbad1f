"""Turns concurrent questions of one kind into few calls, and gives everyone their own answer.

Who asks waits a moment for others, then they travel together. While calls are under way, those
who come later gather for the next.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pileus.cloud.abilities import Batches
from pileus.cloud.errors import (
    Conflict,
    NotFound,
    QuotaExceeded,
    Rejected,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from pileus.deadline import covered

K = TypeVar("K")
Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(eq=False, slots=True)
class _Ask(Generic[K, Q, A]):
    """One caller, until all of its questions are answered or one call failed."""

    questions: Mapping[K, Q]
    manner: bool
    done: asyncio.Future[None]
    waiting_for: set[K]
    answer: dict[K, A] = field(default_factory=dict[K, A])
    error: Exception | None = None

    def in_common(self, batch: Mapping[K, Q]) -> list[K]:
        return [
            key
            for key in self.waiting_for
            if key in batch and is_same(batch[key], self.questions[key])
        ]

    def hear(self, batch: Mapping[K, Q], answer: Mapping[K, A]) -> None:
        for key in self.in_common(batch):
            self.waiting_for.remove(key)
            if key in answer:
                self.answer[key] = answer[key]
        if not self.waiting_for:
            self._finish()

    def fail(self, error: Exception) -> None:
        self.error = error
        self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class Gathering(Generic[K, Q, A]):
    """Questions of one kind, each with a key by which its answer comes.

    Guarantees: an answer or error reaches exactly those who asked its questions; who is cancelled
    cancels nobody else; two different questions of one key never share a call, nor do questions
    asked in different manners.
    """

    def __init__(
        self, call: Callable[[Sequence[Q], bool], Awaitable[Mapping[K, A]]], batches: Batches
    ) -> None:
        self._call = call
        self._batches = batches
        self._gathered: list[_Ask[K, Q, A]] = []
        self._open: set[_Ask[K, Q, A]] = set()
        self._came = asyncio.Event()
        self._slots = asyncio.Semaphore(batches.at_once)
        self._is_closed = False

    async def ask(self, questions: Mapping[K, Q], *, manner: bool) -> Mapping[K, A]:
        """Errors: what the call raised; `Unavailable` once the gathering is closed."""
        if self._is_closed:
            raise _abandoned()
        if not questions:
            return {}
        done = asyncio.get_running_loop().create_future()
        ask = _Ask[K, Q, A](questions, manner, done, set(questions))
        self._gathered.append(ask)
        self._open.add(ask)
        self._came.set()
        try:
            with covered():
                await ask.done
        finally:
            self._open.discard(ask)
        if ask.error is not None:
            # Shared with others who asked: without their frames.
            raise ask.error.with_traceback(None)
        return ask.answer

    async def run(self) -> None:
        """Make the calls, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._came.wait()
                await asyncio.sleep(self._batches.window)
                await self._send(group)

    def close(self) -> None:
        """Tell all who still wait, and all who come later."""
        self._is_closed = True
        for ask in self._open:
            ask.fail(_abandoned())

    async def _send(self, group: asyncio.TaskGroup) -> None:
        """Wait until a call may leave, and let everyone come along who came meanwhile."""
        await self._slots.acquire()
        self._slots.release()
        self._came.clear()
        asks, self._gathered = [a for a in self._gathered if not a.done.done()], []
        for manner in (False, True):
            alike = [ask for ask in asks if ask.manner is manner]
            questions = [item for ask in alike for item in ask.questions.items()]
            for batch in pack(questions, self._batches.size):
                passengers = [ask for ask in alike if ask.in_common(batch)]
                await self._slots.acquire()
                group.create_task(self._travel(batch, passengers, manner=manner))

    async def _travel(
        self, batch: Mapping[K, Q], passengers: Sequence[_Ask[K, Q, A]], *, manner: bool
    ) -> None:
        try:
            await self._carry(batch, passengers, manner=manner)
        finally:
            self._slots.release()

    async def _carry(
        self, batch: Mapping[K, Q], passengers: Sequence[_Ask[K, Q, A]], *, manner: bool
    ) -> None:
        """Make the call; if one question may have spoiled it, again by halves, to find which."""
        try:
            answer = await self._call(tuple(batch.values()), manner)
        except Exception as error:  # noqa: BLE001 -- it belongs to those who asked, not to this task
            if len(batch) > 1 and is_perhaps_of_one(error):
                for half in _halves(batch):
                    asks = [ask for ask in passengers if ask.in_common(half)]
                    await self._carry(half, asks, manner=manner)
                return
            for ask in passengers:
                ask.fail(error)
        else:
            for ask in passengers:
                ask.hear(batch, answer)


def is_perhaps_of_one(error: Exception) -> bool:
    """Whether a call about many may have failed because of one of them.

    Providers should tell that by a `Failure`. One that raises instead must not harm the others.
    """
    if isinstance(error, Unauthorized | QuotaExceeded):
        return False
    return isinstance(error, Rejected | Unsupported | NotFound | Conflict)


def _halves(batch: Mapping[K, Q]) -> Iterator[Mapping[K, Q]]:
    items = list(batch.items())
    middle = len(items) // 2
    yield dict(items[:middle])
    yield dict(items[middle:])


def pack(questions: Sequence[tuple[K, Q]], size: int) -> Iterator[Mapping[K, Q]]:
    """Part questions into batches; two different ones of one key never share a batch.

    Answers come by key, so that nobody could tell whose answer it is otherwise. What is asked
    several times is in one batch once.
    """
    left = list(questions)
    while left:
        batch: dict[K, Q] = {}
        later: list[tuple[K, Q]] = []
        for key, question in left:
            if key not in batch and len(batch) < size:
                batch[key] = question
            elif key not in batch or not is_same(batch[key], question):
                later.append((key, question))
        yield batch
        left = later


def is_same(one: object, other: object) -> bool:
    """Equal; the same object is, without a look at its thousand members."""
    return one is other or one == other


def _abandoned() -> Unavailable:
    return Unavailable("the look-up was abandoned: the manager is stopping")
