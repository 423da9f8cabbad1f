"""What is wrong with a provider's answer: pure checks, each parting the good from the odd."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from pileus.cloud.balancer import (
    Balancer,
    Change,
    Effect,
    Ingress,
    Owner,
    Part,
    PortStatus,
    Seen,
    Wish,
)
from pileus.cloud.errors import CloudError, Unavailable
from pileus.cloud.model import (
    Absent,
    Address,
    Failure,
    Found,
    Instance,
    InstanceState,
    NodeKeys,
    NodeName,
    NodeRef,
    Route,
    SshKey,
)

T = TypeVar("T")
MISSING = object()


@dataclass(frozen=True, slots=True)
class Checked(Generic[T]):
    answer: T
    odd: tuple[str, ...] = ()
    """What was dropped from the answer, and why."""


def kind(thing: object) -> str:
    return "None" if thing is None else type(thing).__name__


def check_found(nodes: Sequence[NodeRef], answer: object) -> Checked[Mapping[NodeName, Found]]:
    """Keep what is said of the nodes asked for; nonsense about one becomes its `Failure`."""
    asked = {node.name for node in nodes}
    good: dict[NodeName, Found] = {}
    odd: list[str] = []
    for name, found in _mapping(answer).items():
        if name not in asked:
            odd.append(f"an answer for {name!r}, which was not asked for")
        elif problem := _wrong_with_found(found):
            odd.append(f"{problem} for node {name}")
            good[cast("NodeName", name)] = Failure(Unavailable(f"the provider gave {problem}"))
        else:
            good[cast("NodeName", name)] = cast("Found", found)
    return Checked(good, tuple(odd))


def _wrong_with_found(found: object) -> str:
    match found:
        case Instance():
            return _wrong_with_instance(found)
        case Absent(evidence=str()) | Failure(error=CloudError()):
            return ""
        case _:
            return f"{kind(found)} instead of an Instance, Absent or Failure"


TEXTS = ("id", "provider_id", "type", "zone", "region")


def _wrong_with_instance(instance: Instance) -> str:
    for name in TEXTS:
        value = getattr(instance, name)
        if not isinstance(value, str):
            return f"an Instance whose {name} is {kind(value)} instead of text"
    if not _are(instance.addresses, tuple, Address):
        return "an Instance whose addresses are not a tuple of Address"
    labels = cast("object", instance.labels)
    if not isinstance(labels, Mapping) or not _are_texts(cast("Mapping[object, object]", labels)):
        return "an Instance whose labels are not a mapping of texts"
    if not _are((instance.state,), tuple, InstanceState):
        return f"an Instance whose state is {instance.state!r}"
    return ""


def _are_texts(labels: Mapping[object, object]) -> bool:
    return all(isinstance(text, str) for item in labels.items() for text in item)


def check_owners(cluster: str, answer: object) -> Checked[frozenset[Owner]]:
    """Keep the owners of this cluster: others' are none of our business."""
    if not isinstance(answer, Collection):
        raise Unavailable(f"{kind(answer)} instead of a set of owners")
    items = cast("Collection[object]", answer)
    good = {item for item in items if isinstance(item, Owner) and item.cluster == cluster}
    odd = [f"{item!r}, which is no owner of this cluster" for item in items if item not in good]
    return Checked(frozenset(good), tuple(odd))


def check_observed(
    wishes: Sequence[Wish], answer: object
) -> Checked[Mapping[Owner, Seen | Failure]]:
    """Keep what is said of the owners asked for; nonsense about one becomes its `Failure`."""
    asked = {wish.owner for wish in wishes}
    good: dict[Owner, Seen | Failure] = {}
    odd: list[str] = []
    for owner, seen in _mapping(answer).items():
        if owner not in asked:
            odd.append(f"an answer for {owner!r}, which was not asked for")
        elif problem := _wrong_with_observed(seen):
            odd.append(f"{problem} for {owner!r}")
            good[cast("Owner", owner)] = Failure(Unavailable(f"the provider gave {problem}"))
        else:
            good[cast("Owner", owner)] = cast("Seen | Failure", seen)
    return Checked(good, tuple(odd))


def _wrong_with_observed(seen: object) -> str:
    match seen:
        case Failure(error=CloudError()):
            return ""
        case _:
            return wrong_with_seen(seen)


