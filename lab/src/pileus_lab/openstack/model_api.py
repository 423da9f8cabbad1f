"""The modelled OpenStack as the `Api` of a provider, for tests.

    api = ModelApi()
    network, subnet = api.add_network("private", "10.0.0.0/24")
    public, _ = api.add_network("public", "203.0.113.0/24", external=True)
    router = api.add_router([subnet], external=public)
    server = api.add_server("node-1", network, zone="az1")
    instances = OpenStackInstances(Client(api), …)        # whatever is under test
    …
    assert api.requests["compute", "GET", "/servers/detail"] == 1
    api.records("ports")                                  # what is in OpenStack now
    api.now += 30                                         # time passes only here

Helpers such as `add_server` and `must` are the hands of an administrator: they are not counted in
`requests`. Load balancers are pending until the next request, or for `Settings.pending_seconds`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from pileus.cloud.errors import CloudError
from pileus.cloud.http import Answer, error_for
from pileus.cloud.http import Request as HttpRequest
from pileus.providers.openstack.api import Call, Service
from pileus.providers.openstack.errors import error_of
from pileus_lab.openstack.handle import handle, route_of, settled
from pileus_lab.openstack.state import Due, Moment, Record, Reply, Settings, State

FIRST_STATUS_OF_ERRORS = 300


class Refused(AssertionError):
    """The model refused a request of the test itself."""


class ModelApi:
    """An OpenStack project in memory."""

    def __init__(self, settings: Settings | None = None, *, seed: int = 0) -> None:
        self.state = State(settings=settings or Settings())
        self.now = 1_767_225_600.0
        """Seconds since the epoch."""
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """Number of requests of the provider, by service, method and path pattern."""
        self.calls: list[Call] = []
        """All requests of the provider, in order."""
        self.doom = ""
        """If not empty: why changes that are accepted now end in the state ERROR."""
        self.at_work = 0.0
        """Seconds that changes of volumes, snapshots and load balancers take longer."""
        self._chance = Random(seed)  # noqa: S311 -- no secret

    async def call(self, call: Call) -> Any:  # noqa: ANN401 -- see `Api`
        """The request of a provider. Raises `CloudError`."""
        match = route_of(call.service, call.method, call.path)
        pattern = match.pattern if match else call.path
        self.requests[str(call.service), call.method, pattern] += 1
        self.calls.append(call)
        reply = self.reply(call)
        if reply.status >= FIRST_STATUS_OF_ERRORS:
            raise error(call, reply)
        return reply.body

    def reply(self, call: Call) -> Reply:
        """The answer to a request that is not counted; it may be a refusal."""
        moment = Moment(self.now, self._chance, self.at_work, self.doom)
        self.state, reply = handle(self.state, call, moment)
        return reply

    def must(
        self, service: Service, method: str, path: str, body: object = None, version: str = ""
    ) -> Any:  # noqa: ANN401 -- JSON
        """Returns the body of an answer to a request that is not counted. Raises `Refused`."""
        call = Call(service=service, method=method, path=path, body=body, microversion=version)
        reply = self.reply(call)
        if reply.status >= FIRST_STATUS_OF_ERRORS:
            raise Refused(f"{method} {path}: {reply.status} {reply.body}")
        return reply.body

    def records(self, collection: str) -> list[Record]:
        """Returns all records of a collection: `ports`, `security-groups`, `servers` and so on."""
        self.state = settled(self.state, self.now)
        return list(self.state.table(collection).values())

    def record(self, collection: str, id_: str) -> Record:
        self.state = settled(self.state, self.now)
        return self.state.table(collection)[id_]

    def change(self, collection: str, id_: str, changes: Record) -> None:
        """Change fields of a record directly, also those that no request can change."""
        self.state = settled(self.state, self.now).change(collection, id_, changes)

    def add_network(
        self, name: str, *cidrs: str, external: bool = False, tags: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Returns the IDs of a new network and of its subnets, one for each CIDR."""
        fields = {"name": name, "router:external": external}
        network = self.must(Service.NETWORK, "POST", "/v2.0/networks", {"network": fields})
        network_id = str(network["network"]["id"])
        subnets: list[str] = []
        for cidr in cidrs:
            body = {"network_id": network_id, "cidr": cidr, "name": f"{name}-{len(subnets)}"}
            made = self.must(Service.NETWORK, "POST", "/v2.0/subnets", {"subnet": body})
            subnets.append(str(made["subnet"]["id"]))
        self._tag("networks", network_id, tags)
        return network_id, *subnets

    def _tag(self, collection: str, id_: str, tags: Iterable[str]) -> None:
        if given := list(tags):
            path = f"/v2.0/{collection}/{id_}/tags"
            self.must(Service.NETWORK, "PUT", path, {"tags": given})

    def add_router(self, subnets: Sequence[str], external: str = "", name: str = "router") -> str:
        """Returns the ID of a new router with an interface in each subnet.

        `external` is the ID of the external network of its gateway.
        """
        gateway = {"network_id": external} if external else None
        body = {"router": {"name": name, "external_gateway_info": gateway}}
        router = str(self.must(Service.NETWORK, "POST", "/v2.0/routers", body)["router"]["id"])
        for subnet in subnets:
            path = f"/v2.0/routers/{router}/add_router_interface"
            self.must(Service.NETWORK, "PUT", path, {"subnet_id": subnet})
        return router

    def add_server(
        self,
        name: str,
        *networks: str,
        zone: str = "nova",
        flavor: str = "1",
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Returns the ID of a new, running server with a port in each network."""
        body = {
            "name": name,
            "flavorRef": flavor,
            "availability_zone": zone,
            "metadata": metadata or {},
            "networks": [{"uuid": one} for one in networks],
        }
        made = self.must(Service.COMPUTE, "POST", "/servers", {"server": body})
        self.state = settled(self.state, self.now)
        return str(made["server"]["id"])

    def stop_server(self, server: str) -> None:
        self.must(Service.COMPUTE, "POST", f"/servers/{server}/action", {"os-stop": None})

    def start_server(self, server: str) -> None:
        self.must(Service.COMPUTE, "POST", f"/servers/{server}/action", {"os-start": None})

    def delete_server(self, server: str) -> None:
        self.must(Service.COMPUTE, "DELETE", f"/servers/{server}")

    def server_named(self, name: str) -> Record:
        return next(one for one in self.records("servers") if one["name"] == name)

    def port_of(self, server: str) -> Record:
        """Returns the first port of a server."""
        return next(one for one in self.records("ports") if one["device_id"] == server)

    def add_floating_ip(self, network: str, *, port: str = "", description: str = "") -> Record:
        body = {"floating_network_id": network, "port_id": port or None}
        fields = {"floatingip": {**body, "description": description}}
        made: Record = self.must(Service.NETWORK, "POST", "/v2.0/floatingips", fields)
        return made["floatingip"]

    def add_balancer(self, **fields: object) -> str:
        """Returns the ID of a new, active load balancer; fields as in Octavia's request."""
        body = {"loadbalancer": fields}
        path = "/v2.0/lbaas/loadbalancers"
        made = self.must(Service.LOAD_BALANCER, "POST", path, body)
        balancer = str(made["loadbalancer"]["id"])
        self.finish(balancer)
        return balancer

    def finish(self, balancer: str) -> None:
        """End what a load balancer is pending for, at once."""
        mine = [one for one in self.state.due if one.id == balancer]
        for one in mine:
            self.state = _sooner(self.state, one, self.now)
        self.state = settled(self.state, self.now)


def _sooner(state: State, due: Due, now: float) -> State:

    rest = tuple(one for one in state.due if one is not due)
    return replace(state, due=(replace(due, at=now), *rest))


def error(call: Call, reply: Reply) -> CloudError:
    """Returns what a client over HTTP raises for this answer."""
    request = HttpRequest(call.method, f"http://openstack.example{call.path}", {})
    headers = {name.lower(): value for name, value in reply.headers.items()}
    answer = Answer(reply.status, headers, json.dumps(reply.body).encode(), request)
    return error_of(answer, error_for(answer))
