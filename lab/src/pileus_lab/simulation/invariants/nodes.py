"""What must hold at every step of nodes: their facts, the order of their addresses, and vetoes."""

from collections.abc import Iterator, Mapping, Sequence

from pileus.controllers.node.labels import INSTANCE_TYPE, REGION, ZONE
from pileus_lab.apiserver.tree import Obj, rows, text, words
from pileus_lab.simulation.clouds.truth import Machine
from pileus_lab.simulation.invariants.facts import DELETION, Facts, ingress_of, is_new
from pileus_lab.simulation.invariants.service_history import is_manager
from pileus_lab.simulation.stage.cluster import ready_status
from pileus_lab.simulation.stage.operators import NEVER
from pileus_lab.simulation.stage.steps import ObjectStep


def initialized_nodes_have_their_facts(facts: Facts, step: ObjectStep) -> str | None:
    """Provider ID, labels and addresses are on a node before its taint is removed."""
    before, after = step.before, step.after
    if step.resource != "nodes" or not is_manager(step.who) or before is None or after is None:
        return None
    if not is_new(before) or is_new(after):
        return None
    name = text(after, "metadata", "name")
    machine = facts.machines.get(text(after, "spec", "providerID"))
    if machine is None:
        return f"node {name} was initialized without the provider ID of a machine"
    wrong = next(_lacking(after, machine), None)
    return f"node {name} was initialized, but {wrong}" if wrong else None


def _lacking(node: Obj, machine: Machine) -> Iterator[str]:
    labels = words(node, "metadata", "labels")
    wanted = ((ZONE, machine.zone), (REGION, machine.region), (INSTANCE_TYPE, machine.type))
    for key, value in ((key, value) for keys, value in wanted for key in keys if value):
        if labels.get(key) != value:
            yield f"its label {key} is {labels.get(key)}, not {value}"
    have = {(text(one, "type"), text(one, "address")) for one in rows(node, "status", "addresses")}
    want = {(str(one.type), one.address) for one in machine.addresses}
    if have != want:
        yield f"its addresses are {have}, not {want}"


def addresses_keep_their_order(_: Facts, step: ObjectStep) -> str | None:
    """The first address of each type is the main one: it does not change while it is there."""
    before, after = step.before, step.after
    if not is_manager(step.who) or before is None or after is None:
        return None
    was, now = _addresses(before), _addresses(after)
    for kind, addresses in now.items():
        stayed = [one for one in was.get(kind, ()) if one in addresses]
        if stayed != [one for one in addresses if one in stayed]:
            name = text(after, "metadata", "name")
            return f"{step.resource}/{name}: {kind} was {was[kind]} and is {addresses}"
    return None


def _addresses(thing: Obj) -> Mapping[str, Sequence[str]]:
    """By type; of a Service, those that it publishes."""
    found: dict[str, list[str]] = {"ingress": ingress_of(thing)}
    for one in rows(thing, "status", "addresses"):
        found.setdefault(text(one, "type"), []).append(text(one, "address"))
    return found


def vetoes_are_obeyed(_: Facts, step: ObjectStep) -> str | None:
    """No node is deleted whose annotation forbids it."""
    node = _deleted(step)
    if words(node, "metadata", "annotations").get(DELETION) != NEVER:
        return None
    return f"node {text(node, 'metadata', 'name')} was deleted; {DELETION} says {NEVER}"


def no_ready_node_is_deleted(_: Facts, step: ObjectStep) -> str | None:
    """Whatever the cloud says: a kubelet that reports is proof of a machine."""
    node = _deleted(step)
    if node is None or ready_status(node) != "True":
        return None
    return f"node {text(node, 'metadata', 'name')} was deleted although it is ready"


def _deleted(step: ObjectStep) -> Obj | None:
    """The node that a manager deleted."""
    is_deletion = step.resource == "nodes" and is_manager(step.who) and step.after is None
    return step.before if is_deletion else None
