"""End states of two managers, object by object: normalized, flattened and compared."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from tools.bench.cluster_api import ClusterApi
from tools.bench.objects import NODES, SERVICES
from tools.bench.processes import SimulatedCloud

DROPPED = frozenset({
    "uid", "resourceVersion", "managedFields", "creationTimestamp", "generation", "selfLink",
    "lastHeartbeatTime", "lastTransitionTime", "timeAdded", "images", "nodeInfo", "specTag",
    "membersTag", "count", "clusterIP", "clusterIPs",
})  # fmt: skip
"""Fields that differ between any two runs, or that no manager writes."""
KEYED = {"conditions": "type", "taints": "key", "ports": "port"}
"""Lists in which an item is found by one of its fields, whatever its place."""
SETS = frozenset({"finalizers", "members"})
"""Lists whose order has no meaning."""
ADDRESSES = frozenset({"ip"})
"""Addresses of load balancers: the cloud gives them out in the order of calls."""
CLUSTER_NAMES = "cluster"
State = dict[str, str]


def flattened(thing: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields every value with its path."""
    name = path.rpartition(".")[2]
    match thing:
        case dict():
            for key, value in cast("dict[str, object]", thing).items():
                if key not in DROPPED:
                    yield from flattened(value, f"{path}.{key}")
        case list() if name in SETS:
            yield path, ",".join(sorted(map(str, cast("list[object]", thing))))
        case list():
            for place, value in enumerate(cast("list[Any]", thing)):
                key = value.get(KEYED[name], place) if name in KEYED else place
                yield from flattened(value, f"{path}[{key}]")
        case _:
            yield path, "an address" if name in ADDRESSES else str(thing)


def state_of(
    nodes: Iterable[Mapping[str, Any]],
    services: Iterable[Mapping[str, Any]],
    cloud: Mapping[str, Mapping[str, Any]],
) -> State:
    """Returns the end state as values by path, such as `node/n1.spec.providerID`."""
    state: State = {}
    for kind, things in (("node", nodes), ("service", services)):
        for thing in things:
            state.update(flattened(dict(thing), f"{kind}/{thing['metadata']['name']}"))
    names = {str(each["metadata"].get("uid")): each["metadata"]["name"] for each in services}
    for uid, balancer in cloud["balancers"].items():
        state.update(flattened(dict(balancer), f"balancer/{names.get(uid, uid)}"))
    for destination, route in cloud["routes"].items():
        state.update(flattened(dict(route), f"route/{destination}"))
    return {path: value for path, value in state.items() if not path.endswith(f".{CLUSTER_NAMES}")}


async def read_state(api: ClusterApi, cloud: SimulatedCloud) -> State:
    services = [each for each in await api.items(SERVICES) if each["spec"]["type"] != "ClusterIP"]
    return state_of(await api.items(NODES), services, cloud.ask("dump"))


def differences(reference: State, other: State, names: tuple[str, str]) -> Sequence[str]:
    """Returns one line for each kind of difference, with the number of objects that have it.

    What the other side lacks comes first, then what it has differently, then what it adds.
    """
    lacking: Counter[str] = Counter()
    differing: Counter[str] = Counter()
    added: Counter[str] = Counter()
    examples: dict[str, tuple[str, str]] = defaultdict(lambda: ("", ""))
    for path in reference.keys() | other.keys():
        kind = _kind(path)
        before, after = reference.get(path), other.get(path)
        if before == after:
            continue
        where = lacking if after is None else added if before is None else differing
        where[kind] += 1
        examples[kind] = (before or "", after or "")
    first, second = names
    return [
        *(f"{n} x {k}: only {first} has it, as {examples[k][0]:.60}" for k, n in lacking.items()),
        *(
            f"{n} x {k}: {first} {examples[k][0]:.60}, {second} {examples[k][1]:.60}"
            for k, n in differing.items()
        ),
        *(f"{n} x {k}: only {second} has it, as {examples[k][1]:.60}" for k, n in added.items()),
    ]


def _kind(path: str) -> str:
    """Returns the path without the name of its object: `node.spec.providerID`."""
    kind, _, rest = path.partition("/")
    if kind == "route":
        return f"route.{rest.rpartition('.')[2]}"
    return f"{kind}.{rest.partition('.')[2]}"
