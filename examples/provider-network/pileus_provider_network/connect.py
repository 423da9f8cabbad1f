"""The provider: what its cloud can do, and the function that pileus finds by entry point."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic

from pileus.cloud.abilities import Abilities, Affinity, Batches, Limits, PagedList, Requests
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.model import NodeRef
from pileus_provider_network.balancers import NetworkBalancers
from pileus_provider_network.client import Api, Client
from pileus_provider_network.instances import PREFIX, SCHEME, NetworkInstances
from pileus_provider_network.model import PAGE, Account, Operation
from pileus_provider_network.routes import NetworkRoutes

MOST_PORTS = 5
"""Target groups of one load balancer, and a spare one while a node port is changed."""

ABILITIES = Abilities(
    affinity=Affinity.ON_OFF,
    marks_routes=False,
    members_by_provider_id=True,
    changes_while_provisioning=True,
    requests=Requests(
        lists=(
            PagedList(page_size=PAGE, per_balancer=1),
            PagedList(page_size=PAGE, per_balancer=MOST_PORTS),  # target groups
            PagedList(page_size=PAGE, per_machine=1),
            PagedList(per_route=1),  # all tables in one answer
        ),
        per_balancer=1,
        per_change=6,
    ),
    limits=Limits(per_second=20, burst=40, at_once=10, growth=1),
    batches=Batches(size=100),
)


def cloud_of(api: Api) -> Cloud:
    client = Client(api)
    return Cloud(
        name=SCHEME,
        instances=NetworkInstances(client),
        balancers=NetworkBalancers(client),
        routes=NetworkRoutes(client),
        owns=owns,
        abilities=ABILITIES,
    )


def owns(node: NodeRef) -> bool | None:
    """A node without a provider ID may be ours: it is looked up."""
    return node.provider_id.startswith(PREFIX) if node.provider_id else None


@dataclass
class InMemory:
    """The cloud in this process, for trying the provider."""

    account: Account = field(default_factory=Account)

    async def call(self, operation: Operation) -> object:
        self.account, answer = operation.step(self.account, monotonic())
        return answer


@asynccontextmanager
async def connect(config: ProviderConfig) -> AsyncGenerator[Cloud]:
    del config  # a cloud in memory needs no credentials
    yield cloud_of(InMemory())
