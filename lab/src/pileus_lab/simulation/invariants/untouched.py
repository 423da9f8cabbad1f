"""What a manager must not change or delete: what others own, use or have replaced."""

import re
from collections.abc import Iterator, Mapping

from pileus.controllers.lifecycle.patches import GONE, OUT_OF_SERVICE, SHUTDOWN
from pileus.controllers.node.labels import INSTANCE_TYPE, REGION, ZONE
from pileus.controllers.service import notes, orphans
from pileus.controllers.service.descriptor import SERVICE
from pileus.controllers.service.status import SERVED
from pileus.fix import FIX
from pileus.objects.nodes import UNINITIALIZED
from pileus_lab.apiserver.tree import Obj, branch, rows, text, texts, words
from pileus_lab.simulation.clouds.truth import Balancer, Route
from pileus_lab.simulation.environment.cluster import LEASE
from pileus_lab.simulation.environment.steps import CloudStep, ObjectStep
from pileus_lab.simulation.environment.users import EVIL
from pileus_lab.simulation.invariants.facts import (
    READY,
    Facts,
    about,
    address_of_others,
    asked_of_others,
    ingress_of,
    name_of,
    named_of_others,
)
from pileus_lab.simulation.invariants.service_history import FINALIZER, has_finalizer, is_manager

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
"""Fields of the metadata."""
APART = frozenset({
    "annotations",
    "labels",
    "finalizers",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
})
OUR_ANNOTATIONS = "pileus.dev/"
"""For example the approval of a node deletion, once it is used."""


def others_services_are_left_alone(facts: Facts, step: ObjectStep) -> str | None:
    """A Service that never requested anything of this cloud is not changed."""
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
    return (
        f"Service {name} belongs to others, but these fields changed: {changed}"
        if changed
        else None
    )


def nodes_of_other_clouds_are_left_alone(facts: Facts, step: ObjectStep) -> str | None:
    """A manager assigns such a node its pod range, and changes nothing else.

    Events about it are writes too.
    """
    if not is_manager(step.who):
        return None
    if step.resource == "events":
        about = text(branch(step.after, "involvedObject"), "name")
        nodes = facts.cluster.objects("nodes")
        foreign = {text(one, "metadata", "name") for one in nodes if facts.is_of_no_cloud(one)}
        return f"{step.who} wrote an event about node {about}" if about in foreign else None
    before, after = step.before, step.after
    if step.resource != "nodes" or before is None or not facts.is_of_no_cloud(before):
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


def others_parts_are_left_alone(facts: Facts, step: ObjectStep) -> str | None:
    """Labels, taints, finalizers, conditions and other fields that are not ours do not change.

    Annotations that the provider reports on Services are ours, too.
    """
    before, after = step.before, step.after
    if not is_manager(step.who) or before is None or after is None:
        return None
    changed = _changed_metadata(before, after)
    declared = facts.account.offered.annotations
    reported = declared.reported if declared else frozenset[str]()
    was, now = _annotations(before, reported), _annotations(after, reported)
    if was != now:
        changed.append(f"annotations from {was} to {now}")
    for what in (_labels, _taints, _finalizers, _conditions, _spec, _status):
        if what(before) != what(after):
            changed.append(f"{what.__name__.strip('_')} from {what(before)} to {what(after)}")
    name = text(before, "metadata", "name")
    return f"{step.resource}/{name}: {step.who} changed {', '.join(changed)}" if changed else None


def _changed_metadata(before: Obj, after: Obj) -> list[str]:
    was, now = branch(before, "metadata"), branch(after, "metadata")
    keys = {*was, *now} - WRITTEN_BY_SERVER - APART
    return sorted(key for key in keys if was.get(key) != now.get(key))


def _annotations(thing: Obj, reported: frozenset[str]) -> Mapping[str, str]:
    given = words(thing, "metadata", "annotations")
    others = (key for key in given if not key.startswith(OUR_ANNOTATIONS) and key not in reported)
    return {key: given[key] for key in others}


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


HEARD = 120.0
"""Seconds after which every manager knows of a change: a dead watch is noticed after 90."""
UNDER_WAY = 60.0
"""Seconds that a pass may continue that began before its manager received a change."""
WINDOW = 600.0
"""Seconds in which losses are counted together."""


def nothing_wanted_is_deleted(facts: Facts, step: CloudStep) -> str | None:
    """No desired balancer or route is deleted, not even to be created again."""
    if not is_manager(step.who):
        return None
    for balancer in (*_lost(step), *_left(step)):
        if _is_wanted(facts, balancer):
            uid = balancer.owner.uid if balancer.owner else ""
            return f"{balancer.id} was deleted, though Service {uid} needs it"
    if step.after.routes is step.before.routes:
        return None
    for key, route in step.before.routes.items():
        now = step.after.routes.get(key)
        if (now is None or now.target != route.target) and _is_needed(facts, route):
            return (
                f"the route to {route.destination} was deleted, though node {route.target} has it"
            )
    return None


