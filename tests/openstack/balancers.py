"""The load balancer of a Service, read from OpenStack by the names of the Go manager."""

from dataclasses import dataclass
from typing import Any

from tests.openstack.managers import Cluster

Record = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """A load balancer with its parts, in order of their ports; listeners may be without a pool."""

    balancer: Record
    listeners: list[Record]
    pools: list[Record]
    members: list[list[Record]]
    """Of each pool, by name."""
    floating_ips: list[Record]

    @property
    def floating_ip(self) -> Record:
        assert len(self.floating_ips) == 1, self.floating_ips
        return self.floating_ips[0]


def balancer_of(cluster: Cluster, service: str) -> Seen:
    """Returns what there is for a Service of the namespace `default`."""
    cloud = cluster.project.cloud
    balancer = cloud.find("loadbalancers", f"kube_service_{cluster.name}_default_{service}")
    listeners = cloud.listed("listeners", load_balancer_id=balancer["id"])
    listeners.sort(key=lambda each: (each["protocol_port"], each["protocol"]))
    pools = {each["id"]: each for each in cloud.listed("pools", loadbalancer_id=balancer["id"])}
    used = [each["default_pool_id"] for each in listeners]
    ordered = [pools[each] for each in used if each in pools]
    return Seen(
        balancer,
        listeners,
        ordered,
        [
            sorted(
                cloud.get("balancer", f"/v2/lbaas/pools/{pool['id']}/members")["members"],
                key=lambda member: member["name"],
            )
            for pool in ordered
        ],
        cloud.listed("floatingips", port_id=balancer["vip_port_id"]),
    )
