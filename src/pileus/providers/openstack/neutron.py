"""Neutron's ports, networks, subnets, routers, floating IPs and security groups, and their lists.

    neutron = Neutron(client)
    ports = await neutron.ports_of(["<server id>", …])
    external = await neutron.networks([("router:external", "true")])

Every list is complete or raises `CloudError`. A list asks only for the fields of its struct, since
Neutron returns several kilobytes for each port otherwise.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import TypeVar

import msgspec

from pileus.cloud.errors import NotFound
from pileus.dataclass import dataclass
from pileus.providers.openstack.api import Call, Client, Query, Service, decoded, field_of

T = TypeVar("T")
R = TypeVar("R", bound="Resource")

PAGE = 1000
"""Objects on one page of a list."""
VIP_OWNERS = ("Octavia", "ovn-lb:vip")
"""`device_owner` of the ports of load balancers."""
VALUES_PER_REQUEST = 150
"""Values of one filter in one request: a URL with more of them is too long for some proxies."""


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """What most objects of Neutron have."""

    id: str
    name: str = ""
    project_id: str = ""
    tags: tuple[str, ...] = ()
    revision_number: int | None = None
    """Increases with every change of the object; None if it is not known."""


class FixedIp(msgspec.Struct, frozen=True, kw_only=True):
    subnet_id: str
    ip_address: str


class AddressPair(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Addresses that a port may use besides its own: one address, or a CIDR."""

    ip_address: str
    mac_address: str = ""


class SubPort(msgspec.Struct, frozen=True, kw_only=True):
    port_id: str
    mac_address: str = ""
    segmentation_id: int = 0


class TrunkDetails(msgspec.Struct, frozen=True, kw_only=True):
    trunk_id: str = ""
    sub_ports: tuple[SubPort, ...] = ()


class Port(Resource, frozen=True, kw_only=True):
    network_id: str
    device_id: str = ""
    """ID of the server or router that uses it; empty if none does."""
    device_owner: str = ""
    """What uses it: `compute:<zone>`, `network:router_interface`, `Octavia`, `trunk:subport`."""
    status: str = ""
    mac_address: str = ""
    fixed_ips: tuple[FixedIp, ...] = ()
    allowed_address_pairs: tuple[AddressPair, ...] = ()
    security_groups: tuple[str, ...] = ()
    port_security_enabled: bool = True
    """If False, the port can have neither security groups nor address pairs."""
    trunk_details: TrunkDetails | None = None
    """Of the parent port of a trunk: its sub-ports."""


class VipPort(Port, frozen=True, kw_only=True):
    """A port of a load balancer, or one that looks so."""

    created_at: str = ""

    @property
    def created(self) -> datetime | None:
        """When it was created, by the clock of Neutron; None: not known."""
        try:
            found = datetime.fromisoformat(self.created_at)
        except ValueError:
            return None
        return found if found.tzinfo else found.replace(tzinfo=UTC)


class Network(Resource, frozen=True, kw_only=True):
    subnets: tuple[str, ...] = ()
    shared: bool = False
    external: bool = msgspec.field(default=False, name="router:external")
    """Whether floating IPs can be created in it."""


class Subnet(Resource, frozen=True, kw_only=True):
    network_id: str
    cidr: str
    ip_version: int = 4
    gateway_ip: str | None = None


class ExtraRoute(msgspec.Struct, frozen=True, kw_only=True):
    destination: str
    nexthop: str


class Router(Resource, frozen=True, kw_only=True):
    routes: tuple[ExtraRoute, ...] = ()


class PortDetails(msgspec.Struct, frozen=True, kw_only=True):
    device_owner: str = ""
    device_id: str = ""


class FloatingIp(Resource, frozen=True, kw_only=True):
    """A floating IP. It has no name."""

    floating_ip_address: str
    floating_network_id: str
    description: str | None = None
    port_id: str | None = None
    """The port that it leads to; None if it is free."""
    port_details: PortDetails | None = None
    """What uses the port; None if Neutron does not say."""
    status: str = ""


