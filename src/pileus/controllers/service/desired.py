"""The load balancer that a Service asks for, or what is wrong with the Service. Pure."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address

from pileus.cloud.abilities import DEFAULT_AFFINITY_SECONDS, Abilities, Affinity
from pileus.cloud.balancer import (
    FEW_LISTENERS,
    MOST_LISTENERS,
    MOST_PAIRS,
    MOST_RANGES,
    BalancerSpec,
    HealthCheck,
    Listener,
    Owner,
    Transport,
    Wish,
    no_client_admitted,
)
from pileus.cloud.fingerprint import usual_address
from pileus.cloud.members import given_members
from pileus.cloud.model import NodeRef
from pileus.cloud.options import ADOPTS, SELECTS_MEMBERS, Options, meant_for
from pileus.cloud.selectors import EVERY_NODE, Selector, combined, select
from pileus.controllers.service.annotations import (
    ADOPT,
    MANAGE,
    MEMBERS,
    MemberScope,
    Mode,
    adopted_by,
    annotation,
    member_scope,
    written_by_us,
)
from pileus.controllers.service.status import published_addresses
from pileus.dataclass import dataclass, replace
from pileus.fix import quoted
from pileus.kube.model.core_v1 import Service, ServicePort, ServiceSpec
from pileus.objects.ranges import Range, parse_range, source_range_texts, wrong_with_range

ABLE = Abilities()
EVERY_NAMESPACE = "*"
PREFER_DUAL_STACK = "PreferDualStack"
HIGHEST_PORT = 65535
MOST_PROBLEMS = 10
"""Problems that a message names."""
FAMILIES = {4: "IPv4", 6: "IPv6"}


@dataclass(frozen=True, slots=True)
class InvalidService:
    """Why no load balancer can be built for a Service: all reasons. Waiting does not help."""

    problems: tuple[str, ...]

    def __str__(self) -> str:
        more = len(self.problems) - MOST_PROBLEMS
        return "; ".join((*self.problems[:MOST_PROBLEMS], *([f"and {more} more"] * (more > 0))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Desires:
    """Turns the Services of one cluster into desired load balancers."""

    cluster: str
    """The cluster's ID."""
    annotations: Options | None = None
    """The annotations that the provider declares; None: it declares none and is given all."""
    abilities: Abilities = ABLE
    """What the provider declares that its cloud can do."""
    trusted: frozenset[str] = frozenset()
    """Namespaces of `--trusted-namespaces`; `EVERY_NAMESPACE` stands for all."""

    def wish(self, service: Service, members: frozenset[NodeRef]) -> Wish | InvalidService:
        """Returns the load balancer that the Service asks for."""
        selector, adopts, problems = self._own_annotations(service)
        spec = desired(service, self.given(members, selector), self.abilities)
        if isinstance(spec, InvalidService):
            return InvalidService((*problems, *spec.problems))
        if problems:
            return InvalidService(problems)
        return replace(self._wish(service, spec), adopts=adopts, selector=selector)

    def none(self, service: Service) -> Wish:
        """Returns the desired state "no load balancer". Only tagged ones are deleted."""
        return replace(self._wish(service, None), adopts="")

    def afterwards(self, service: Service, mode: Mode) -> Wish | None:
        """Returns what is to be left of the load balancer once the Service no longer needs it.

        None if the mode allows no change, or if there is no way to say which.
        """
        match mode:
            case Mode.FULL:
                return self.none(service)
            case Mode.MEMBERS:
                wish = self.wish(service, frozenset())
                return None if isinstance(wish, InvalidService) else wish
            case Mode.OBSERVE | Mode.NONE:
                return None

    def ignored_annotations(self, service: Service) -> tuple[str, ...]:
        """Returns the annotations that the provider does not know, each with a suggestion.

        Known annotations with invalid values are not among them: the provider refuses those.
        """
        given = service.metadata.annotations or {}
        if self.annotations is None:
            return ()
        known = self.annotations.declared(given)
        unknown = {name: value for name, value in given.items() if name not in known}
        return tuple(self.annotations.problems(unknown))

    def given(
        self, members: frozenset[NodeRef], selector: Selector = EVERY_NODE
    ) -> frozenset[NodeRef]:
        """Returns the members as the provider gets them."""
        return given_members(select(members, selector), self.abilities)

    def _own_annotations(self, service: Service) -> tuple[Selector, str, tuple[str, ...]]:
        """Returns the selector, the load balancer to adopt, and what is wrong with either."""
        adopts = adopted_by(service)
        if self.annotations is None:
            return EVERY_NODE, adopts, ()
        given = service.metadata.annotations or {}
        adopting = self.annotations.with_role(ADOPTS)
        selecting = self.annotations.with_role(SELECTS_MEMBERS)
        names = {each.name for each in (*adopting, *selecting)}
        of_user = names & given.keys() - written_by_us(service).keys()
        parsed = self.annotations.parse({name: given[name] for name in of_user})
        named = {ADOPT: adopts, **{each.name: str(parsed.values[each]) for each in adopting}}
        found = {name: value.strip() for name, value in named.items() if value.strip()}
        problems = (*parsed.problems, *_ambiguous(found))
        selectors = (parsed.values[each] for each in selecting if each in parsed.values)
        return combined(selectors), next(iter(found.values()), ""), problems

    def owner(self, uid: str) -> Owner:
        return Owner(self.cluster, uid)

    def _wish(self, service: Service, spec: BalancerSpec | None) -> Wish:
        metadata = service.metadata
        return Wish(
            owner=self.owner(metadata.uid),
            spec=spec,
            name=f"{metadata.namespace}-{metadata.name}",
            namespace=metadata.namespace,
            service=metadata.name,
            published=published_addresses(service),
            options=meant_for(self.annotations, metadata.annotations or {}),
            adopts=adopted_by(service),
            may_use_foreign=not self.trusted.isdisjoint({metadata.namespace, EVERY_NAMESPACE}),
            only_members=annotation(service, MANAGE) not in {None, Mode.FULL},
        )


