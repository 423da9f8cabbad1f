"""The cloud, in memory: a frozen account, and one operation per request.

`operation.step(account, now)` returns the account after the request and the answer, or raises what
the cloud would answer. It is as awkward as the real thing: lists come in pages, a target group in
use cannot be deleted, unknown targets are refused, terminated instances leave target groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, TypeVar

from pileus.cloud.errors import Conflict, NotFound, Rejected

T = TypeVar("T")
PAGE = 3
"""Items on one page of a list."""
TABLES = ("rtb-a", "rtb-b")
"""Route tables: one per subnet. A route has to be in all of them."""


@dataclass(frozen=True, slots=True)
class Tags:
    """What marks an object as ours. The cloud keeps tags; it does not understand them."""

    cluster: str = ""
    owner: str = ""
    fingerprint: str = ""
    missing: frozenset[str] = frozenset()
    """Instances that should be members, but did not exist when the fingerprint was set."""


NO_TAGS = Tags()


@dataclass(frozen=True, slots=True)
class Machine:
    id: str
    name: str
    uuid: str
    address: str
    is_running: bool = True


IPV4 = frozenset({"IPv4"})


@dataclass(frozen=True, slots=True)
class LoadBalancer:
    id: str
    name: str
    tags: Tags = NO_TAGS
    sources: frozenset[str] = frozenset()
    ready_at: float = 0.0
    is_ready: bool = True
    """As of the request that answers with it."""
    families: frozenset[str] = IPV4


@dataclass(frozen=True, slots=True, order=True)
class Port:
    port: int
    transport: str = "TCP"


@dataclass(frozen=True, slots=True)
class TargetGroup:
    id: str
    name: str
    port: int
    """The node port; it cannot be changed."""
    tags: Tags = NO_TAGS
    is_sticky: bool = False
    health_port: int | None = None
    targets: frozenset[str] = frozenset()
    """IDs of instances."""


@dataclass(frozen=True, slots=True)
class Listener:
    balancer: str
    port: Port
    group: str


def _none() -> dict[str, frozenset[tuple[str, str]]]:
    return dict.fromkeys(TABLES, frozenset())


@dataclass(frozen=True, slots=True)
class Account:
    made: int = 0
    machines: Mapping[str, Machine] = field(default_factory=dict[str, Machine])
    balancers: Mapping[str, LoadBalancer] = field(default_factory=dict[str, LoadBalancer])
    groups: Mapping[str, TargetGroup] = field(default_factory=dict[str, TargetGroup])
    listeners: Mapping[tuple[str, Port], Listener] = field(
        default_factory=dict[tuple[str, Port], Listener]
    )
    tables: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=_none)
    """Destination and instance of every route, by table."""

    def balancer(self, id_: str) -> LoadBalancer:
        if id_ not in self.balancers:
            raise NotFound(f"there is no load balancer {id_}")
        return self.balancers[id_]

    def group(self, id_: str) -> TargetGroup:
        if id_ not in self.groups:
            raise NotFound(f"there is no target group {id_}")
        return self.groups[id_]

    def with_balancer(self, one: LoadBalancer) -> "Account":
        return replace(self, balancers={**self.balancers, one.id: one})

    def with_group(self, one: TargetGroup) -> "Account":
        return replace(self, groups={**self.groups, one.id: one})


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: tuple[T, ...]
    next: str = ""
    """Where the next page begins; empty if this is the last one."""


def _page(items: Mapping[str, T], after: str) -> Page[T]:
    rest = sorted(key for key in items if key > after)
    shown = rest[:PAGE]
    return Page(tuple(items[key] for key in shown), shown[-1] if len(rest) > PAGE else "")


@dataclass(frozen=True, slots=True)
class Operation:
    """One request. `NAME` is `capability.method`."""

    NAME: ClassVar[str] = ""
    WRITES: ClassVar[bool] = True

    def step(self, account: Account, now: float) -> tuple[Account, object]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class DescribeInstances(Operation):
    after: str = ""
    NAME: ClassVar[str] = "instances.describe"
    WRITES: ClassVar[bool] = False

    def step(self, account: Account, now: float) -> tuple[Account, Page[Machine]]:
        del now
        return account, _page(account.machines, self.after)


@dataclass(frozen=True, slots=True)
class RunInstance(Operation):
    name: str
    uuid: str = ""
    NAME: ClassVar[str] = "instances.run"

    def step(self, account: Account, now: float) -> tuple[Account, Machine]:
        del now
        made = account.made + 1
        address = f"172.16.{made // 250}.{made % 250 + 1}"
        machine = Machine(f"i-{made:06}", self.name, self.uuid or f"ec2-{made:06}", address)
        machines = {**account.machines, machine.id: machine}
        return replace(account, made=made, machines=machines), machine


@dataclass(frozen=True, slots=True)
class TerminateInstance(Operation):
    id: str
    NAME: ClassVar[str] = "instances.terminate"

    def step(self, account: Account, now: float) -> tuple[Account, None]:
        del now
        machines = {key: one for key, one in account.machines.items() if key != self.id}
        groups = {
            key: replace(one, targets=one.targets - {self.id})
            for key, one in account.groups.items()
        }
        return replace(account, machines=machines, groups=groups), None


@dataclass(frozen=True, slots=True)
class SetPower(Operation):
    id: str
    is_running: bool
    NAME: ClassVar[str] = "instances.power"

    def step(self, account: Account, now: float) -> tuple[Account, None]:
        del now
        machine = replace(account.machines[self.id], is_running=self.is_running)
        return replace(account, machines={**account.machines, self.id: machine}), None


@dataclass(frozen=True, slots=True)
class DescribeBalancers(Operation):
    after: str = ""
    NAME: ClassVar[str] = "balancers.describe"
    WRITES: ClassVar[bool] = False

    def step(self, account: Account, now: float) -> tuple[Account, Page[LoadBalancer]]:
        shown = {key: _as_of(one, now) for key, one in account.balancers.items()}
        return account, _page(shown, self.after)


def _as_of(balancer: LoadBalancer, now: float) -> LoadBalancer:
    return replace(balancer, is_ready=now >= balancer.ready_at)


@dataclass(frozen=True, slots=True)
class DescribeTargetGroups(Operation):
    after: str = ""
    NAME: ClassVar[str] = "balancers.describe_groups"
    WRITES: ClassVar[bool] = False

    def step(self, account: Account, now: float) -> tuple[Account, Page[TargetGroup]]:
        del now
        return account, _page(account.groups, self.after)


@dataclass(frozen=True, slots=True)
class DescribeListeners(Operation):
    """Those of one load balancer; never more than one page."""

    balancer: str
    NAME: ClassVar[str] = "balancers.describe_listeners"
    WRITES: ClassVar[bool] = False

    def step(self, account: Account, now: float) -> tuple[Account, tuple[Listener, ...]]:
        del now
        found = (one for one in account.listeners.values() if one.balancer == self.balancer)
        return account, tuple(sorted(found, key=lambda one: one.port))


@dataclass(frozen=True, slots=True)
class CreateBalancer(Operation):
    """A name is used once in an account: creating it again answers with the first one."""

    name: str
    tags: Tags
    sources: frozenset[str] = frozenset()
    families: frozenset[str] = IPV4
    seconds: float = 0.0
    """How long it is provisioned; set by the cloud, not by its clients."""
    NAME: ClassVar[str] = "balancers.create"

    def step(self, account: Account, now: float) -> tuple[Account, LoadBalancer]:
        for one in account.balancers.values():
            if one.name == self.name:
                return account, _as_of(one, now)
        made = account.made + 1
        one = LoadBalancer(
            f"nlb-{made:06}",
            self.name,
            self.tags,
            self.sources,
            now + self.seconds,
            families=self.families,
        )
        return replace(account.with_balancer(one), made=made), _as_of(one, now)


@dataclass(frozen=True, slots=True)
class DeleteBalancer(Operation):
    """Its listeners are deleted with it, its target groups are not."""

    id: str
    NAME: ClassVar[str] = "balancers.delete"

    def step(self, account: Account, now: float) -> tuple[Account, None]:
        del now
        balancers = {key: one for key, one in account.balancers.items() if key != self.id}
        listeners = {k: one for k, one in account.listeners.items() if one.balancer != self.id}
        return replace(account, balancers=balancers, listeners=listeners), None


@dataclass(frozen=True, slots=True)
class ModifyBalancer(Operation):
    """Change what is not None."""

    id: str
    tags: Tags | None = None
    sources: frozenset[str] | None = None
    families: frozenset[str] | None = None
    NAME: ClassVar[str] = "balancers.modify"

    def step(self, account: Account, now: float) -> tuple[Account, LoadBalancer]:
        one = account.balancer(self.id)
        one = replace(one, tags=one.tags if self.tags is None else self.tags)
        one = replace(one, sources=one.sources if self.sources is None else self.sources)
        one = replace(one, families=one.families if self.families is None else self.families)
        return account.with_balancer(one), _as_of(one, now)


@dataclass(frozen=True, slots=True)
class CreateTargetGroup(Operation):
    """As with load balancers, a name is used once."""

    name: str
    port: int
    tags: Tags
    NAME: ClassVar[str] = "balancers.create_group"

    def step(self, account: Account, now: float) -> tuple[Account, TargetGroup]:
        del now
        for one in account.groups.values():
            if one.name == self.name:
                return account, one
        made = account.made + 1
        one = TargetGroup(f"tg-{made:06}", self.name, self.port, self.tags)
        return replace(account.with_group(one), made=made), one


@dataclass(frozen=True, slots=True)
class ModifyTargetGroup(Operation):
    id: str
    tags: Tags
    is_sticky: bool
    health_port: int | None
    NAME: ClassVar[str] = "balancers.modify_group"

    def step(self, account: Account, now: float) -> tuple[Account, TargetGroup]:
        del now
        one = replace(
            account.group(self.id),
            tags=self.tags,
            is_sticky=self.is_sticky,
            health_port=self.health_port,
        )
        return account.with_group(one), one


@dataclass(frozen=True, slots=True)
class DeleteTargetGroup(Operation):
    id: str
    NAME: ClassVar[str] = "balancers.delete_group"

    def step(self, account: Account, now: float) -> tuple[Account, None]:
        del now
        if any(one.group == self.id for one in account.listeners.values()):
            raise Conflict(f"target group {self.id} is in use by a listener")
        groups = {key: one for key, one in account.groups.items() if key != self.id}
        return replace(account, groups=groups), None


@dataclass(frozen=True, slots=True)
class RegisterTargets(Operation):
    group: str
    targets: frozenset[str]
    NAME: ClassVar[str] = "balancers.register"

    def step(self, account: Account, now: float) -> tuple[Account, TargetGroup]:
        del now
        one = account.group(self.group)
        unknown = self.targets - account.machines.keys()
        if unknown:
            raise Rejected(f"InvalidTarget: no instances {', '.join(sorted(unknown))}")
        one = replace(one, targets=one.targets | self.targets)
        return account.with_group(one), one


@dataclass(frozen=True, slots=True)
class DeregisterTargets(Operation):
    group: str
    targets: frozenset[str]
    NAME: ClassVar[str] = "balancers.deregister"

    def step(self, account: Account, now: float) -> tuple[Account, TargetGroup]:
        del now
        one = account.group(self.group)
        one = replace(one, targets=one.targets - self.targets)
        return account.with_group(one), one


@dataclass(frozen=True, slots=True)
class PutListener(Operation):
    """Create the listener, or let it lead to another target group."""

    balancer: str
    port: Port
    group: str
    NAME: ClassVar[str] = "balancers.put_listener"

    def step(self, account: Account, now: float) -> tuple[Account, Listener]:
        del now
        account.balancer(self.balancer)
        account.group(self.group)
        one = Listener(self.balancer, self.port, self.group)
        listeners = {**account.listeners, (self.balancer, self.port): one}
        return replace(account, listeners=listeners), one


@dataclass(frozen=True, slots=True)
class DeleteListener(Operation):
    balancer: str
    port: Port
    NAME: ClassVar[str] = "balancers.delete_listener"

    def step(self, account: Account, now: float) -> tuple[Account, None]:
        del now
        gone = (self.balancer, self.port)
        listeners = {key: one for key, one in account.listeners.items() if key != gone}
        return replace(account, listeners=listeners), None


@dataclass(frozen=True, slots=True)
class DescribeTables(Operation):
    NAME: ClassVar[str] = "routes.describe"
    WRITES: ClassVar[bool] = False

    def step(
        self, account: Account, now: float
    ) -> tuple[Account, Mapping[str, frozenset[tuple[str, str]]]]:
        del now
        return account, account.tables


@dataclass(frozen=True, slots=True)
class CreateRoute(Operation):
    table: str
    destination: str
    machine: str
    NAME: ClassVar[str] = "routes.create"

    def step(self, account: Account, now: float) -> tuple[Account, None]:
        del now
        if self.machine not in account.machines:
            raise Rejected(f"InvalidInstance: there is no instance {self.machine}")
        present = dict(account.tables[self.table])
        if present.get(self.destination, self.machine) != self.machine:
            raise Conflict(f"{self.table} has another route to {self.destination}")
        entry = (self.destination, self.machine)
        return _with_table(account, self.table, account.tables[self.table] | {entry}), None


@dataclass(frozen=True, slots=True)
class DeleteRoute(Operation):
    """Delete the route if it leads to that instance."""

    table: str
    destination: str
    machine: str
    NAME: ClassVar[str] = "routes.delete"

    def step(self, account: Account, now: float) -> tuple[Account, None]:
        del now
        entry = (self.destination, self.machine)
        return _with_table(account, self.table, account.tables[self.table] - {entry}), None


def _with_table(account: Account, table: str, routes: frozenset[tuple[str, str]]) -> Account:
    return replace(account, tables={**account.tables, table: routes})
