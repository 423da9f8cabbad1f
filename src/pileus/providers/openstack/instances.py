"""Machines of the provider contract: servers of Nova with their ports, many at once.

A thousand nodes cost about a dozen requests: pages of servers, and ports by the IDs of servers.
Nothing is cached, so every answer is fresh.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from pileus.cloud.errors import CloudError
from pileus.cloud.model import (
    Failure,
    Found,
    Instance,
    InstanceId,
    InstanceState,
    NodeName,
    NodeRef,
)
from pileus.dataclass import dataclass
from pileus.providers.openstack.addresses import AddressRules, SubPortAddress, label_value
from pileus.providers.openstack.config import OpenStackConfig
from pileus.providers.openstack.neutron import Neutron, Port
from pileus.providers.openstack.nova import Nova, Server
from pileus.providers.openstack.provider_id import ProviderIds
from pileus.providers.openstack.server_lookup import Looked, ServerLookup

RUNNING, PAUSED, SHUTDOWN, CRASHED, SUSPENDED = 1, 3, 4, 6, 7
"""Power states of Nova: what the hypervisor reported last. 0: nothing."""
OFF = frozenset({PAUSED, SHUTDOWN, CRASHED, SUSPENDED})
POWERING_ON = "powering-on"
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

STATES: Mapping[str, InstanceState] = MappingProxyType({
    "ACTIVE": InstanceState.RUNNING,
    "PASSWORD": InstanceState.RUNNING,
    "MIGRATING": InstanceState.RUNNING,
    "VERIFY_RESIZE": InstanceState.RUNNING,
    "BUILD": InstanceState.PENDING,
    "REBUILD": InstanceState.PENDING,
    "REBOOT": InstanceState.PENDING,
    "HARD_REBOOT": InstanceState.PENDING,
    "RESIZE": InstanceState.PENDING,
    "REVERT_RESIZE": InstanceState.PENDING,
    "SHUTOFF": InstanceState.STOPPED,
    "SHELVED": InstanceState.STOPPED,
    "SHELVED_OFFLOADED": InstanceState.STOPPED,
    "SOFT_DELETED": InstanceState.STOPPED,
    "PAUSED": InstanceState.UNKNOWN,
    "SUSPENDED": InstanceState.UNKNOWN,
    "RESCUE": InstanceState.UNKNOWN,
    "ERROR": InstanceState.UNKNOWN,
})
"""States by the status of a server. A status that is not in the table is UNKNOWN; DELETED is
`Absent`.

- Running: ACTIVE; PASSWORD and MIGRATING happen while it runs; VERIFY_RESIZE runs with the new
  flavor until the resize is confirmed.
- Pending: it starts, or starts again within minutes (REBUILD, REBOOT, RESIZE).
- Stopped: SHUTOFF; SHELVED and SHELVED_OFFLOADED, which boot again from a copy of their disk;
  SOFT_DELETED, which is off and may be restored until Nova reclaims it.
- Unknown: PAUSED and SUSPENDED keep their memory and go on writing to their volumes when they are
  resumed, so they must not count as stopped; RESCUE runs another system; ERROR means that an
  operation failed, and the machine may run or not.
