"""The security group of a Service on the ports of its members (`manage-security-groups`).

    found = await read_groups(neutron, topology.ports)                # two lists for all Services
    own = found.of(owner)
    for change in plan(owner, spec, own):                             # pure; spec None: remove
        own = await apply(neutron, change, own, writes)               # writes: of all Services

The group opens the node ports, and nothing else, for the load balancer. Its name holds the UID of
the Service, which is the proof that it is ours in the request that creates it; the mark (`marks`)
follows by a second request, since Neutron cannot create a security group with tags.

Ports of members get the group besides their other groups, and lose it when their node is no longer
a member. Groups that something else adds meanwhile are not lost (`port_writes`).
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import Any, NamedTuple

from msgspec.structs import replace

from pileus.cloud.balancer import BalancerSpec, Effect, Owner, Part
from pileus.cloud.errors import CloudError, Conflict, NotFound, QuotaExceeded
from pileus.cloud.fingerprint import usual_address, usual_network
from pileus.cloud.http import HIDDEN_ID
from pileus.dataclass import dataclass
from pileus.providers.openstack.api import each_of
from pileus.providers.openstack.marks import cut, is_marked, owner_of, tags_of, without_mark
from pileus.providers.openstack.networks import Machine
from pileus.providers.openstack.neutron import (
    Neutron,
    Port,
    SecurityGroup,
    SecurityGroupRule,
)
from pileus.providers.openstack.port_writes import PortWrites

ANYWHERE = {4: "0.0.0.0/0", 6: "::/0"}


def name_of(owner: Owner, namespace: str, service: str) -> str:
    """Returns the name that the Go cloud-controller-manager gives to the group."""
    return cut(f"lb-sg-{owner.uid}-{namespace}-{service}")


def description_of(namespace: str, service: str, cluster_name: str) -> str:
    return cut(
        f"Security Group for {namespace}/{service} Service LoadBalancer in cluster {cluster_name}"
    )


class Rule(NamedTuple):
    """Allows connections from a CIDR to one port of the members. There may be thousands."""

    protocol: str
    port: int
    cidr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityGroupSpec:
    name: str
    description: str
    rules: frozenset[Rule]
    machines: tuple[Machine, ...] = ()
    """The members."""


def rules_of(
    spec: BalancerSpec, member_cidr: str, *, keeps_client_address: bool = False
) -> frozenset[Rule]:
    """Returns the rules for the node ports, and for the health check.

    Traffic comes from the member subnet; with `keeps_client_address` (provider ovn), from the
    clients: from `spec.source_ranges` of the subnet's family, or from anywhere.
    """
    version = ip_network(member_cidr).version
    sources = {member_cidr}
    if keeps_client_address:
        ranges = {one for one in spec.source_ranges if ip_network(one).version == version}
        sources = ranges if spec.source_ranges else {ANYWHERE[version]}
    cidrs = frozenset(map(usual_network, sources))
    rules = {
        Rule(one.transport.lower(), one.node_port, cidr)
        for one in spec.listeners
        if one.node_port
        for cidr in cidrs
    }
    if spec.health:
        rules.add(Rule("tcp", spec.health.node_port, usual_network(member_cidr)))
    return frozenset(rules)


@dataclass(frozen=True, slots=True)
class CreateSecurityGroup:
    name: str
    description: str
    rules: tuple[Rule, ...]
    owner: Owner

    part = Part.WHOLE
    effect = Effect.CREATE

    @property
    def summary(self) -> str:
        return f"security group {self.name}"


@dataclass(frozen=True, slots=True)
class MarkSecurityGroup:
    group: SecurityGroup
    owner: Owner

    part = Part.WHOLE
    effect = Effect.UPDATE

    @property
    def summary(self) -> str:
        return f"tags of security group {self.group.name}"


@dataclass(frozen=True, slots=True)
class ChangeRules:
    """Create missing rules in one request, then delete the others."""

    group: SecurityGroup
    create: tuple[Rule, ...]
    delete: tuple[SecurityGroupRule, ...]

    part = Part.WHOLE
    effect = Effect.UPDATE

    @property
    def summary(self) -> str:
        ports = ", ".join(sorted({f"{one.port}/{one.protocol}" for one in self.create}))
        counts = f"{len(self.create)} to create, {len(self.delete)} to delete"
        return f"rules of security group {self.group.name}: {counts}" + (ports and f" ({ports})")


@dataclass(frozen=True, slots=True)
class AttachSecurityGroup:
    group: SecurityGroup
    """Without ID if an earlier change of the same plan creates it."""
    ports: tuple[Port, ...]

    effect = Effect.UPDATE

    @property
    def part(self) -> Part:
        return Part.MEMBERS if self.group.id else Part.WHOLE

    @property
    def summary(self) -> str:
        return f"add security group {self.group.name} to {_ports(self.ports)}"


@dataclass(frozen=True, slots=True)
class DetachSecurityGroup:
    group: SecurityGroup
    ports: tuple[Port, ...]

    part = Part.MEMBERS
    effect = Effect.UPDATE

    @property
    def summary(self) -> str:
        return f"remove security group {self.group.name} from {_ports(self.ports)}"


@dataclass(frozen=True, slots=True)
class DeleteSecurityGroup:
    group: SecurityGroup

    part = Part.WHOLE
    effect = Effect.DELETE

    @property
    def summary(self) -> str:
        return f"security group {self.group.name}"


SecurityGroupChange = (
    CreateSecurityGroup
    | MarkSecurityGroup
    | ChangeRules
    | AttachSecurityGroup
    | DetachSecurityGroup
    | DeleteSecurityGroup
)


@dataclass(frozen=True, slots=True)
class SecurityGroups:
    """Security groups of Services with the ports that concern them: of all, or of one."""

    groups: tuple[SecurityGroup, ...] = ()
    ports: tuple[Port, ...] = ()
    """Ports of members, and all ports that have one of the groups."""

    def of(self, owner: Owner) -> "SecurityGroups":
        """Returns the groups that are proven to be the owner's."""
        return SecurityGroups(tuple(one for one in self.groups if _is_of(one, owner)), self.ports)

    def owners(self, cluster: str) -> frozenset[Owner]:
        """Returns the owners in the cluster that any group is marked with."""
        marks = (owner_of(one.tags) for one in self.groups)
        return frozenset(each for each in marks if each and each.cluster == cluster)


