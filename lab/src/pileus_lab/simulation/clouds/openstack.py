"""OpenStack for the simulation: its model in `pileus_lab.openstack`, and the provider `openstack`.

pileus simulate --cloud openstack
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, cast

from pileus.cloud.errors import Unavailable
from pileus.cloud.interface import Cloud
from pileus.providers.openstack.annotations import LOAD_BALANCER_ID
from pileus.providers.openstack.api import Call, Service
from pileus.providers.openstack.config import (
    Auth,
    BlockStorage,
    LoadBalancer,
    OpenStackConfig,
    Route,
)
from pileus.providers.openstack.connect import cloud_of
from pileus.testing.virtual_time import LoopClock
from pileus_lab.openstack.handle import handle
from pileus_lab.openstack.model_api import ModelApi, error
from pileus_lab.openstack.state import EXTENSIONS, Settings, State
from pileus_lab.openstack.state import Moment as ModelMoment
from pileus_lab.simulation.clouds import deeds
from pileus_lab.simulation.clouds.interface import Api, Asked, Moment
from pileus_lab.simulation.clouds.openstack_deeds import Site, performed
from pileus_lab.simulation.clouds.openstack_truth import TruthOf
from pileus_lab.simulation.clouds.truth import Truth

REGION = "RegionOne"
CAPABILITIES = {
    Service.COMPUTE: "instances",
    Service.LOAD_BALANCER: "balancers",
    Service.BLOCK_STORAGE: "volumes",
}
SERVICES = frozenset({
    Service.COMPUTE,
    Service.NETWORK,
    Service.LOAD_BALANCER,
    Service.BLOCK_STORAGE,
})
LISTS = frozenset({
    "volumes",
    "servers",
    "ports",
    "networks",
    "subnets",
    "floatingips",
    "security_groups",
    "loadbalancers",
    "listeners",
    "pools",
    "members",
    "healthmonitors",
})
"""Lists that a faulty cloud may return incomplete. What it can do is never wrong."""
FIRST_ERROR = 300
FAILOVER = 120.0
"""Seconds until an administrator does what the provider asks for if a load balancer failed."""


@dataclass(frozen=True, slots=True)
class Manual:
    """What a user does in the cloud directly."""

    deed: deeds.CloudDeed


@dataclass(frozen=True, slots=True)
class _Wire:
    """The API of the simulation, as the provider calls it."""

    api: Api

    async def call(self, call: Call) -> Any:  # noqa: ANN401 -- JSON
        return await self.api.call(call)


class SimulatedOpenStack:
    """Its age, its speed, its settings and those of the provider are drawn."""

    impossible_address = "192.0.2.9"
    shares_by = LOAD_BALANCER_ID.name
    annotations: Sequence[tuple[str, str]] = (
        ("loadbalancer.openstack.org/connection-limit", "100"),
        ("loadbalancer.openstack.org/keep-floatingip", "maybe"),
        ("loadbalancer.openstack.org/timeout-client-data", "60000"),
        ("loadbalancer.openstack.org/lb-methd", "SOURCE_IP"),
    )

    def __init__(self, chance: Random) -> None:
        is_atomic = chance.random() < 0.7  # noqa: PLR2004 -- most clouds
        extensions = frozenset(EXTENSIONS) - (frozenset() if is_atomic else {"extraroute-atomic"})
        settings = Settings(
            region=REGION,
            extensions=extensions,
            pending_seconds=chance.choice((0.0, 1.0, 4.0)),
            failover_seconds=FAILOVER,
            page_limit=chance.choice((2, 5, 1000)),
            list_limit=chance.choice((0, 3, 7)),
        )
        api = ModelApi(settings, seed=chance.getrandbits(32))
        self._site = _built(api, has_public=chance.random() < 0.6)  # noqa: PLR2004 -- most have
        self._state = api.state
        self._config = OpenStackConfig(
            auth=Auth(region=REGION),
            is_regional=chance.random() < 0.5,  # noqa: PLR2004 -- half of them
            load_balancer=LoadBalancer(
                create_monitor=chance.random() < 0.5,  # noqa: PLR2004 -- half of them
                manage_security_groups=chance.random() < 0.4,  # noqa: PLR2004 -- some
                cascade_delete=chance.random() < 0.8,  # noqa: PLR2004 -- most
                internal_lb=chance.random() < 0.2,  # noqa: PLR2004 -- few
            ),
            route=Route(router_id=self._site.router),
            block_storage=BlockStorage(ignore_volume_az=True),  # Cinder's zone is not Nova's
        )
        # The address of an internal Service is any of a subnet, that of others a reserved one.
        self.gives_free_addresses = self._config.load_balancer.internal_lb
        self._truth = TruthOf(self._config)

    @asynccontextmanager
    async def connect(self, api: Api) -> AsyncGenerator[Cloud]:
        yield cloud_of(_Wire(api), self._config, SERVICES, clock=LoopClock())

    def start(self) -> State:
        return self._state

    def step(self, state: State, operation: Call | Manual, moment: Moment) -> tuple[State, object]:
        # A volume that fails later is left in an error state that only an administrator ends.
        doom = "" if _is_of_volumes(operation) else moment.doom
        given = ModelMoment(moment.now, moment.chance, moment.at_work, doom)
        if isinstance(operation, Manual):
            return performed(state, operation.deed, given, self._site), None
        after, reply = handle(state, operation, given)
        if reply.status >= FIRST_ERROR:
            raise error(operation, reply)
        return after, reply.body

    def asked(self, operation: Call | Manual) -> Asked:
        if isinstance(operation, Manual):
            return Asked(f"manual.{type(operation.deed).__name__}", writes=True)
        capability = CAPABILITIES.get(operation.service) or _capability(operation.path)
        if _is_of_volumes(operation):
            capability = "volumes"
        name = f"{capability}.{operation.method.lower()} {operation.path}"
        if operation.method == "DELETE" and capability == "volumes":
            name = f"volumes.{'detach' if 'attachments' in operation.path else 'delete'}"
        if operation.writes:
            shared = operation.path if "/ports/" in operation.path else ""
            return Asked(name, writes=True, what=_what(operation), shared=shared)
        return Asked(name, writes=False, continues="marker" in dict(operation.query))

    def items(self, answer: object) -> Sequence[object] | None:
        key = _list_in(answer)
        return cast("dict[str, list[object]]", answer)[key] if key else None

    def page(self, answer: object, items: Sequence[object], *, is_whole: bool) -> object:
        if not is_whole:
            raise Unavailable("the list broke off")
        return {_list_in(answer): list(items)}

    def operation(self, state: State, deed: deeds.CloudDeed) -> Manual | None:
        del state
        is_internal = self._config.load_balancer.internal_lb
        if isinstance(deed, deeds.AddKey) or (is_internal and isinstance(deed, deeds.AddAddress)):
            return None
        return Manual(deed)

    def truth(self, state: State, now: float) -> Truth:
        return self._truth.at(state, now)


def _built(api: ModelApi, *, has_public: bool) -> Site:
    network, subnet, subnet6 = api.add_network("nodes", "10.0.0.0/16", "fd00:10::/64")
    public = api.add_network("public", "203.0.112.0/20", external=True)[0] if has_public else ""
    router = api.add_router([subnet, subnet6], external=public)
    return Site(network=network, subnet=subnet, router=router, public=public)


def _is_of_volumes(operation: Call | Manual) -> bool:
    if isinstance(operation, Manual):
        return False
    is_attachment = "/os-volume_attachments" in operation.path
    return is_attachment or operation.service is Service.BLOCK_STORAGE


def _capability(path: str) -> str:
    """Returns the capability for which a request to Neutron is made, as far as its path shows."""
    if "/routers" in path or "/extensions" in path:
        return "routes"
    return "instances" if "/ports" in path else "balancers"


def _what(write: Call) -> str:
    """Returns what a write asks for. Another revision of the object does not make it another.

    An old Neutron is given all routes of a router to change one: they are not named as those that
    the write is for.
    """
    body = write.body or ""
    if "/routers/" in write.path and not write.path.endswith("_extraroutes"):
        routes = write.body["router"]["routes"]
        body = ", ".join(f"{one['destination']} via {one['nexthop']}" for one in routes)
    return f"{write.method} {write.path} {body}".rstrip()


def _list_in(answer: object) -> str:
    """Returns the key of the list in an answer; empty if it is not a list."""
    if not isinstance(answer, dict):
        return ""
    found = cast("dict[str, Any]", answer)
    return next((key for key in found if key in LISTS and isinstance(found[key], list)), "")