def _lost(step: CloudStep) -> list[Balancer]:
    before, after = step.before.balancers, step.after.balancers
    return [] if before is after else [one for key, one in before.items() if key not in after]


def _left(step: CloudStep) -> list[Balancer]:
    """Returns those that were deleted, while parts beside them are left."""
    before, after = step.before.balancers, step.after.balancers
    if before is after:
        return []
    left = {key for key, one in after.items() if one.is_remains}
    return [one for key, one in before.items() if key in left and not one.is_remains]


def _is_wanted(facts: Facts, balancer: Balancer) -> bool:
    """Whether its Service has requested it for so long that every manager knows."""
    if balancer.owner is None or not balancer.is_of(facts.cluster_id) or balancer.has_failed:
        return False
    uid = balancer.owner.uid
    since = facts.history.wanted_since.get(uid)
    if since is None:
        return False
    return uid not in facts.let_go or facts.now() - since > HEARD


def _is_needed(facts: Facts, route: Route) -> bool:
    """Whether it leads to the range of a node and to its machine, and has for a while."""
    machine = next((m for m in facts.account.truth().machines if m.name == route.target), None)
    if machine is None or route.cluster != facts.cluster_id:
        return False
    for node in facts.cluster.objects("nodes"):
        if text(node, "metadata", "name") != route.target:
            continue
        if route.destination in texts(node, "spec", "podCIDRs"):
            uid = text(node, "metadata", "uid")
            since = max(
                facts.known_since.get(uid, 0.0),
                facts.machine_since.get(machine.id, 0.0),
                facts.ranged_since.get(uid, 0.0),
            )
            return facts.now() - since > HEARD
    return False


def unmanaged_balancers_are_left_alone(facts: Facts, step: CloudStep) -> str | None:
    """`pileus.dev/manage` is obeyed once the manager has received it."""
    if not is_manager(step.who) or step.before.balancers is step.after.balancers:
        return None
    for key, before in step.before.balancers.items():
        after = step.after.balancers.get(key)
        if after == before or before.owner is None:
            continue
        mode, since = facts.history.unmanaged.get(before.owner.uid, ("", None))
        if since is None or _is_allowed(mode, before, after):
            continue
        if _may_be_swept(facts, before.owner.uid):
            continue
        heard = facts.heard_at(step.who, since)
        if heard is not None and facts.now() - heard > UNDER_WAY:
            return f"{key} was changed, though its Service has long said {mode}"
    return None


def _may_be_swept(facts: Facts, uid: str) -> bool:
    """Whether it is an orphan: a balancer that stays after its Service is deleted."""
    services = facts.cluster.objects("services")
    exists = any(text(one, "metadata", "uid") == uid for one in services)
    return facts.schedule.setup.deletes_orphans and not exists


def _is_allowed(mode: str, before: Balancer, after: Balancer | None) -> bool:
    """Whether only members were changed, if that is allowed."""
    if mode != "members" or after is None:
        return False
    parts = ("source_ranges", "addresses", "owner")
    is_same = all(getattr(before, part) == getattr(after, part) for part in parts)
    is_same_traffic = None in {before.traffic, after.traffic} or before.traffic == after.traffic
    return is_same and is_same_traffic and _same_ports(before, after)


def _same_ports(before: Balancer, after: Balancer) -> bool:
    """Where node ports belong to members, a balancer without members shows none."""
    if before.members and after.members:
        return before.ports == after.ports
    was, now = ({(one.port, one.transport) for one in each.ports} for each in (before, after))
    return was == now


def few_vanished_services_are_cleaned_up_at_once(facts: Facts, step: CloudStep) -> str | None:
    """For Services that were deleted by force; regular deletions are not limited."""
    if not is_manager(step.who):
        return None
    there = {text(one, "metadata", "uid") for one in facts.cluster.objects("services")}
    owners = (one.twin_of or one.owner for one in _lost(step))
    gone = {owner.uid for owner in owners if owner and owner.uid not in there}
    if not gone:
        return None
    leader, now = facts.cluster.leader(LEASE), facts.now()
    recent = (one for one in facts.history.cleaned_up if now - one[2] < WINDOW)
    before = len({uid for who, uid, _ in recent if who == leader} - gone)
    owners = len(facts.balancers()) + len(gone) + before
    limit = max(notes.FEW, int(notes.FRACTION * owners))
    if facts.schedule.setup.deletes_orphans:
        limit += max(orphans.FEW, int(orphans.MOST * owners))
    lost = before + len(gone)
    return f"{leader} cleaned up after {lost} of {owners} Services" if lost > limit else None