async def read_groups(neutron: Neutron, member_ports: Iterable[Port] = ()) -> SecurityGroups:
    """Read the groups of all Services, and the ports that have them: also of nodes that left."""
    found = await neutron.security_groups()
    groups = tuple(one for one in found if is_marked(one.tags) or one.name.startswith("lb-sg-"))
    return await with_ports(neutron, groups, member_ports)


async def with_ports(
    neutron: Neutron, groups: tuple[SecurityGroup, ...], others: Iterable[Port]
) -> SecurityGroups:
    """Returns the groups with the ports that have them, and other ports."""
    with_group = await neutron.ports_with_group(one.id for one in groups)
    ports = {one.id: one for one in (*others, *with_group)}
    return SecurityGroups(groups, tuple(ports.values()))


def plan(
    owner: Owner, spec: SecurityGroupSpec | None, observed: SecurityGroups
) -> tuple[SecurityGroupChange, ...]:
    """Returns the changes in order; empty if group, rules and ports match the desired state.

    `spec` is None if the Service is to have no group. `observed` is that of this owner.
    """
    groups = sorted(observed.groups, key=lambda one: one.id)
    if spec is None:
        return tuple(change for one in groups for change in _removed(one, observed))
    if not groups:
        rules = tuple(sorted(spec.rules))
        new = SecurityGroup(id="", name=spec.name)
        return (
            CreateSecurityGroup(spec.name, spec.description, rules, owner),
            *_port_changes(spec, new, observed.ports),
        )
    kept, *others = groups
    return (
        *(() if owner_of(kept.tags) == owner else (MarkSecurityGroup(kept, owner),)),
        *_rule_changes(spec, kept),
        *_port_changes(spec, kept, observed.ports),
        *(change for one in others for change in _removed(one, observed)),
    )


