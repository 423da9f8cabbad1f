"""Routes to pod ranges: extra routes of one Neutron router (`router-id` of `[Route]`).

    router    10.244.1.0/24 via 10.0.0.11      the node's InternalIP of the same family
    port      allowed address pair 10.244.1.0/24, or a range that contains it

Extra routes have neither names nor tags, so Neutron cannot say for which cluster one was created
(`Abilities.marks_routes` is False): the route controller decides by pod ranges and nodes. A listed
route names the server whose port has the next hop. It is a blackhole if no port has that address.

Without its address pair, the port of a node drops the traffic of pods. A route whose pair is
missing is listed with `missing_in`, so that the route controller has it completed. Ports without
port security need no pairs.

Routes are added and removed by requests that leave other routes alone (extension
`extraroute-atomic`). Older versions of Neutron replace the whole list: such a request names the
revision that was read, and is refused if something else changed the router meanwhile (`Conflict`).
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from ipaddress import ip_network
from typing import Any, cast

from msgspec import to_builtins

from pileus.cloud.errors import (
    CloudError,
    Misconfigured,
    NotFound,
    QuotaExceeded,
    Rejected,
    Unsupported,
)
from pileus.cloud.fingerprint import usual_address
from pileus.cloud.model import AddressType, Route
from pileus.cloud.permission import pass_on
from pileus.dataclass import dataclass
from pileus.providers.openstack.api import each_of
from pileus.providers.openstack.config import OpenStackConfig
from pileus.providers.openstack.features import Features
from pileus.providers.openstack.networks import is_of_family
from pileus.providers.openstack.neutron import (
    AddressPair,
    ExtraRoute,
    Neutron,
    Port,
    Router,
)
from pileus.providers.openstack.port_writes import PortWrites
from pileus.providers.openstack.provider_id import ProviderIds

NO_ROUTER = "router-id of [Route] in cloud.conf is not set, so there is no router for routes"
MOST_REQUESTS = 20
"""Requests to find out which of several routes Neutron refuses."""
Errors = dict[Route, CloudError]
Send = Callable[[Sequence[ExtraRoute]], Awaitable[None]]


@dataclass(slots=True)
class OpenStackRoutes:
    """See `pileus.cloud.interface.Routes`."""

    neutron: Neutron
    router_id: str
    ids: ProviderIds
    writes: PortWrites = field(default_factory=PortWrites)
    _features: Features = field(init=False)

    def __post_init__(self) -> None:
        self._features = Features(self.neutron.client)

    async def list_routes(self, cluster: str) -> Sequence[Route]:
        del cluster
        listed = (await self._router()).routes
        if not listed:
            return ()
        pairs = (await self._features.neutron()).has_allowed_address_pairs
        return described(listed, await self._ports(), self.ids, pairs=pairs)

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        del cluster
        await self._check_supported()
        errors: Errors = {}
        wanted: dict[Route, ExtraRoute] = {}
        for route in routes:
            try:
                wanted[route] = extra_route(route)
            except Rejected as error:
                errors[route] = error
        try:
            ports = await self._ports(one.nexthop for one in wanted.values()) if wanted else ()
        except CloudError as error:
            return errors | dict.fromkeys(wanted, error)
        owners = by_address(ports)
        errors |= {
            route: self._unreachable(route, extra)  # Neutron would accept it
            for route, extra in wanted.items()
            if usual_address(extra.nexthop) not in owners
        }
        wanted = {route: extra for route, extra in wanted.items() if route not in errors}
        errors |= await self._in_parts(wanted, self._add)
        made = {route: extra for route, extra in wanted.items() if route not in errors}
        return errors | await self._change_pairs(made, add=True, ports=ports)

    async def delete(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        del cluster
        await self._check_supported()
        listed = {one: one.origin for one in routes if isinstance(one.origin, ExtraRoute)}
        errors: Errors = {
            one: Rejected(f"route {one.destination} was not listed by this router")
            for one in routes
            if one not in listed
        }
        errors |= await self._change_pairs(listed, add=False)
        rest = {route: extra for route, extra in listed.items() if route not in errors}
        return errors | await self._in_parts(rest, self._remove)

    async def _router(self) -> Router:
        try:
            return await self.neutron.router(self.router_id)
        except NotFound as error:
            known = await self.neutron.routers()
            listed = ", ".join(sorted(f"{one.id} ({one.name})" for one in known)) or "none"
            raise Misconfigured(
                f"router-id of [Route]: no router {self.router_id} is visible ({error}). "
                f"Routers: {listed}"
            ) from error

    async def _ports(self, next_hops: Iterable[str] = ()) -> tuple[Port, ...]:
        """Returns the ports in the router's networks; with one of the addresses, if any is given.

        The router's own interfaces say which networks these are.
        """
        interfaces = await self.neutron.ports_of([self.router_id])
        networks = sorted({each.network_id for each in interfaces})
        if not networks:
            return ()
        inside = [("network_id", one) for one in networks]
        addresses = [
            ("fixed_ips", f"ip_address={one}") for one in sorted(map(usual_address, next_hops))
        ]
        return await self.neutron.ports([*inside, *addresses])

    async def _check_supported(self) -> None:
        if not (await self._features.neutron()).has_routes:
            raise Unsupported("Neutron has no extension extraroute: routers cannot have routes")

    async def _add(self, routes: Sequence[ExtraRoute]) -> None:
        if (await self._features.neutron()).has_atomic_routes:
            return await self.neutron.change_routes(self.router_id, "add_extraroutes", routes)
        router = await self._router()
        missing = [one for one in dict.fromkeys(routes) if one not in router.routes]
        if missing:
            await self.neutron.set_routes(router, (*router.routes, *missing))
        return None

    async def _remove(self, routes: Sequence[ExtraRoute]) -> None:
        if (await self._features.neutron()).has_atomic_routes:
            return await self.neutron.change_routes(self.router_id, "remove_extraroutes", routes)
        router = await self._router()
        left = tuple(one for one in router.routes if one not in routes)
        if len(left) < len(router.routes):
            await self.neutron.set_routes(router, left)
        return None

    async def _change_pairs(
        self, routes: Mapping[Route, ExtraRoute], *, add: bool, ports: Sequence[Port] | None = None
    ) -> Errors:
        """Add or remove the address pairs of routes, with one request for each port."""
        if not routes or not (await self._features.neutron()).has_allowed_address_pairs:
            return {}
        try:
            hops = (one.nexthop for one in routes.values())
            known = await self._ports(hops) if ports is None else ports
        except CloudError as error:
            return dict.fromkeys(routes, error)
        owners = by_address(known)
        errors: Errors = {}
        work: defaultdict[Port, list[Route]] = defaultdict(list)
        for route, extra in routes.items():
            port = owners.get(usual_address(extra.nexthop))
            if port:
                work[port].append(route)
            elif add:
                errors[route] = self._unreachable(route, extra)
        outcomes = await each_of(
            list(work), lambda port: self._write_pairs(port, work[port], add=add)
        )
        for port, outcome in zip(work, outcomes, strict=True):
            if isinstance(outcome, CloudError):
                errors |= dict.fromkeys(work[port], outcome)
        return errors

    async def _write_pairs(self, port: Port, routes: Sequence[Route], *, add: bool) -> None:
        ranges = [one.destination for one in routes]

        def fields(now: Port) -> Mapping[str, object]:
            after = with_pairs(now, ranges) if add else without_pairs(now, ranges)
            is_changed = after != now.allowed_address_pairs
            return {"allowed_address_pairs": to_builtins(after)} if is_changed else {}

        try:
            await self.writes.change(self.neutron, port, fields)
        except NotFound:
            if add:
                raise
        except Rejected as error:
            if "exceeds the maximum" not in str(error):
                raise
            raise QuotaExceeded(
                f"{error}. Fix: raise max_allowed_address_pair in neutron.conf, or give port "
                f"{port.id} one allowed address pair for the range of all pods"
            ) from error

    async def _in_parts(self, routes: Mapping[Route, ExtraRoute], send: Send) -> Errors:
        """Send the routes in one request; if Neutron refuses it, in halves, to find out which.

        Neutron accepts a request as a whole or not at all.
        """
        errors: Errors = {}
        parts = [tuple(routes)] if routes else []
        requests = 0
        while parts:
            part = parts.pop()
            requests += 1
            try:
                await send([routes[one] for one in part])
            except Rejected as error:
                may_fit = type(error) in {Rejected, QuotaExceeded} and len(part) > 1
                if may_fit and requests < MOST_REQUESTS:
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]
                else:
                    errors |= {one: self._explained(one, routes[one], error) for one in part}
            except NotFound as error:
                errors |= dict.fromkeys(part, Misconfigured(f"router-id of [Route]: {error}"))
            except CloudError as error:
                pass_on(error)  # the other parts are not sent during a pause
                errors |= dict.fromkeys(part, error)
        return errors

    def _explained(self, route: Route, extra: ExtraRoute, error: Rejected) -> CloudError:
        """Returns the error with the node and the next step."""
        if "not connected with router" in str(error):
            return self._unreachable(route, extra)
        if isinstance(error, QuotaExceeded) or "exceeds the maximum" in str(error):
            return QuotaExceeded(
                f"router {self.router_id}: {error}. Fix: raise the number of routes that a router "
                "may have (quota router_route; max_routes in neutron.conf of older versions)"
            )
        return error

    def _unreachable(self, route: Route, extra: ExtraRoute) -> Misconfigured:
        return Misconfigured(
            f"node {route.target}: no port has the address {extra.nexthop}, or it is in no subnet "
            f"of router {self.router_id}. Fix, if the server exists: openstack router add subnet "
            f"{self.router_id} SUBNET, or set router-id of [Route] to the router of the nodes"
        )


def routes_of(
    neutron: Neutron, config: OpenStackConfig, writes: PortWrites
) -> OpenStackRoutes | None:
    """Returns the routes of the configured router; None if there is no `router-id`."""
    if not config.route.router_id:
        return None
    ids = ProviderIds(config.auth.region, config.is_regional)
    return OpenStackRoutes(neutron, config.route.router_id, ids, writes)


def extra_route(route: Route) -> ExtraRoute:
    """Returns the entry of the router. Raises `Misconfigured` if the node has no address for it."""
    version = ip_network(route.destination).version
    for one in route.addresses or ():
        if one.type == AddressType.INTERNAL_IP and is_of_family(one.address, f"IPv{version}"):
            return ExtraRoute(destination=route.destination, nexthop=one.address)
    raise Misconfigured(
        f"node {route.target} has no InternalIP of family IPv{version} for a route to "
        f"{route.destination}"
    )


def described(
    routes: Iterable[ExtraRoute], ports: Sequence[Port], ids: ProviderIds, *, pairs: bool
) -> tuple[Route, ...]:
    """Returns the router's entries as routes of the contract.

    `pairs`: whether ports have allowed address pairs.
    """
    owners = by_address(ports)
    shared = {
        usual_address(pair.ip_address) for port in ports for pair in port.allowed_address_pairs
    }
    found: list[Route] = []
    for extra in routes:
        hop = usual_address(extra.nexthop)
        port = owners.get(hop)
        server = port.device_id if port and is_server(port) else ""
        is_missing = bool(server and pairs and port and not is_covered(port, extra.destination))
        found.append(
            Route(
                destination=extra.destination,
                target=None,
                provider_id=ids.text(server) if server else "",
                aliases=ids.texts(server) if server else frozenset(),
                blackhole=port is None and hop not in shared,
                missing_in=frozenset({f"port {port.id}"}) if port and is_missing else frozenset(),
                origin=extra,
            )
        )
    return tuple(found)


def by_address(ports: Iterable[Port]) -> dict[str, Port]:
    return {usual_address(one.ip_address): port for port in ports for one in port.fixed_ips}


def is_server(port: Port) -> bool:
    """Whether the port belongs to a machine, not to a router or another part of the network."""
    return bool(port.device_id) and port.device_owner.startswith(("compute:", "baremetal:"))


def is_covered(port: Port, destination: str) -> bool:
    """Whether the port may send with the addresses of a pod range."""
    if not port.port_security_enabled:
        return True
    asked = ip_network(destination, strict=False)
    for pair in port.allowed_address_pairs:
        has = ip_network(pair.ip_address, strict=False)
        if pair.mac_address not in {"", port.mac_address} or has.version != asked.version:
            continue
        if asked.subnet_of(cast("Any", has)):
            return True
    return False


def with_pairs(port: Port, ranges: Iterable[str]) -> tuple[AddressPair, ...]:
    missing = [AddressPair(ip_address=one) for one in ranges if not is_covered(port, one)]
    return (*port.allowed_address_pairs, *missing)


def without_pairs(port: Port, ranges: Iterable[str]) -> tuple[AddressPair, ...]:
    """Returns the pairs without those of exactly these ranges and the port's own address."""
    removed = {ip_network(one, strict=False) for one in ranges}
    return tuple(
        pair
        for pair in port.allowed_address_pairs
        if ip_network(pair.ip_address, strict=False) not in removed
        or pair.mac_address not in {"", port.mac_address}
    )
