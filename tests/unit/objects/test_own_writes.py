"""Our own writes are shown before the watch brings them, and are no news when it does."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pileus.kube.informer import Handler
from pileus.kube.model.core_v1 import Node
from pileus.kube.model.meta import ObjectMeta
from pileus.objects.own_writes import CATCH_UP, OwnWrites, WithoutEchoes
from pileus.testing.virtual_time import VirtualTimeLoop


def node(version: int, uid: str = "u1", **labels: str) -> Node:
    metadata = ObjectMeta(name="n", uid=uid, resource_version=str(version), labels=labels)
    return Node(metadata=metadata)


@dataclass
class Watch:
    """An informer's store of one node, and a handler that asks for a pass when labels change."""

    seen: Node | None = None
    passes: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    gone: int = 0

    def __post_init__(self) -> None:
        self.written = OwnWrites[str, Node](lambda _: self.seen)
        self._handler: Handler[Node] = WithoutEchoes(
            self, self.written, lambda one: one.metadata.name
        )

    def brings(self, new: Node) -> None:
        old, self.seen = self.seen, new
        if old is None:
            self._handler.added(new)
        else:
            self._handler.updated(old, new)

    def loses(self) -> None:
        assert self.seen is not None
        old, self.seen = self.seen, None
        self._handler.deleted(old)

    def added(self, new: Node, /) -> None:
        self.passes.append(new.metadata.labels or {})

    def updated(self, old: Node, new: Node, /) -> None:
        if (old.metadata.labels or {}) != (new.metadata.labels or {}):
            self.passes.append(new.metadata.labels or {})

    def deleted(self, old: Node, /) -> None:
        self.gone += 1


def labelled(**labels: str) -> Callable[[Node], Node]:
    def leaves(before: Node) -> Node:
        merged = {**(before.metadata.labels or {}), **labels}
        return replace(before, metadata=replace(before.metadata, labels=merged))

    return leaves


async def answered(answer: Node, after: float = 0.0) -> Node:
    await asyncio.sleep(after)
    return answer


async def refused(after: float) -> Node:
    await asyncio.sleep(after)
    raise TimeoutError


async def test_a_write_is_shown_until_the_watch_has_caught_up() -> None:
    watch = Watch(node(4))
    written = watch.written
    written.note("n", node(5))

    assert written.newest("n", node(4)) == node(5)
    assert written.newest("n", node(6)) == node(6)
    assert written.newest("n", node(4)) == node(4), "what was overtaken is forgotten"


async def test_an_object_that_is_gone_or_replaced_is_not_shown_again() -> None:
    written = Watch(node(4)).written
    written.note("n", node(5))
    assert written.newest("n", None) is None

    written.note("n", node(5))
    assert written.newest("n", node(4, uid="u2")) == node(4, uid="u2")


async def test_a_watch_that_never_brings_it_is_believed_in_the_end() -> None:
    watch = Watch(node(4))
    watch.written.note("n", node(5))
    await asyncio.sleep(CATCH_UP + 1)

    assert watch.written.newest("n", node(4)) == node(4)
    assert len(watch.written) == 0


async def test_each_write_is_dropped_when_its_own_time_is_over() -> None:
    seen = {name: node(1) for name in "abc"}
    written = OwnWrites[str, Node](seen.get)
    written.note("a", node(2))
    await asyncio.sleep(CATCH_UP / 2)
    written.note("b", node(2))
    written.note("c", node(2))
    seen["c"] = node(2)  # the watch has delivered it
    await asyncio.sleep(CATCH_UP / 2)

    assert written.newest("c", seen["c"]) is seen["c"]
    assert len(written) == 1

    await asyncio.sleep(CATCH_UP / 2)

    assert len(written) == 0


async def test_a_write_that_was_delivered_leaves_no_timer() -> None:
    watch = Watch(node(1))
    watch.written.note("n", node(2))
    memory = watch.written._memories["n"]
    timer = memory.timer
    assert timer is not None

    watch.brings(node(2))

    assert len(watch.written) == 0
    assert timer.cancelled()


async def test_a_write_that_is_not_delivered_does_not_keep_the_pass_that_made_it() -> None:
    """A timer keeps the context in which it is set, and the context the pass."""
    watch = Watch(node(1))
    current = ContextVar["Watch"]("current")

    async def write() -> weakref.ref["Watch"]:
        of_pass = Watch()
        current.set(of_pass)
        watch.written.note("n", node(2))
        return weakref.ref(of_pass)

    of_pass = await asyncio.create_task(write())
    await asyncio.sleep(0)
    gc.collect()

    assert of_pass() is None
    assert len(watch.written) == 1


@pytest.mark.parametrize("answer_takes", [0.0, 1.0], ids=["answer first", "watch first"])
async def test_our_own_write_asks_for_no_pass(answer_takes: float) -> None:
    watch = Watch(node(4))
    writing = asyncio.create_task(
        watch.written.write("n", answered(node(5, ours="1"), answer_takes), labelled(ours="1"))
    )
    await asyncio.sleep(0.5)
    watch.brings(node(5, ours="1"))
    await writing

    assert watch.passes == []
    assert len(watch.written) == 0


