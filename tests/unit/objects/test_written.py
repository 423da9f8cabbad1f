"""What we wrote ourselves is shown until the watch brings it."""

import asyncio

from pileus.kube.model.core_v1 import Node
from pileus.kube.model.meta import ObjectMeta
from pileus.objects.written import CATCH_UP, Written


def node(version: int, uid: str = "u1") -> Node:
    return Node(metadata=ObjectMeta(name="n", uid=uid, resource_version=str(version)))


async def test_a_write_is_shown_until_the_watch_has_caught_up() -> None:
    written = Written[str, Node]()
    written.note("n", node(5))

    assert written.newest("n", node(4)) == node(5)
    assert written.newest("n", node(6)) == node(6)
    assert written.newest("n", node(4)) == node(4), "what was overtaken is forgotten"


async def test_an_object_that_is_gone_or_replaced_is_not_shown_again() -> None:
    written = Written[str, Node]()
    written.note("n", node(5))
    assert written.newest("n", None) is None

    written.note("n", node(5))
    assert written.newest("n", node(4, uid="u2")) == node(4, uid="u2")


async def test_a_watch_that_never_brings_it_is_believed_in_the_end() -> None:
    written = Written[str, Node]()
    written.note("n", node(5))
    await asyncio.sleep(CATCH_UP + 1)

    assert written.newest("n", node(4)) == node(4)
