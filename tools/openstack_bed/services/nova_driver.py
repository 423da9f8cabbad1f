"""Nova's fake virtualization driver, with node IDs that stay the same after a restart."""

import uuid
from typing import Any

from nova.virt import fake


class BedDriver(fake.FakeDriver):
    """Servers exist in the database only; they boot at once."""

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        resource = super().get_available_resource(nodename)
        return resource | {"uuid": _node_id(nodename), "hypervisor_hostname": nodename}

    def get_nodenames_by_uuid(self, refresh: bool = False) -> dict[str, str]:
        return {_node_id(name): name for name in self.get_available_nodes()}


def _node_id(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