async def apply(
    neutron: Neutron, change: SecurityGroupChange, observed: SecurityGroups, writes: PortWrites
) -> SecurityGroups:
    """Make one change. Returns groups and ports after it.

    Raises `Conflict` if something else uses a port since it was observed, or is changing it.
    """
    match change:
        case CreateSecurityGroup():
            group = await _create(neutron, change)
            return SecurityGroups((*observed.groups, group), observed.ports)
        case MarkSecurityGroup(old, owner):
            group = _current(observed, old)
            tags = (*without_mark(group.tags), *tags_of(owner))
            return _with_group(observed, await neutron.tag("security-groups", group, tags))
        case ChangeRules():
            group = _current(observed, change.group)
            return _with_group(observed, await _change_rules(neutron, group, change))
        case AttachSecurityGroup(group, ports):
            hands = _Hands(neutron, writes, group.id or _created(observed, group).id)
            return await _change_ports(observed, ports, hands.attach)
        case DetachSecurityGroup(group, ports):
            hands = _Hands(neutron, writes, group.id)
            return await _change_ports(observed, ports, hands.detach)
        case DeleteSecurityGroup(group):
            await neutron.delete("security-groups", replace(group, revision_number=None))
            left = tuple(one for one in observed.groups if one.id != group.id)
            return SecurityGroups(left, observed.ports)


def _is_of(group: SecurityGroup, owner: Owner) -> bool:
    """A UID is in the name of one Service's group only; the mark of another cluster wins."""
    if is_marked(group.tags):
        return owner_of(group.tags) == owner
    return bool(owner.uid) and group.name.startswith(f"lb-sg-{owner.uid}-")


def _ports(ports: Sequence[Port]) -> str:
    return f"{len(ports)} port{'' if len(ports) == 1 else 's'}"


def _removed(group: SecurityGroup, observed: SecurityGroups) -> Iterator[SecurityGroupChange]:
    using = tuple(one for one in observed.ports if group.id in one.security_groups)
    if using:
        yield DetachSecurityGroup(group, using)
    yield DeleteSecurityGroup(group)


def _rule_changes(spec: SecurityGroupSpec, group: SecurityGroup) -> Iterator[SecurityGroupChange]:
    present: set[Rule] = set()
    unwanted: list[SecurityGroupRule] = []
    for one in group.rules:
        rule = _as_rule(one)
        if rule is None or rule not in spec.rules or rule in present:
            unwanted.append(one)
        else:
            present.add(rule)
    missing = tuple(sorted(spec.rules - present))
    if missing or unwanted:
        yield ChangeRules(group, missing, tuple(sorted(unwanted, key=lambda one: one.id)))


def _as_rule(one: SecurityGroupRule) -> Rule | None:
    """Returns what a rule of Neutron allows; None if it is none that we would create."""
    is_ours = one.direction == "ingress" and one.protocol and not one.remote_group_id
    if not is_ours or not one.port_range_min or one.port_range_min != one.port_range_max:
        return None
    version = 6 if one.ethertype == "IPv6" else 4
    cidr = usual_network(one.remote_ip_prefix or ANYWHERE[version])
    return Rule(str(one.protocol).lower(), one.port_range_min, cidr)


def _port_changes(
    spec: SecurityGroupSpec, group: SecurityGroup, ports: Iterable[Port]
) -> Iterator[SecurityGroupChange]:
    add: list[Port] = []
    remove: list[Port] = []
    servers = {(one.server_id, usual_address(one.address)) for one in spec.machines}
    for port in ports:
        addresses = [usual_address(one.ip_address) for one in port.fixed_ips]
        is_member = any((port.device_id, one) in servers for one in addresses)
        has_group = group.id in port.security_groups
        if is_member and not has_group and port.port_security_enabled:
            add.append(port)
        elif has_group and not is_member and not any(("", one) in servers for one in addresses):
            remove.append(port)
    if add:
        yield AttachSecurityGroup(group, tuple(sorted(add, key=lambda one: one.id)))
    if remove:
        yield DetachSecurityGroup(group, tuple(sorted(remove, key=lambda one: one.id)))


def _current(observed: SecurityGroups, group: SecurityGroup) -> SecurityGroup:
    """Returns the group as an earlier change of the same plan left it."""
    return next((one for one in observed.groups if one.id == group.id), group)


def _created(observed: SecurityGroups, group: SecurityGroup) -> SecurityGroup:
    """Returns the group that an earlier change of the same plan created."""
    found = next((one for one in observed.groups if one.name == group.name), None)
    if found is None:
        raise Conflict(f"security group {group.name} is not created yet; observe again")
    return found