def wrong_with_seen(seen: object) -> str:
    """Returns what is wrong with an observation, or the empty text."""
    match getattr(seen, "balancer", MISSING):
        case None:
            return ""
        case Balancer(ingress=ingress):
            return f"{kind(seen)} whose ingress is {ingress!r}" if _is_wrong(ingress) else ""
        case _:
            return f"{kind(seen)}, which has no `balancer`"


def _is_wrong(ingress: object) -> bool:
    """Whether it is no tuple of `Ingress`, each with a tuple of `PortStatus`."""
    if not _are(ingress, tuple, Ingress):
        return True
    return not all(
        _are(each.ports, tuple, PortStatus) for each in cast("Sequence[Ingress]", ingress)
    )


def check_changes(answer: object) -> Checked[tuple[Change, ...]]:
    """Nothing odd is dropped here: a plan without one of its lines is another plan."""
    if not isinstance(answer, tuple):
        raise Unavailable(f"{kind(answer)} instead of a tuple of changes")
    for item in cast("tuple[object, ...]", answer):
        for name, wanted in CHANGE.items():
            value = getattr(item, name, None)
            if not isinstance(value, wanted):
                raise Unavailable(
                    f"a {kind(item)} whose {name} is {kind(value)} instead of {wanted.__name__}"
                )
    return Checked(cast("tuple[Change, ...]", answer))


CHANGE: Mapping[str, type] = {"effect": Effect, "summary": str, "part": Part}


def check_routes(answer: object) -> Checked[Sequence[Route]]:
    """Nothing odd is dropped here: a list that lacks a route would have it created again."""
    if not isinstance(answer, list | tuple):
        raise Unavailable(f"{kind(answer)} instead of a sequence of routes")
    routes = cast("Sequence[object]", answer)
    for item in routes:
        if not isinstance(item, Route):
            raise Unavailable(f"{kind(item)} instead of a Route")
    return Checked(cast("Sequence[Route]", routes))


def check_route_errors(
    routes: Sequence[Route], answer: object
) -> Checked[Mapping[Route, CloudError]]:
    return _check_errors(frozenset(routes), answer)


def check_node_errors(
    nodes: Sequence[NodeRef], answer: object
) -> Checked[Mapping[NodeName, CloudError]]:
    return _check_errors(frozenset(node.name for node in nodes), answer)


def _check_errors(asked: frozenset[T], answer: object) -> Checked[Mapping[T, CloudError]]:
    good: dict[T, CloudError] = {}
    odd: list[str] = []
    for item, error in _mapping(answer).items():
        if item not in asked:
            odd.append(f"a result for {item!r}, which was not asked for")
        elif not isinstance(error, CloudError):
            odd.append(f"{kind(error)} instead of an error for {item!r}")
            good[cast("T", item)] = Unavailable(f"the provider gave {kind(error)}")
        else:
            good[cast("T", item)] = error
    return Checked(good, tuple(odd))


def check_keys(
    nodes: Sequence[NodeRef], answer: object
) -> Checked[Mapping[NodeName, NodeKeys | Failure]]:
    """Keep what is said of the nodes asked for; nonsense about one becomes its `Failure`."""
    asked = {node.name for node in nodes}
    good: dict[NodeName, NodeKeys | Failure] = {}
    odd: list[str] = []
    for name, keys in _mapping(answer).items():
        if name not in asked:
            odd.append(f"an answer for {name!r}, which was not asked for")
        elif not _are_keys(keys):
            problem = f"{kind(keys)} instead of NodeKeys or a Failure"
            odd.append(f"{problem} for node {name}")
            good[cast("NodeName", name)] = Failure(Unavailable(f"the provider gave {problem}"))
        else:
            good[cast("NodeName", name)] = cast("NodeKeys | Failure", keys)
    return Checked(good, tuple(odd))


def _are_keys(keys: object) -> bool:
    match keys:
        case Failure(error=CloudError()):
            return True
        case NodeKeys():
            return _are(keys.ours, frozenset, SshKey) and _are(keys.others, frozenset, SshKey)
        case _:
            return False


def _mapping(answer: object) -> Mapping[object, object]:
    if not isinstance(answer, Mapping):
        raise Unavailable(f"{kind(answer)} instead of a mapping")
    return cast("Mapping[object, object]", answer)


def _are(values: object, container: type, item: type) -> bool:
    return isinstance(values, container) and all(
        isinstance(value, item) for value in cast("Collection[object]", values)
    )