def _ambiguous(adopted: Mapping[str, str]) -> Iterator[str]:
    if len(set(adopted.values())) > 1:
        said = ", ".join(f"{name}={quoted(value)}" for name, value in adopted.items())
        yield f"two load balancers are named: {said}. Fix: remove one annotation"


def narrowed(service: Service, wish: Wish) -> Wish | None:
    """Returns the same with one IP family, for a Service that prefers two and requires one.

    None if all its source ranges are of the other family: it would be open to every client.
    """
    prefers = service.spec is not None and service.spec.ip_family_policy == PREFER_DUAL_STACK
    if not prefers or wish.spec is None or len(wish.spec.families) == 1:
        return None
    spec = replace(wish.spec, families=wish.spec.families[:1])
    return None if spec.admits_no_client else replace(wish, spec=spec)


def differ_in_members(one: Wish | None, other: Wish) -> bool:
    """Returns whether both are the same except for their members."""
    if one is None or one.spec is None or other.spec is None:
        return False
    return (
        one != other and replace(one, spec=replace(one.spec, members=other.spec.members)) == other
    )


def desired(
    service: Service, members: frozenset[NodeRef], abilities: Abilities = ABLE
) -> BalancerSpec | InvalidService:
    """Returns the load balancer that the Service asks for, or why this cloud cannot provide it."""
    spec = service.spec or ServiceSpec()
    problems: list[str] = [*_beyond(service, abilities)]
    listeners = frozenset(_listeners(spec, problems))
    families = _families(spec)
    result = BalancerSpec(
        listeners=listeners,
        members=members,
        source_ranges=_source_ranges(service, families, problems),
        sticky_seconds=abilities.stickiness(_sticky_seconds(spec)),
        families=families,
        requested_address=usual_address(spec.load_balancer_ip.strip()),
        health=_health(spec),
    )
    problems += _too_large(result)
    if result.admits_no_client:
        where, _ = source_range_texts(service)
        problems.append(f"{where}: {no_client_admitted(result)}")
    return InvalidService(tuple(problems)) if problems else result


def _beyond(service: Service, abilities: Abilities) -> Iterator[str]:
    """Yields what the Service asks for and the cloud cannot do, according to the provider."""
    spec = service.spec or ServiceSpec()
    if abilities.affinity is Affinity.NONE and _sticky_seconds(spec) is not None:
        yield (
            "spec.sessionAffinity: load balancers of this cloud have no session affinity. "
            "Fix: set it to None"
        )
    where, ranges = source_range_texts(service)
    if ranges and not abilities.source_ranges:
        yield (
            f"{where}: load balancers of this cloud cannot restrict client addresses. "
            "Fix: remove it, or restrict clients by other means"
        )
    if abilities.members_by_provider_id and member_scope(service) is MemberScope.ALL:
        name = service.metadata
        yield (
            f"annotation {MEMBERS}: load balancers of this cloud accept only its own machines as "
            f"members. Fix: kubectl annotate service -n {name.namespace} {name.name} {MEMBERS}-"
        )


