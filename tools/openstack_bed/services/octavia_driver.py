"""Octavia compute driver: amphorae do not exist, but their ports are real Neutron ports."""

import types
from typing import Any

from octavia.common import clients
from octavia.compute.drivers.noop_driver import driver as noop

CREATED_BY_NOVA = "compute:nova"


class BedComputeDriver(noop.NoopComputeDriver):
    """Attaches and detaches ports as Nova does for a server."""

    @property
    def _network(self) -> Any:
        return clients.NeutronAuth.get_neutron_client().network

    def attach_network_or_port(
        self,
        compute_id: str,
        network_id: str | None = None,
        ip_address: str | None = None,
        port_id: str | None = None,
    ) -> types.SimpleNamespace:
        if port_id:
            port = self._network.update_port(port_id, device_id=compute_id)
        else:
            fixed = {"fixed_ips": [{"ip_address": ip_address}]} if ip_address else {}
            port = self._network.create_port(
                network_id=network_id, device_id=compute_id, device_owner=CREATED_BY_NOVA, **fixed
            )
        return types.SimpleNamespace(
            port_id=port.id, net_id=port.network_id, fixed_ips=port.fixed_ips
        )

    def detach_port(self, compute_id: str, port_id: str) -> None:
        self._network.update_port(port_id, device_id="")

    def delete(self, compute_id: str) -> None:
        """Deletes the ports that Nova would have created, and releases the others."""
        for port in list(self._network.ports(device_id=compute_id)):
            if port.device_owner == CREATED_BY_NOVA:
                self._network.delete_port(port.id)
            else:
                self._network.update_port(port.id, device_id="")
