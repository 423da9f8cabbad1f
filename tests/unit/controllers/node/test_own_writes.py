"""The node controller is not woken by its own writes, in whatever order answer and watch come."""

import asyncio

import pytest

from pileus.kube.transport import Request
from pileus.testing.scripted import Scripted, refused
from tests.unit.controllers.node.objects import document, instance
from tests.unit.controllers.node.test_controller import Site, running, site

ORDERS = {"answer first": (0.01, 0.5), "watch first": (0.5, 0.01)}
"""Seconds until the answer, and until the watch brings it."""


def new_nodes(number: int, order: str) -> Site:
    names = [f"n{each}" for each in range(number)]
    at = site([document(name) for name in names], {name: instance(name) for name in names})
    at.server.answer_takes, at.server.lag = ORDERS[order]
    return at


def passes(at: Site) -> float:
    labels = {"name": "Nodes"}
    found = at.metrics.registry.value("workqueue_work_duration_seconds_count", labels)
    return found or 0.0


@pytest.mark.parametrize("order", ORDERS)
async def test_a_new_node_costs_one_pass_one_look_up_and_two_writes(order: str) -> None:
    at = new_nodes(10, order)

    async with running(at):
        await asyncio.sleep(30)

    assert not at.uninitialized()
    assert passes(at) == 10
    assert len([name for call in at.cloud.calls for name in call]) == 10
    assert len(at.server.patches) == 20


@pytest.mark.parametrize("order", ORDERS)
async def test_a_delay_that_was_asked_for_is_not_cut_short_by_the_write_before_it(
    order: str,
) -> None:
    at = new_nodes(1, order)
    tried: list[float] = []

    def refuse(request: Request) -> Scripted | None:
        if request.path.endswith("/status"):
            return None
        tried.append(asyncio.get_running_loop().time())
        return refused(429, "TooManyRequests", retry_after=90) if len(tried) == 1 else None

    at.server.refuse = refuse
    async with running(at):
        await asyncio.sleep(200)

    assert not at.uninitialized()
    assert len(tried) == 2
    assert 90 <= tried[1] - tried[0] < 92


@pytest.mark.parametrize("order", ORDERS)
async def test_what_another_writes_in_the_same_moment_is_not_missed(order: str) -> None:
    """A kubelet that puts the taint back right after we removed it: the node is untainted again."""
    at = new_nodes(1, order)
    tainted: list[str] = []

    def refuse(request: Request) -> Scripted | None:
        if not request.path.endswith("/status") and not tainted:
            tainted.append(request.path)
            loop = asyncio.get_running_loop()
            loop.call_soon(lambda: at.server.put(document("n0")))
        return None

    at.server.refuse = refuse
    async with running(at):
        await asyncio.sleep(30)

    assert not at.uninitialized()
