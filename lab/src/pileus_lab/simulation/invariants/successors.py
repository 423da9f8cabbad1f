"""What is meant for an object does not befall another one that has taken its name."""

from collections.abc import Iterator

from pileus_lab.apiserver.tree import branch, text
from pileus_lab.simulation.invariants.facts import Facts, name_of
from pileus_lab.simulation.invariants.service_history import has_finalizer, is_manager
from pileus_lab.simulation.stage.steps import ObjectStep

KINDS = {"Node": "nodes", "Service": "services"}


def nobody_changes_what_it_has_not_heard_of(facts: Facts, step: ObjectStep) -> str | None:
    """A request that left before its sender knew of an object was meant for one before it.

    Asked only of those whose name somebody had before.
    """
    if not is_manager(step.who) or step.before is None:
        return None
    uid, name = text(step.before, "metadata", "uid"), name_of(step)
    if len(facts.named[name]) == 1 or step.had_heard_of(uid):
        return None
    how = "deleted" if step.after is None else "changed"
    return f"{step.who} {how} {'/'.join(filter(None, name))} ({uid}), of which it knew nothing yet"


def nodes_get_the_id_of_their_own_machine(facts: Facts, step: ObjectStep) -> str | None:
    """And not that of another machine, such as the one that had its name before."""
    if not is_manager(step.who) or step.resource != "nodes" or step.after is None:
        return None
    given = text(step.after, "spec", "providerID")
    if not given or given == text(step.before, "spec", "providerID"):
        return None
    uuid = text(step.after, "status", "nodeInfo", "systemUUID")
    if facts.uuids.get(given) == uuid:
        return None
    return f"node {text(step.after, 'metadata', 'name')} got {given}, which is not its machine"


def who_wants_a_balancer_is_not_released(facts: Facts, step: ObjectStep) -> str | None:
    """The finalizer stays on a Service that has never wanted anything but a balancer of ours."""
    before, after = step.before, step.after
    if step.resource != "services" or not is_manager(step.who) or before is None:
        return None
    uid = text(before, "metadata", "uid")
    if not has_finalizer(before) or (after and has_finalizer(after)) or uid in facts.let_go:
        return None
    return f"Service {uid} was released, though it has wanted a balancer all the time"


def events_are_about_those_they_name(facts: Facts) -> Iterator[str]:
    """Whoever reads the events of an object finds them by its UID."""
    for event in facts.cluster.objects("events"):
        about = branch(event, "involvedObject")
        resource = KINDS.get(text(about, "kind"))
        name = text(about, "name")
        if resource is None or not name:
            continue
        uid = text(about, "uid")
        if uid not in facts.named.get((resource, text(about, "namespace"), name), ()):
            yield f"event {text(event, 'reason')} is about {name} of UID {uid!r}, which never was"
