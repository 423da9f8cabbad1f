"""From a Service to the balancer that it wants, or to what is wrong with it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address

from pileus.cloud.abilities import DEFAULT_AFFINITY_SECONDS, Abilities, Affinity
from pileus.cloud.balancer import BalancerSpec, HealthCheck, Listener, Owner, Transport, Wish
from pileus.cloud.fingerprint import usual_address
from pileus.cloud.members import given_members
from pileus.cloud.model import NodeRef
from pileus.cloud.options import Options, meant_for
from pileus.controllers.service.annotations import Mode, adopted_by
from pileus.kube.model.core_v1 import Service, ServicePort, ServiceSpec
from pileus.objects.ranges import Range, parse_range, source_range_texts, wrong_with_range

ABLE = Abilities()
PREFER_DUAL_STACK = "PreferDualStack"
HIGHEST_PORT = 65535
FAMILIES = {4: "IPv4", 6: "IPv6"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no balancer can be wished for, all reasons at once; waiting does not mend it."""

    problems: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishing:
    """What all wishes of a cluster have in common."""

    cluster: str
    """Its id."""
    annotations: Options | None = None
    """What the provider declares; None: it declares nothing and is given all."""
    abilities: Abilities = ABLE
    """What the provider says that its cloud can do."""

    def wish(self, service: Service, members: frozenset[NodeRef]) -> Wish | Refusal:
        """What the Service wants."""
        spec = desired(service, self.given(members), self.abilities)
        return spec if isinstance(spec, Refusal) else self._wish(service, spec)

    def farewell(self, service: Service) -> Wish:
        """What a Service wants that wants nothing any more: only what is marked as its own goes."""
        return replace(self._wish(service, None), adopts="")

    def given(self, members: frozenset[NodeRef]) -> frozenset[NodeRef]:
        """The members as the provider gets them."""
        return given_members(members, self.abilities)

    def owner(self, uid: str) -> Owner:
        return Owner(self.cluster, uid)

    def _wish(self, service: Service, spec: BalancerSpec | None) -> Wish:
        metadata = service.metadata
        return Wish(
            owner=self.owner(metadata.uid),
            spec=spec,
            name=f"{metadata.namespace}-{metadata.name}",
            options=meant_for(self.annotations, metadata.annotations or {}),
            adopts=adopted_by(service),
        )


def farewell_of(wishing: Wishing, service: Service, mode: Mode) -> Wish | None:
    """What a Service that goes wants of its balancer, in that mode; None: nothing is to change."""
    match mode:
        case Mode.FULL:
            return wishing.farewell(service)
        case Mode.MEMBERS:
            wish = wishing.wish(service, frozenset())
            return None if isinstance(wish, Refusal) else wish
        case Mode.OBSERVE | Mode.NONE:
            return None


def narrowed(service: Service, wish: Wish) -> Wish | None:
    """The wish for one family, of a Service that prefers two and does not require them."""
    prefers = service.spec is not None and service.spec.ip_family_policy == PREFER_DUAL_STACK
    if not prefers or wish.spec is None or len(wish.spec.families) == 1:
        return None
    return replace(wish, spec=replace(wish.spec, families=wish.spec.families[:1]))


def differ_in_members(one: Wish | None, other: Wish) -> bool:
    """Whether both want the same, but with other members."""
    if one is None or one.spec is None or other.spec is None:
        return False
    return (
        one != other and replace(one, spec=replace(one.spec, members=other.spec.members)) == other
    )


def desired(
    service: Service, members: frozenset[NodeRef], abilities: Abilities = ABLE
) -> BalancerSpec | Refusal:
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
    return Refusal(tuple(problems)) if problems else result


def _beyond(service: Service, abilities: Abilities) -> Iterator[str]:
    """What the Service asks for and the provider declares that its cloud cannot do."""
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


def _listeners(spec: ServiceSpec, problems: list[str]) -> Iterator[Listener]:
    if not spec.ports:
        problems.append("spec.ports is empty: a balancer needs at least one port")
    for port in spec.ports or ():
        if problem := _wrong_with(port, spec):
            problems.append(problem)
        else:
            yield Listener(
                port=port.port,
                node_port=port.node_port,
                transport=Transport(port.protocol),
                name=port.name,
                application_protocol=port.app_protocol or "",
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
    """In the Service's own order; of one that was never given any, those of its addresses."""
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
    """Empty if everyone may come."""
    where, texts = source_range_texts(service)
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
