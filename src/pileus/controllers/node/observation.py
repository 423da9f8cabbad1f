"""What a pass knows about a node: the node, who owns it, and the cloud's answer, checked."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import assert_never

from pileus.cloud.errors import CloudError, NotFound
from pileus.cloud.interface import Instances
from pileus.cloud.model import Absent, Instance, no_labels
from pileus.controllers.node.addresses import is_of_unknown_type, usable
from pileus.controllers.node.identity import IdentityRefused, Machine, refusal
from pileus.controllers.node.labels import additional, standard
from pileus.controllers.node.settings import IdentityRule
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node, NodeAddress
from pileus.objects import lookup
from pileus.objects.ownership import Whose


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the cloud reports about an instance and Kubernetes accepts on a node."""

    provider_id: str = ""
    addresses: tuple[NodeAddress, ...] = ()
    standard_labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """Type, zone and region, under their stable and their deprecated keys."""
    additional_labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    names: frozenset[str] = frozenset()
    """Names that the node of the instance may have; empty: not known."""
    aliases: frozenset[str] = frozenset()
    """Other forms of the provider ID that a node of the instance may have."""
    bad_addresses: tuple[str, ...] = ()
    """Messages about invalid addresses, which are not in `addresses`."""
    unknown_addresses: tuple[str, ...] = ()
    """Messages about addresses of types that Kubernetes does not define."""
    bad_labels: tuple[str, ...] = ()
    """Messages about invalid labels."""


Answer = Facts | CloudError


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The input of a plan."""

    node: Node
    whose: Whose
    """Which cloud owns a node."""
    answer: Answer | None = None
    """None: the cloud was not asked."""
    others: tuple[Node, ...] = ()
    """Initialized nodes of the machine in the cloud's answer."""
    identity: IdentityRule = IdentityRule.NAME
    is_claim: bool = False
    """Whether the node is initialized, with a provider ID that was not checked yet."""
    failing_for: float = 0.0
    """Seconds since the first failed pass over the node in a row."""


def refused(seen: Observation) -> IdentityRefused | None:
    """Returns why the node is not accepted as that of the instance; None if it is."""
    if not isinstance(seen.answer, Facts):
        return None
    machine = Machine(seen.answer.provider_id, seen.answer.names)
    return refusal(seen.node, machine, seen.others, seen.identity)


def answer_text(answer: Answer | None) -> str:
    """Returns the cloud's answer in one line; empty if it was not asked."""
    match answer:
        case None:
            return ""
        case Facts():
            return f"instance {answer.provider_id or 'without provider ID'}"
        case NotFound():
            return str(answer)
        case error:
            return f"unknown: {type(error).__name__}: {error}"


async def look_up(
    instances: Instances, nodes: Sequence[Node], *, deadline: float = lookup.DEADLINE
) -> Mapping[str, Answer]:
    """Asks the cloud once about all `nodes`. Returns an answer for each node's name.

    Guarantees: every node has an answer; whatever the provider raises or returns becomes one.
    """
    # Positive answers may come from a provider's cache: absence concludes nothing here.
    found = await lookup.look_up(instances, nodes, fresh=False, deadline=deadline)
    return {name: _answer(answer) for name, answer in found.items()}


def examine(instance: Instance) -> Facts:
    """Returns what Kubernetes accepts of an instance, and messages about the rest.

    Raises `CloudError` if its provider ID is not text.
    """
    _check_provider_id(instance.provider_id)
    unknown = tuple(filter(is_of_unknown_type, instance.addresses))
    addresses, bad_addresses = usable(each for each in instance.addresses if each not in unknown)
    standard_labels, bad_standard = standard(instance)
    additional_labels, bad_additional = additional(instance)
    return Facts(
        provider_id=instance.provider_id,
        addresses=addresses,
        names=instance.names,
        aliases=instance.aliases,
        standard_labels=standard_labels,
        additional_labels=additional_labels,
        bad_addresses=bad_addresses,
        unknown_addresses=tuple(
            f"{each.address} is of type {each.type}, which Kubernetes does not define"
            for each in unknown
        ),
        bad_labels=bad_standard + bad_additional,
    )


def _answer(found: lookup.Answer) -> Answer:
    match found:
        case Instance():
            return _examined(found)
        case Absent(evidence):
            return NotFound(f"the cloud has no machine for this node: {evidence}")
        case CloudError():
            return found
        case _:
            assert_never(found)


def _examined(instance: Instance) -> Answer:
    try:
        return examine(instance)
    except CloudError as error:
        return error
    except (TypeError, ValueError, AttributeError) as error:
        return lookup.bug(f"returned an instance with fields of wrong types: {error}")


def _check_provider_id(value: object) -> None:
    if not isinstance(value, str):
        raise CloudError(
            f"the provider returned {value!r} as a provider ID, which must be text; "
            "this is a bug in it, report it to its authors"
        )