@pytest.mark.parametrize("answer_takes", [0.0, 1.0], ids=["answer first", "watch first"])
async def test_a_change_of_another_in_the_same_update_asks_for_a_pass(answer_takes: float) -> None:
    """After a relist, one update may contain our write and what came just before or after it."""
    for version in (6, 7):
        watch = Watch(node(4))
        answer = node(6, ours="1", theirs="1") if version == 6 else node(6, ours="1")
        writing = asyncio.create_task(
            watch.written.write("n", answered(answer, answer_takes), labelled(ours="1"))
        )
        await asyncio.sleep(0.5)
        watch.brings(node(version, ours="1", theirs="1"))
        await writing

        assert watch.passes == [{"ours": "1", "theirs": "1"}]


async def test_another_who_undoes_our_write_in_the_same_update_asks_for_a_pass() -> None:
    watch = Watch(node(4))
    await watch.written.write("n", answered(node(5, ours="1")), labelled(ours="1"))

    watch.brings(node(6))

    assert watch.passes == [{}]


async def test_two_writes_before_the_watch_brings_the_first_are_both_ours() -> None:
    watch = Watch(node(4))
    await watch.written.write("n", answered(node(5, a="1")), labelled(a="1"))
    await watch.written.write("n", answered(node(6, a="1", b="1")), labelled(b="1"))

    watch.brings(node(5, a="1"))
    watch.brings(node(6, a="1", b="1"))
    watch.brings(node(7, a="1", b="1", theirs="1"))

    assert watch.passes == [{"a": "1", "b": "1", "theirs": "1"}]


async def test_a_write_that_fails_hides_nothing_that_came_meanwhile() -> None:
    watch = Watch(node(4))
    writing = asyncio.create_task(watch.written.write("n", refused(1.0), labelled(ours="1")))
    await asyncio.sleep(0.5)
    watch.brings(node(5, theirs="1"))
    assert watch.passes == []
    with pytest.raises(TimeoutError):
        await writing

    assert watch.passes == [{"theirs": "1"}]
    assert len(watch.written) == 0


async def test_nothing_is_remembered_of_an_object_that_is_deleted_before_the_answer() -> None:
    watch = Watch(node(4))
    for number in range(40):
        watch.seen = node(4, uid=str(number))
        answer = answered(node(5, uid=str(number)), 1.0)
        writing = asyncio.create_task(watch.written.write(str(number), answer, labelled()))
        await asyncio.sleep(0.5)
        watch.seen = None
        watch.written.forget(str(number))
        await writing

    assert len(watch.written) == 0


async def test_an_answer_that_changed_nothing_is_not_remembered() -> None:
    watch = Watch(node(4, ours="1"))
    await watch.written.write("n", answered(node(4, ours="1")), labelled(ours="1"))

    assert len(watch.written) == 0


STEPS = st.lists(st.sampled_from(["ours", "theirs", "show", "relist"]), max_size=12)


class Play:
    """A server's history of one node, and a watch that shows it sooner or later."""

    def __init__(self) -> None:
        self.watch = Watch(node(1))
        self.history = [node(1)]
        self.shown = 0
        self.theirs = 0

    async def step(self, what: str, *, late: bool) -> None:
        match what:
            case "ours":
                await self._write(late=late)
            case "theirs":
                self.theirs += 1
                self._append(theirs=str(self.theirs))
            case _ if self.shown < len(self.history) - 1:
                self.shown = len(self.history) - 1 if what == "relist" else self.shown + 1
                self.watch.brings(self.history[self.shown])
            case _:
                pass

    def show_all(self) -> None:
        for one in self.history[self.shown + 1 :]:
            self.watch.brings(one)
        self.shown = len(self.history) - 1

    async def _write(self, *, late: bool) -> None:
        """With `late`, the watch shows everything before the answer comes."""
        ours = str(len(self.history))
        self._append(ours=ours)
        answer = answered(self.history[-1], 1.0 if late else 0.0)
        writing = asyncio.create_task(self.watch.written.write("n", answer, labelled(ours=ours)))
        if late:
            await asyncio.sleep(0.5)
            self.show_all()
        await writing

    def _append(self, **labels: str) -> None:
        before = self.history[-1].metadata.labels or {}
        self.history.append(node(len(self.history) + 1, **{**before, **labels}))


@given(steps=STEPS, late=st.booleans())
def test_whatever_the_order_others_are_heard_once_and_we_are_not(
    steps: list[str], late: bool
) -> None:
    async def play() -> Play:
        it = Play()
        for step in steps:
            await it.step(step, late=late)
        it.show_all()
        return it

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        it = runner.run(play())

    heard = [int(each.get("theirs", 0)) for each in it.watch.passes]
    assert heard == sorted(set(heard)), "each pass has a new change of another as its reason"
    assert heard[-1:] == ([it.theirs] if it.theirs else []), "the last such change is heard"
    assert len(it.watch.written) == 0