"""

NODE_NAME, HOSTNAME = "pileus.dev/node-name", "hostname"
"""Metadata of a server that name its node, if that is not the name of the server."""


def state_of(server: Server) -> InstanceState:
    """Returns the state by status, task and power state.

    A power state that contradicts the status makes it UNKNOWN: the machine was switched on or off
    from inside or on its hypervisor, and Nova has not acted on it yet.
    """
    state = STATES.get(server.status, InstanceState.UNKNOWN)
    if state is InstanceState.STOPPED and server.task_state == POWERING_ON:
        return InstanceState.PENDING
    runs_though_stopped = state is InstanceState.STOPPED and server.power_state == RUNNING
    off_though_running = state is InstanceState.RUNNING and server.power_state in OFF
    return InstanceState.UNKNOWN if runs_though_stopped or off_though_running else state


@dataclass(frozen=True, slots=True)
class _Details:
    """What Neutron and Nova know of servers besides the servers themselves."""

    ports: Mapping[str, Sequence[Port]]
    """By ID of the server."""
    sub_ports: Mapping[str, Sequence[SubPortAddress]]
    """By ID of the parent port."""
    flavor_ids: Mapping[str, str]
    """By name, of flavors whose name cannot be the value of a label."""


@dataclass(frozen=True, slots=True)
class OpenStackInstances:
    nova: Nova
    neutron: Neutron
    rules: AddressRules
    ids: ProviderIds

    @classmethod
    def of(cls, nova: Nova, neutron: Neutron, config: OpenStackConfig) -> "OpenStackInstances":
        ids = ProviderIds(config.auth.region, config.is_regional)
        return cls(nova, neutron, AddressRules.of(config.networking), ids)

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        del fresh  # nothing is cached
        looked = await ServerLookup(self.nova, self.ids).find(nodes)
        servers = {one.id: one for one in looked.values() if isinstance(one, Server)}
        details = await self._details(servers.values())
        return {name: self._answer(one, details) for name, one in looked.items()}

    def owns(self, node: NodeRef) -> bool | None:
        """For `Cloud.owns`."""
        return self.ids.owns(node)

    def _answer(self, looked: Looked, details: _Details) -> Found:
        if not isinstance(looked, Server):
            return looked
        ports = details.ports.get(looked.id, ())
        sub_ports = [each for port in ports for each in details.sub_ports.get(port.id, ())]
        try:
            addresses = self.rules.addresses(looked, ports, sub_ports)
        except CloudError as error:
            return Failure(error)
        return Instance(
            id=InstanceId(looked.id),
            provider_id=self.ids.text(looked.id),
            aliases=self.ids.texts(looked.id),
            type=_type(looked, details.flavor_ids),
            zone=label_value(looked.zone or ""),
            region=self.ids.region,
            addresses=addresses,
            names=frozenset({looked.name, *_named(looked)}),
            state=state_of(looked),
        )

    async def _details(self, servers: Iterable[Server]) -> _Details:
        ports: dict[str, list[Port]] = {}
        for port in await self.neutron.ports_of(server.id for server in servers):
            ports.setdefault(port.device_id, []).append(port)
        parents = [port for each in ports.values() for port in each if port.trunk_details]
        names = {server.flavor.original_name for server in servers}
        return _Details(
            ports,
            await self._sub_ports(parents) if parents else {},
            {} if all(map(_LABEL.fullmatch, names)) else await self._flavor_ids(),
        )

    async def _sub_ports(self, parents: Sequence[Port]) -> Mapping[str, Sequence[SubPortAddress]]:
        """Returns the addresses of the sub-ports that exist, by ID of the parent port."""
        ids = {port.id: _sub_port_ids(port) for port in parents}
        found = await self.neutron.ports_by_id(one for each in ids.values() for one in each)
        by_id = {port.id: port for port in found}
        wanted = sorted({port.network_id for port in found})
        networks = await self.neutron.networks([("id", one) for one in wanted]) if wanted else ()
        names = {network.id: network.name for network in networks}
        return {
            parent: [
                SubPortAddress(names[port.network_id], fixed.ip_address)
                for port in (by_id[one] for one in sub_ports if one in by_id)
                for fixed in port.fixed_ips
                if port.network_id in names
            ]
            for parent, sub_ports in ids.items()
        }

    async def _flavor_ids(self) -> Mapping[str, str]:
        return {flavor.name: flavor.id for flavor in await self.nova.flavors()}


def _named(server: Server) -> Iterable[str]:
    """Returns names of the server in its metadata."""
    return filter(None, map(server.metadata.get, (NODE_NAME, HOSTNAME)))


def _sub_port_ids(port: Port) -> tuple[str, ...]:
    details = port.trunk_details
    return tuple(one.port_id for one in details.sub_ports) if details else ()


def _type(server: Server, flavor_ids: Mapping[str, str]) -> str:
    """Returns the name of the flavor, or its ID if the name cannot be the value of a label.

    A flavor that was deleted since then has no ID any more: its name is made a valid one.
    """
    name = server.flavor.original_name
    if _LABEL.fullmatch(name):
        return name
    return label_value(flavor_ids.get(name, name))