KINDS = {"Node": "nodes", "Service": "services"}


def nobody_changes_what_it_has_not_heard_of(facts: Facts, step: ObjectStep) -> str | None:
    """A request that was sent before its sender knew an object was meant for an earlier one.

    Checked only for names that were used before.
    """
    if not is_manager(step.who) or step.before is None:
        return None
    uid, name = text(step.before, "metadata", "uid"), name_of(step)
    if len(facts.named[name]) == 1 or step.had_heard_of(uid):
        return None
    how = "deleted" if step.after is None else "changed"
    return f"{step.who} {how} {'/'.join(filter(None, name))} ({uid}), which it did not know yet"


def nodes_get_the_id_of_their_own_machine(facts: Facts, step: ObjectStep) -> str | None:
    """The machine must not be another one, such as an earlier one of the same name."""
    if not is_manager(step.who) or step.resource != "nodes" or step.after is None:
        return None
    given = text(step.after, "spec", "providerID")
    if not given or given == text(step.before, "spec", "providerID"):
        return None
    uuid = text(step.after, "status", "nodeInfo", "systemUUID")
    if facts.uuids.get(given) == uuid:
        return None
    return (
        f"node {text(step.after, 'metadata', 'name')} got {given}, which is not that of its machine"
    )


def who_wants_a_balancer_is_not_released(facts: Facts, step: ObjectStep) -> str | None:
    """The finalizer stays on a Service that has always requested a balancer of ours."""
    before, after = step.before, step.after
    if step.resource != "services" or not is_manager(step.who) or before is None:
        return None
    uid = text(before, "metadata", "uid")
    if not has_finalizer(before) or (after and has_finalizer(after)) or uid in facts.let_go:
        return None
    return f"Service {uid} lost its finalizer, though it has always needed a balancer"


def events_are_about_those_they_name(facts: Facts) -> Iterator[str]:
    """Events of an object are found by its UID."""
    for event in facts.cluster.objects("events"):
        about = branch(event, "involvedObject")
        resource = KINDS.get(text(about, "kind"))
        name = text(about, "name")
        if resource is None or not name:
            continue
        uid = text(about, "uid")
        if uid not in facts.named.get((resource, text(about, "namespace"), name), ()):
            yield f"event {text(event, 'reason')} is about {name} of unknown UID {uid!r}"


def users_reach_no_balancer_of_others(facts: Facts) -> Iterator[str]:
    """A Service that names one, or asks for an address or port of others, gets and learns nothing.

    An address can be refused by the cloud alone, after the finalizer is there.
    """
    if not facts.runs(SERVICE.canonical):
        return
    for service in facts.cluster.objects("services"):
        named = named_of_others(facts.account, service)
        asked = address_of_others(facts.account, service) or asked_of_others(facts.account, service)
        if not ((named or asked) and facts.wants_balancer(service)):
            continue
        uid = text(service, "metadata", "uid")
        if facts.balancer_of(uid) is not None:
            yield about(service, " has a balancer")
        if (named and has_finalizer(service)) or ingress_of(service):
            yield about(service, " has the finalizer, or publishes an address")
        known = set(re.findall(r"[\w.:-]+[\w-]", "\n".join(_messages_about(facts, service))))
        for secret in sorted(known & (_secrets_of(facts) - {named, asked, uid})):
            yield about(service, f" has a message with {secret}, which belongs to others")


def texts_of_users_are_no_commands(facts: Facts) -> Iterator[str]:
    """What users write stays a text in events and conditions, also on a terminal."""
    services = facts.cluster.objects("services")
    told = ((one, message) for one in services for message in _messages_about(facts, one))
    for service, message in told:
        if not message.isprintable():
            yield about(service, f" has a message with control characters: {message!r}")
        if any(EVIL in QUOTED.sub("", fix) for fix in message.split(FIX)[1:]):
            yield about(service, f" has a fix with the text of a user: {message}")


QUOTED = re.compile(r"""'[^']*'|"[^"$`\\]*\"""")
"""A part of a command in which a shell expands nothing."""


def _messages_about(facts: Facts, service: Obj) -> Iterator[str]:
    uid = text(service, "metadata", "uid")
    for event in facts.cluster.objects("events"):
        if text(event, "involvedObject", "uid") == uid:
            yield text(event, "message")
    for one in rows(service, "status", "conditions"):
        yield text(one, "message")


def _secrets_of(facts: Facts) -> set[str]:
    """Returns what identifies balancers: their IDs, addresses, owners and clusters."""
    found = facts.account.truth().balancers.values()
    owners = [owner for one in found if (owner := one.owner)]
    clusters = {one.cluster for one in owners} - {facts.cluster_id}
    return clusters | {
        *(one.id for one in found),
        *(address for one in found for address in one.addresses),
        *(one.uid for one in owners),
    }
