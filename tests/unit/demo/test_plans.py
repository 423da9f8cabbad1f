"""The audience hears of changes before they are made."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from pileus.app.plan import Plan, PlanLine
from pileus.cloud.balancer import Effect, Owner, Wish
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.kube.model.core_v1 import ObjectReference
from pileus.objects.preview import Place, Planned, Trouble
from pileus_lab.demo.manager import deletions, reporting
from pileus_lab.demo.state import Board
from tests.unit.cloud.fakes import Change, Seen


class Balancers:
    """Notes what was told when it is asked to change something."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.told_before: list[int] = []

    async def owners(self, cluster: str) -> Any:
        return frozenset({Owner(cluster, "x")})

    async def observe(self, wishes: Any, *, deep: bool) -> Any:
        return {wish.owner: Seen() for wish in wishes if deep}

    def changes(self, wish: Wish, seen: Any) -> Any:
        return (Change(),)

    async def apply(self, change: Any, seen: Any) -> Any:
        self.told_before.append(len(self.board.scene().notes))
        return seen

    def lock_key(self, wish: Wish) -> str:
        return "key"


async def test_a_change_in_the_cloud_is_told_before_it_is_made():
    board = Board(asyncio.get_running_loop().time)
    inner = Balancers(board)
    wish = Wish(owner=Owner("c", "x"), spec=None)

    @asynccontextmanager
    async def connect(config: ProviderConfig):
        yield Cloud(name="fake", balancers=inner)

    async with reporting(connect, board)(ProviderConfig()) as cloud:
        assert cloud.balancers
        seen = (await cloud.balancers.observe([wish], deep=True))[wish.owner]
        (change,) = cloud.balancers.changes(wish, seen)
        assert board.scene().notes == ()
        await cloud.balancers.apply(change, seen)
        assert await cloud.balancers.owners("c") == {wish.owner}
        assert cloud.balancers.lock_key(wish) == "key"

    (note,) = board.scene().notes
    assert (note.source, note.effect, note.text) == ("plan", change.effect, change.summary)
    assert inner.told_before == [1]


def test_a_deletion_that_waits_says_for_what():
    node = ObjectReference(kind="Node", name="web-2")
    going = Planned(
        about=node,
        place=Place.CLUSTER,
        effect=Effect.DELETE,
        summary="delete node",
        waits_for="a second look",
    )
    other = Planned(about=node, place=Place.CLUSTER, effect=Effect.UPDATE, summary="taints")
    lines = [PlanLine("x", going), PlanLine("x", other), PlanLine("x", Trouble(node, "Odd", "odd"))]

    assert deletions(Plan(tuple(lines))) == {"node web-2, after a second look"}
    assert deletions(Plan()) == frozenset()
