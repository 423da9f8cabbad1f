"""The desired parts of a load balancer for one port of a Service, and their requests.

A port is a listener and its pool, with members and perhaps a health monitor. Names are those of the
Go cloud-controller-manager.
"""

from collections.abc import Mapping
from dataclasses import field

from pileus.cloud.balancer import Transport
from pileus.dataclass import dataclass
from pileus.providers.openstack.marks import cut

Body = dict[str, object]


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A node, and the port that gets traffic. Octavia identifies it by address and port."""

    name: str
    address: str
    protocol_port: int
    monitor_port: int | None = None

    def body(self, subnet_id: str, weight: int | None = None) -> Body:
        body: Body = {
            "name": self.name,
            "address": self.address,
            "protocol_port": self.protocol_port,
        }
        if subnet_id:
            body["subnet_id"] = subnet_id
        if self.monitor_port is not None:
            body["monitor_port"] = self.monitor_port
        if weight is not None:
            body["weight"] = weight
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitor:
    name: str
    type: str
    delay: int
    timeout: int
    max_retries: int
    max_retries_down: int
    http: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    def settings(self) -> Body:
        """What can be changed later. The type cannot."""
        return {
            "delay": self.delay,
            "timeout": self.timeout,
            "max_retries": self.max_retries,
            "max_retries_down": self.max_retries_down,
            **self.http,
        }

    def body(self) -> Body:
        return {"name": self.name, "type": self.type, **self.settings()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One port of a Service: a listener, its pool with members, and perhaps a monitor."""

    port: int
    transport: Transport
    position: int
    balancer: str
    """The name in names of parts."""
    tags: tuple[str, ...]
    """The Go program's tag and the mark."""
    protocol: str
    pool_protocol: str
    algorithm: str
    is_sticky: bool
    settings: Mapping[str, object] = field(hash=False)
    """What can be changed of the listener."""
    is_open: bool = False
    """Whether all clients may connect."""
    members: tuple[Member, ...] = ()
    unaddressed: tuple[Member, ...] = ()
    """Members whose node has no address now: they stay if they are there, with the address that
    they have. All nodes may register again at once."""
    monitor: Monitor | None = None

    @property
    def label(self) -> str:
        return f"{self.port}/{self.transport.value}"

    @property
    def listener_name(self) -> str:
        return cut(f"listener_{self.position}_{self.balancer}")

    @property
    def pool_name(self) -> str:
        return cut(f"pool_{self.position}_{self.balancer}")

    @property
    def persistence(self) -> Body | None:
        return {"type": "SOURCE_IP"} if self.is_sticky else None

    def listener_body(self) -> Body:
        return {
            "name": self.listener_name,
            "protocol": self.protocol,
            "protocol_port": self.port,
            "tags": list(self.tags),
            **self.settings,
        }

    def pool_body(self) -> Body:
        body: Body = {
            "name": self.pool_name,
            "protocol": self.pool_protocol,
            "lb_algorithm": self.algorithm,
            "tags": list(self.tags[1:]),
        }
        return {**body, "session_persistence": self.persistence} if self.is_sticky else body

    def whole_body(self, subnet_id: str) -> Body:
        """The listener with everything in it, for a load balancer that is created whole."""
        pool = self.pool_body()
        pool["members"] = [member.body(subnet_id) for member in self.members]
        if self.monitor is not None:
            pool["healthmonitor"] = self.monitor.body()
        return {**self.listener_body(), "default_pool": pool}
