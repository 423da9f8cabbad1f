"""The story's load balancer, and who visits it.

Until the manager looks after Services, the demo itself does what it will do for one: wish,
observe, show the plan, apply it.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

from pileus.cloud.balancer import BalancerSpec, Listener, Owner, Wish
from pileus.cloud.errors import Unavailable
from pileus.cloud.model import NodeName, NodeRef
from pileus.demo.board import Board
from pileus.demo.facts import address_of, provider_id_of
from pileus.demo.managing import CLUSTER
from pileus.kube.model.core_v1 import Node
from pileus.providers.local.balancers import LocalBalancers
from pileus.providers.local.model.records import Balancer, Outline

OWNER = Owner(CLUSTER, "the-shop-of-the-demo")
PATIENCE = aiohttp.ClientTimeout(total=2)


@dataclass(frozen=True, slots=True)
class Ports:
    front: int
    """Where the balancer listens."""
    node: int
    """Where its members do."""


class Shop:
    """A balancer named shop."""

    def __init__(self, balancers: LocalBalancers, ports: Ports, board: Board) -> None:
        self._balancers = balancers
        self._ports = ports
        self._board = board
        self.answers: Counter[str] = Counter()
        """Visits so far, by the instance that answered."""
        self.places: set[tuple[str, int]] = set()
        """Every address and port that ever listened for the shop."""

    async def serve_from(self, nodes: Sequence[Node]) -> None:
        """Let the balancer have these members, and be there if it is not."""
        ports = self._ports
        spec = BalancerSpec(
            listeners=frozenset({Listener(port=ports.front, node_port=ports.node, name="http")}),
            members=frozenset(_reference(node) for node in nodes),
        )
        self.places |= {(address_of(node), ports.node) for node in nodes}
        await self._meet(Wish(owner=OWNER, spec=spec, name="shop"))
        if (balancer := await self.find()) is not None:
            self.places |= {(address, ports.front) for address in balancer.addresses}

    async def close(self) -> None:
        await self._meet(Wish(owner=OWNER, spec=None, name="shop"))

    async def find(self) -> Balancer | Outline | None:
        """The balancer as it is. Errors: `Unavailable` if the cloud does not know."""
        wish = Wish(owner=OWNER, spec=None)
        seen = (await self._balancers.observe([wish], deep=True)).get(OWNER)
        if seen is None:
            raise Unavailable("the cloud says neither that the shop is there nor that it is not")
        return seen.found

    async def url(self) -> str:
        """Where the shop is to be visited; nothing, if there is none."""
        balancer = await self.find()
        return f"http://{balancer.addresses[0]}:{self._ports.front}/" if balancer else ""

    async def visit(self, times: int) -> Counter[str]:
        """Ask for the page that often, each time anew; who answered, or what went wrong."""
        url = await self.url()
        if not url:
            return Counter({"there is no balancer": times})
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=PATIENCE) as session:
            told = Counter([await _ask(session, url) for _ in range(times)])
        self.answers += told
        return told

    async def _meet(self, wish: Wish) -> None:
        seen = (await self._balancers.observe([wish], deep=True))[wish.owner]
        plan = self._balancers.changes(wish, seen)
        for change in plan:
            self._board.note("plan", change.effect, change.summary)
        for change in plan:
            seen = await self._balancers.apply(change, seen)


def _reference(node: Node) -> NodeRef:
    return NodeRef(name=NodeName(node.metadata.name), provider_id=provider_id_of(node))


async def _ask(session: aiohttp.ClientSession, url: str) -> str:
    try:
        async with session.get(url) as response:
            text = await response.text()
    except (aiohttp.ClientError, OSError) as error:
        return f"no answer ({type(error).__name__})"
    return text.partition("\n")[0]


async def is_listening(address: str, port: int) -> bool:
    try:
        async with asyncio.timeout(2):
            _, writer = await asyncio.open_connection(address, port)
    except OSError:  # TimeoutError is one
        return False
    writer.close()
    return True
