"""Random sequences of requests, the same for every server, from a seed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.contract.api.http import JSON, JSON_PATCH, MERGE, STRATEGIC

NAMES = ("alpha", "beta", "gamma")
LABELS = ("x", "y", "a.b/c")
VALUES = ("1", "2", "", "not valid!", None)
FINALIZERS = (["a.b/one"], ["a.b/one", "a.b/two"], [], None)

Json = Any


@dataclass(frozen=True)
class Step:
    """One request. `{version}` and `{uid}` in its body are what the object last had there.

    `stale` means: what it had before that.
    """

    method: str
    plural: str
    name: str = ""
    body: Json = None
    content_type: str = JSON
    subresource: str = ""
    query: dict[str, str] = field(default_factory=dict[str, str])
    stale: bool = False


def steps(seed: int, count: int) -> Iterator[Step]:
    random = Random(seed)
    makers: list[Callable[[Random], Step]] = [
        created,
        created,
        merged,
        merged,
        strategically_merged,
        json_patched,
        replaced,
        deleted,
        read,
        listed,
    ]
    for _ in range(count):
        yield random.choice(makers)(random)


def plural_of(random: Random) -> str:
    return random.choice(("configmaps", "configmaps", "services", "leases", "nodes"))


def metadata(random: Random, name: str) -> Json:
    meta: Json = {"name": name}
    if random.random() < 0.6:
        meta["labels"] = {key: random.choice(VALUES[:3]) for key in random.sample(LABELS, 2)}
    if random.random() < 0.2:
        meta["finalizers"] = ["a.b/one"]
    return meta


def spec(random: Random, plural: str) -> Json:
    match plural:
        case "configmaps":
            return {"data": {random.choice("ab"): random.choice("12")}}
        case "services":
            ports = [{"name": "a", "port": random.choice((80, 81))}]
            kind = random.choice(("ClusterIP", "NodePort", "LoadBalancer"))
            return {"spec": {"type": kind, "ports": ports}}
        case "leases":
            return {"spec": {"holderIdentity": random.choice("pq"), "leaseDurationSeconds": 15}}
        case _:
            taint = {"key": random.choice("tu"), "effect": "NoSchedule"}
            return {"spec": {"taints": [taint], "unschedulable": random.random() < 0.5}}


def created(random: Random) -> Step:
    plural, name = plural_of(random), random.choice(NAMES)
    return Step("POST", plural, body={"metadata": metadata(random, name), **spec(random, plural)})


def replaced(random: Random) -> Step:
    plural, name = plural_of(random), random.choice(NAMES)
    body = {"metadata": metadata(random, name), **spec(random, plural)}
    if random.random() < 0.7:
        body["metadata"]["resourceVersion"] = "{version}"
    if plural == "services":
        body["spec"].pop("type")
    return Step("PUT", plural, name, body, stale=random.random() < 0.3)


def changes(random: Random, plural: str) -> Json:
    change: Json = {}
    if random.random() < 0.6:
        change["metadata"] = {"labels": {random.choice(LABELS): random.choice(VALUES)}}
    if random.random() < 0.2:
        change.setdefault("metadata", {})["finalizers"] = random.choice(FINALIZERS)
    if random.random() < 0.2:
        change.setdefault("metadata", {})["resourceVersion"] = "{version}"
    if random.random() < 0.5:
        change |= spec(random, plural)
    return change


def merged(random: Random) -> Step:
    plural, name = plural_of(random), random.choice(NAMES)
    stale = random.random() < 0.3
    return Step("PATCH", plural, name, changes(random, plural), MERGE, stale=stale)


def strategically_merged(random: Random) -> Step:
    plural, name = plural_of(random), random.choice(NAMES)
    body = changes(random, plural)
    if plural == "nodes" and random.random() < 0.6:
        condition = {"type": random.choice("RS"), "status": random.choice(("True", "False"))}
        address = {"type": random.choice(("InternalIP", "Hostname")), "address": "10.0.0.1"}
        status = {"conditions": [condition], "addresses": [address]}
        return Step("PATCH", plural, name, {"status": status}, STRATEGIC, "status")
    return Step("PATCH", plural, name, body, STRATEGIC, stale=random.random() < 0.3)


def json_patched(random: Random) -> Step:
    plural, name = plural_of(random), random.choice(NAMES)
    label = f"/metadata/labels/{random.choice(('x', 'y', 'a.b~1c'))}"
    operation = random.choice((
        {"op": "add", "path": label, "value": "9"},
        {"op": "replace", "path": label, "value": "8"},
        {"op": "remove", "path": label},
        {"op": "test", "path": label, "value": "9"},
    ))
    return Step("PATCH", plural, name, [operation], JSON_PATCH)


def deleted(random: Random) -> Step:
    plural, name = plural_of(random), random.choice(NAMES)
    options: Json = None
    if random.random() < 0.4:
        options = {"preconditions": {"resourceVersion": "{version}"}}
    return Step("DELETE", plural, name, options, stale=random.random() < 0.3)


def read(random: Random) -> Step:
    return Step("GET", plural_of(random), random.choice(NAMES))


def listed(random: Random) -> Step:
    selector = random.choice(("x=1", "x", "!x", "y in (1,2)", "x!=1", ""))
    query = {"labelSelector": selector} if selector else {}
    return Step("GET", plural_of(random), query=query)
