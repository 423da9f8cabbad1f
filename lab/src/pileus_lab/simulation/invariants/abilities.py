"""What may be expected of a cloud, by what its provider declares."""

from pileus.cloud.abilities import Abilities, Affinity
from pileus_lab.apiserver.tree import Obj, text, texts
from pileus_lab.simulation.clouds.truth import Truth


def requests_of_check(able: Abilities, truth: Truth) -> int:
    """How many requests one check of one load balancer may make."""
    requests = able.requests
    if requests is None:
        return 1
    return requests.of_check(len(truth.balancers), 1, len(truth.machines))


def requests_of_lists(able: Abilities, truth: Truth) -> int:
    """How many requests the longest list of machines, load balancers or routes takes."""
    requests = able.requests
    if requests is None:
        return 1
    of_routes = requests.of_routes(len(truth.routes), len(truth.machines))
    return max(requests.of_lists(len(truth.balancers), len(truth.machines)), of_routes)


def requests_of_single_nodes(able: Abilities, nodes: int, absent: int, unknown: int) -> int:
    """How many requests for single machines a lookup of so many nodes may make."""
    requests = able.requests
    return 0 if requests is None else requests.of_single_nodes(nodes, absent, unknown)


def is_beyond(able: Abilities, service: Obj) -> bool:
    """Whether a Service asks for what the cloud cannot do: it is refused."""
    if text(service, "spec", "type") != "LoadBalancer":
        return False
    is_sticky = text(service, "spec", "sessionAffinity") == "ClientIP"
    is_restricted = bool(texts(service, "spec", "loadBalancerSourceRanges"))
    lacks_affinity = is_sticky and able.affinity is Affinity.NONE
    lacks_families = not able.serves(families_of(able, service))
    return lacks_affinity or lacks_families or (is_restricted and not able.source_ranges)


def families_of(able: Abilities, service: Obj) -> tuple[str, ...]:
    """Returns the IP families that a Service is to have: one that prefers two may get the first."""
    families = tuple(texts(service, "spec", "ipFamilies")) or ("IPv4",)
    prefers = text(service, "spec", "ipFamilyPolicy") == "PreferDualStack"
    return families[:1] if prefers and not able.serves(families) else families