def _with_group(observed: SecurityGroups, group: SecurityGroup) -> SecurityGroups:
    others = tuple(one for one in observed.groups if one.id != group.id)
    return SecurityGroups((*others, group), observed.ports)


async def _create(neutron: Neutron, change: CreateSecurityGroup) -> SecurityGroup:
    """Create the group, mark it, replace the rules that Neutron gives to every new group."""
    body = {"name": change.name, "description": change.description}
    try:
        group = await neutron.create("security-groups", "security_group", body, SecurityGroup)
    except QuotaExceeded as error:
        raise _over_quota(change.name, error) from error
    group = await neutron.tag("security-groups", group, tags_of(change.owner))
    return await _change_rules(neutron, group, ChangeRules(group, change.rules, group.rules))


async def _change_rules(
    neutron: Neutron, group: SecurityGroup, change: ChangeRules
) -> SecurityGroup:
    created: tuple[SecurityGroupRule, ...] = ()
    if change.create:
        bodies = [_rule_body(group.id, one) for one in change.create]
        try:
            created = await neutron.create_rules(bodies)
        except QuotaExceeded as error:
            raise _over_quota(group.name, error) from error
    for one in change.delete:
        await neutron.delete_rule(one)
    deleted = {one.id for one in change.delete}
    rules = (*(one for one in group.rules if one.id not in deleted), *created)
    return replace(group, rules=rules, revision_number=None)


def _rule_body(group_id: str, rule: Rule) -> dict[str, object]:
    return {
        "security_group_id": group_id,
        "direction": "ingress",
        "ethertype": f"IPv{ip_network(rule.cidr).version}",
        "protocol": rule.protocol,
        "port_range_min": rule.port,
        "port_range_max": rule.port,
        "remote_ip_prefix": rule.cidr,
    }


def _over_quota(name: str, error: QuotaExceeded) -> QuotaExceeded:
    return QuotaExceeded(
        f"security group {name}: {error}. Fix: delete groups or rules that are not used, or raise "
        "the quota (openstack quota set --secgroups N --secgroup-rules N PROJECT)"
    )


async def _change_ports(
    observed: SecurityGroups,
    ports: Sequence[Port],
    change: Callable[[Port], Coroutine[Any, Any, Port | None]],
) -> SecurityGroups:
    """Change the ports side by side. All are tried; then the first error is raised."""
    outcomes = await each_of(ports, change)
    errors = [one for one in outcomes if isinstance(one, CloudError)]
    if errors:
        raise errors[0]
    after = {port.id: one for port, one in zip(ports, outcomes, strict=True)}
    left = (after.get(port.id, port) for port in observed.ports)
    return SecurityGroups(observed.groups, tuple(one for one in left if isinstance(one, Port)))


@dataclass(frozen=True, slots=True)
class _Hands:
    """Changes which ports have a group."""

    neutron: Neutron
    writes: PortWrites
    group: str

    async def attach(self, port: Port) -> Port | None:
        return await self._set(port, lambda now: (*self._others(now), self.group))

    async def detach(self, port: Port) -> Port | None:
        """Old versions of the Go cloud-controller-manager also tagged ports with the group's ID."""
        changed = await self._set(port, self._others)
        if changed and self.group in changed.tags:
            tags = (one for one in changed.tags if one != self.group)
            return await self.neutron.tag("ports", changed, tags)
        return changed

    def _others(self, port: Port) -> tuple[str, ...]:
        return tuple(one for one in port.security_groups if one != self.group)

    async def _set(self, port: Port, groups: Callable[[Port], tuple[str, ...]]) -> Port | None:
        """Returns the port after the change; None if it was deleted meanwhile."""

        def fields(now: Port) -> Mapping[str, object]:
            after = groups(now)
            is_changed = set(after) != set(now.security_groups)
            return {"security_groups": list(after)} if is_changed else {}

        try:
            return await self.writes.change(self.neutron, port, fields)
        except NotFound as error:
            if f"Port {HIDDEN_ID}" in str(error):  # not the security group
                return None
            raise Conflict(f"port of a member: {error}") from error