def _too_large(spec: BalancerSpec) -> Iterator[str]:
    """Yields what is bounded: a cloud has each member and each source range once per port."""
    ports = len(spec.listeners)
    if ports * len(spec.source_ranges) > MOST_PAIRS:
        yield (
            f"{ports} ports with {len(spec.source_ranges)} source ranges each, and at most "
            f"{MOST_PAIRS} ranges of all ports together are possible. Fix: use fewer ranges, or "
            "divide the ports among several Services"
        )
    if ports > FEW_LISTENERS and ports * len(spec.members) > MOST_PAIRS:
        yield (
            f"{ports} ports with {len(spec.members)} nodes each, and at most {MOST_PAIRS} members "
            f"of all ports together are possible. Fix: divide the ports among several Services: "
            f"up to {FEW_LISTENERS} ports may have any number of nodes"
        )


def _listeners(spec: ServiceSpec, problems: list[str]) -> Iterator[Listener]:
    if not spec.ports:
        problems.append("spec.ports is empty: a load balancer needs at least one port")
    if spec.ports and len(spec.ports) > MOST_LISTENERS:
        problems.append(f"{len(spec.ports)} ports, and at most {MOST_LISTENERS} are possible")
        return
    for position, port in enumerate(spec.ports or ()):
        if problem := _wrong_with(port, spec):
            problems.append(problem)
        else:
            yield Listener(
                port=port.port,
                node_port=port.node_port,
                transport=Transport(port.protocol),
                name=port.name,
                application_protocol=port.app_protocol or "",
                position=position,
            )


def _wrong_with(port: ServicePort, spec: ServiceSpec) -> str:
    named = f"port {port.port}/{port.protocol}"
    if port.protocol not in set(Transport):
        return f"{named}: the protocol must be one of {', '.join(Transport)}"
    if not 1 <= port.port <= HIGHEST_PORT:
        return f"{named}: a port is a number from 1 to {HIGHEST_PORT}"
    if not port.node_port and spec.allocate_load_balancer_node_ports is not False:
        return f"{named} has no node port yet"
    return ""


def _families(spec: ServiceSpec) -> tuple[str, ...]:
    """Returns the IP families in the Service's order; by default those of its cluster IPs."""
    if spec.ip_families:
        return tuple(dict.fromkeys(spec.ip_families))
    versions = (_version(text) for text in spec.cluster_ips or ())
    found = tuple(dict.fromkeys(FAMILIES[version] for version in versions if version))
    return found or ("IPv4",)


def _version(text: str) -> int | None:
    try:
        return ip_address(text).version
    except ValueError:
        return None


def _source_ranges(
    service: Service, families: tuple[str, ...], problems: list[str]
) -> frozenset[str]:
    """Returns the allowed source ranges; empty if all clients are allowed."""
    where, texts = source_range_texts(service)
    if len(texts) > MOST_RANGES:
        problems.append(f"{where}: {len(texts)} ranges, and at most {MOST_RANGES} are possible")
        return frozenset()
    networks: set[Range] = set()
    for text in texts:
        try:
            networks.add(parse_range(text))
        except ValueError:
            problems.append(f"{where}: {wrong_with_range(text)}")
    open_to = {FAMILIES[each.version] for each in networks if not each.prefixlen}
    if open_to >= set(families):
        return frozenset()
    return frozenset(map(str, networks))


def _sticky_seconds(spec: ServiceSpec) -> int | None:
    if spec.session_affinity != "ClientIP":
        return None
    config = spec.session_affinity_config and spec.session_affinity_config.client_ip
    return (config and config.timeout_seconds) or DEFAULT_AFFINITY_SECONDS


def _health(spec: ServiceSpec) -> HealthCheck | None:
    if spec.external_traffic_policy != "Local" or not spec.health_check_node_port:
        return None
    return HealthCheck(node_port=spec.health_check_node_port)