class SecurityGroupRule(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    security_group_id: str
    direction: str
    ethertype: str = "IPv4"
    protocol: str | None = None
    port_range_min: int | None = None
    port_range_max: int | None = None
    remote_ip_prefix: str | None = None
    remote_group_id: str | None = None


class SecurityGroup(Resource, frozen=True, kw_only=True):
    description: str | None = None
    rules: tuple[SecurityGroupRule, ...] = msgspec.field(default=(), name="security_group_rules")


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    alias: str


@dataclass(frozen=True, slots=True)
class Neutron:
    """Typed requests to Neutron. A write may be refused with a `CloudError`; none is repeated."""

    client: Client

    async def extensions(self) -> frozenset[str]:
        """Returns the aliases of the extensions that Neutron offers, such as `extraroute`."""
        found = await self._list("extensions", Extension, paged=False)
        return frozenset(one.alias for one in found)

    async def port(self, port_id: str) -> Port:
        """Raises `NotFound` if there is no such port."""
        return await self.client.get(Service.NETWORK, f"/v2.0/ports/{port_id}", "port", Port)

    async def ports(self, query: Query = ()) -> tuple[Port, ...]:
        return await self._list("ports", Port, query)

    async def ports_of(self, device_ids: Iterable[str]) -> tuple[Port, ...]:
        """Returns the ports of these servers. Sub-ports of trunks belong to no server."""
        return await self._filtered("ports", Port, "device_id", device_ids)

    async def ports_by_id(self, ids: Iterable[str]) -> tuple[Port, ...]:
        """Returns those of the ports that exist."""
        return await self._filtered("ports", Port, "id", ids)

    async def ports_with_group(self, group_ids: Iterable[str]) -> tuple[Port, ...]:
        """Returns the ports that have one of the security groups."""
        return await self._filtered("ports", Port, "security_groups", group_ids)

    async def vip_ports(self) -> tuple[VipPort, ...]:
        """Returns the ports whose owner is Octavia, or its provider OVN."""
        return await self._filtered("ports", VipPort, "device_owner", VIP_OWNERS)

    async def networks(self, query: Query = ()) -> tuple[Network, ...]:
        return await self._list("networks", Network, query)

    async def subnets(self, query: Query = ()) -> tuple[Subnet, ...]:
        return await self._list("subnets", Subnet, query)

    async def floating_ips(self, query: Query = ()) -> tuple[FloatingIp, ...]:
        return await self._list("floatingips", FloatingIp, query)

    async def floating_ip(self, id_: str) -> FloatingIp:
        """Raises `NotFound` if there is none."""
        path = f"/v2.0/floatingips/{id_}"
        return await self.client.get(Service.NETWORK, path, "floatingip", FloatingIp)

    async def security_group(self, id_: str) -> SecurityGroup:
        """Returns a security group with all its rules. Raises `NotFound` if there is none."""
        path = f"/v2.0/security-groups/{id_}"
        return await self.client.get(Service.NETWORK, path, "security_group", SecurityGroup)

    async def security_groups(self, query: Query = ()) -> tuple[SecurityGroup, ...]:
        """Returns security groups with all their rules."""
        return await self._list("security-groups", SecurityGroup, query, key="security_groups")

    async def router(self, router_id: str) -> Router:
        """Raises `NotFound` if there is no such router."""
        return await self.client.get(
            Service.NETWORK, f"/v2.0/routers/{router_id}", "router", Router
        )

    async def routers(self) -> tuple[Router, ...]:
        return await self._list("routers", Router)

    async def change_routes(
        self, router_id: str, action: str, routes: Iterable[ExtraRoute]
    ) -> None:
        """Do `add_extraroutes` or `remove_extraroutes`, which leave other routes as they are."""
        path = f"/v2.0/routers/{router_id}/{action}"
        body = {"router": {"routes": msgspec.to_builtins(list(routes))}}
        await self.client.send("PUT", Service.NETWORK, path, body)

    async def set_routes(self, router: Router, routes: Iterable[ExtraRoute]) -> Router:
        """Replace all routes. Raises `Conflict` if the router was changed since it was read."""
        body = {"routes": msgspec.to_builtins(list(routes))}
        return await self.update("routers", "router", router, body, Router)

    async def _filtered(
        self, name: str, kind: type[T], key: str, values: Iterable[str]
    ) -> tuple[T, ...]:
        """Returns the objects with one of the values, without a request if there are no values."""
        found: list[T] = []
        asked = sorted(set(values) - {""})
        for start in range(0, len(asked), VALUES_PER_REQUEST):
            part = asked[start : start + VALUES_PER_REQUEST]
            found += await self._list(name, kind, [(key, value) for value in part])
        return tuple(found)

    async def _list(
        self, name: str, kind: type[T], query: Query = (), *, key: str = "", paged: bool = True
    ) -> tuple[T, ...]:
        limit = [("limit", str(PAGE))] if paged else []
        return await self.client.all_pages(
            Service.NETWORK,
            f"/v2.0/{name}",
            key or name,
            kind,
            query=(*query, *_fields(kind), *limit),
        )

    async def create(self, name: str, key: str, body: Mapping[str, object], kind: type[T]) -> T:
        """Create an object: `create("floatingips", "floatingip", {…}, FloatingIp)`."""
        call = Call(service=Service.NETWORK, method="POST", path=f"/v2.0/{name}", body={key: body})
        return await self._write(call, key, kind)

    async def update(
        self, name: str, key: str, found: Resource, body: Mapping[str, object], kind: type[T]
    ) -> T:
        """Change an object. Raises `Conflict` if it was changed since it was `found`."""
        call = Call(
            service=Service.NETWORK,
            method="PUT",
            path=f"/v2.0/{name}/{found.id}",
            body={key: body},
            if_revision=found.revision_number,
        )
        return await self._write(call, key, kind)

    async def create_rules(
        self, bodies: Sequence[Mapping[str, object]]
    ) -> tuple[SecurityGroupRule, ...]:
        """Create rules of security groups in one request: all of them, or none."""
        path = "/v2.0/security-group-rules"
        body = {"security_group_rules": list(bodies)}
        answer = await self.client.send("POST", Service.NETWORK, path, body)
        rules = field_of(answer, "security_group_rules", path)
        return decoded(rules, tuple[SecurityGroupRule, ...], path)

    async def delete_rule(self, rule: SecurityGroupRule) -> None:
        """Delete a rule of a security group. Succeeds if there is none."""
        with suppress(NotFound):
            path = f"/v2.0/security-group-rules/{rule.id}"
            await self.client.send("DELETE", Service.NETWORK, path)

    async def tag(self, name: str, found: R, tags: Iterable[str]) -> R:
        """Replace the tags of an object. Returns it with them; its revision is not known then."""
        path = f"/v2.0/{name}/{found.id}/tags"
        unique = tuple(dict.fromkeys(tags))
        await self.client.send("PUT", Service.NETWORK, path, {"tags": list(unique)})
        return msgspec.structs.replace(found, tags=unique, revision_number=None)

    async def delete(self, name: str, found: Resource) -> None:
        """Delete an object. Succeeds if there is none.

        Raises `Conflict` if it was changed since it was `found`.
        """
        call = Call(
            service=Service.NETWORK,
            method="DELETE",
            path=f"/v2.0/{name}/{found.id}",
            if_revision=found.revision_number,
        )
        with suppress(NotFound):
            await self.client.perform(call)

    async def _write(self, call: Call, key: str, kind: type[T]) -> T:
        return decoded(field_of(await self.client.perform(call), key, call.path), kind, call.path)


@cache
def _fields(kind: type) -> tuple[tuple[str, str], ...]:
    return tuple(("fields", one.encode_name) for one in msgspec.structs.fields(kind))
