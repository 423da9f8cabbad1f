"""What a manager must not touch in the cluster: others' Services, and others' parts of ours."""

from collections.abc import Mapping

from pileus.controllers.lifecycle.plan import GONE, OUT_OF_SERVICE, SHUTDOWN
from pileus.controllers.node.labels import INSTANCE_TYPE, REGION, ZONE
from pileus.controllers.service.status import SERVED
from pileus.objects.nodes import UNINITIALIZED
from pileus_lab.apiserver.tree import Obj, branch, rows, text, texts, words
from pileus_lab.simulation.invariants.facts import READY, Facts
from pileus_lab.simulation.invariants.service_history import FINALIZER, is_manager
from pileus_lab.simulation.stage.steps import ObjectStep

OUR_LABELS = frozenset({*INSTANCE_TYPE, *REGION, *ZONE})
OUR_TAINTS = frozenset({UNINITIALIZED, SHUTDOWN.key, GONE.key, OUT_OF_SERVICE.key})
OUR_CONDITIONS = frozenset({
    READY,
    SERVED,
    "CloudProviderUninitialized",
    "CloudProviderInstanceGone",
    "NetworkUnavailable",
})
OUR_SPEC = frozenset({"providerID", "podCIDR", "podCIDRs", "taints"})
OUR_STATUS = frozenset({"addresses", "conditions", "loadBalancer"})
WRITTEN_BY_SERVER = frozenset({"resourceVersion", "managedFields", "generation"})
"""Of the metadata."""
APART = frozenset({
    "annotations",
    "labels",
    "finalizers",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
})
OUR_ANNOTATIONS = "pileus.dev/"
"""Such as a word that let a node be deleted, and is used up."""


def others_services_are_left_alone(facts: Facts, step: ObjectStep) -> str | None:
    """Of a Service that never asked this cloud for anything, nothing is changed."""
    before, after = step.before, step.after
    if step.resource != "services" or not is_manager(step.who) or before is None:
        return None
    if text(before, "metadata", "uid") in facts.asked_for:
        return None
    name = text(before, "metadata", "name")
    if after is None:
        return f"Service {name} was deleted"
    changed = [part for part in ("spec", "status") if before.get(part) != after.get(part)]
    changed += _changed_metadata(before, after)
    if texts(before, "metadata", "finalizers") != texts(after, "metadata", "finalizers"):
        changed.append("finalizers")
    return f"Service {name} is others', and lost or got {changed}" if changed else None


def nodes_of_other_clouds_are_left_alone(facts: Facts, step: ObjectStep) -> str | None:
    """A manager gives such a node its pod range, which is the cluster's, and changes nothing else.

    Events about it are writes too.
    """
    if not is_manager(step.who):
        return None
    if step.resource == "events":
        about = text(branch(step.after, "involvedObject"), "name")
        nodes = facts.cluster.objects("nodes")
        foreign = {text(one, "metadata", "name") for one in nodes if facts.is_foreign(one)}
        return f"{step.who} wrote an event about node {about}" if about in foreign else None
    before, after = step.before, step.after
    if step.resource != "nodes" or before is None or not facts.is_foreign(before):
        return None
    if after is None or _without_ranges(before) != _without_ranges(after):
        name = text(before, "metadata", "name")
        return f"{step.who} changed node {name}, which is of another cloud"
    return None


def _without_ranges(node: Obj) -> tuple[object, ...]:
    spec = {
        key: each for key, each in branch(node, "spec").items() if not key.startswith("podCIDR")
    }
    metadata = {
        key: each for key, each in branch(node, "metadata").items() if key not in WRITTEN_BY_SERVER
    }
    return metadata, spec, branch(node, "status")


def others_parts_are_left_alone(_: Facts, step: ObjectStep) -> str | None:
    """Labels, taints, finalizers, conditions and all else that is not ours stays as it was."""
    before, after = step.before, step.after
    if not is_manager(step.who) or before is None or after is None:
        return None
    changed = _changed_metadata(before, after)
    for what in (_annotations, _labels, _taints, _finalizers, _conditions, _spec, _status):
        if what(before) != what(after):
            changed.append(f"{what.__name__.strip('_')} from {what(before)} to {what(after)}")
    name = text(before, "metadata", "name")
    return f"{step.resource}/{name}: {step.who} changed {', '.join(changed)}" if changed else None


def _changed_metadata(before: Obj, after: Obj) -> list[str]:
    was, now = branch(before, "metadata"), branch(after, "metadata")
    keys = {*was, *now} - WRITTEN_BY_SERVER - APART
    return sorted(key for key in keys if was.get(key) != now.get(key))


def _annotations(thing: Obj) -> Mapping[str, str]:
    given = words(thing, "metadata", "annotations")
    return {key: value for key, value in given.items() if not key.startswith(OUR_ANNOTATIONS)}


def _labels(thing: Obj) -> Mapping[str, str]:
    given = words(thing, "metadata", "labels")
    return {key: value for key, value in given.items() if key not in OUR_LABELS}


def _taints(thing: Obj) -> list[Obj]:
    return [one for one in rows(thing, "spec", "taints") if text(one, "key") not in OUR_TAINTS]


def _finalizers(thing: Obj) -> list[str]:
    return [one for one in texts(thing, "metadata", "finalizers") if one != FINALIZER]


def _conditions(thing: Obj) -> list[Obj]:
    given = rows(thing, "status", "conditions")
    return [one for one in given if text(one, "type") not in OUR_CONDITIONS]


def _spec(thing: Obj) -> Obj:
    return {key: value for key, value in branch(thing, "spec").items() if key not in OUR_SPEC}


def _status(thing: Obj) -> Obj:
    return {key: value for key, value in branch(thing, "status").items() if key not in OUR_STATUS}
