"""What must not be lost in the cloud: what is wanted, what is not managed, and much at once."""

from pileus.controllers.service import notes, orphans
from pileus_lab.apiserver.tree import text, texts
from pileus_lab.simulation.clouds.truth import Balancer, Route
from pileus_lab.simulation.invariants.facts import Facts
from pileus_lab.simulation.invariants.service_history import is_manager
from pileus_lab.simulation.stage.cluster import LEASE
from pileus_lab.simulation.stage.steps import CloudStep

HEARD = 120.0
"""Seconds after which every manager knows of a change: a dead watch is noticed after 90."""
UNDER_WAY = 60.0
"""Seconds that a pass may go on which began before its manager heard of a change."""
WINDOW = 600.0
"""Seconds in which losses are counted together."""


def nothing_wanted_is_deleted(facts: Facts, step: CloudStep) -> str | None:
    """No balancer or route that is wanted is deleted, not even to be created again."""
    if not is_manager(step.who):
        return None
    for balancer in _lost(step):
        if _is_wanted(facts, balancer):
            uid = balancer.owner.uid if balancer.owner else ""
            return f"{balancer.id} was deleted, though Service {uid} wants it"
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


def _is_wanted(facts: Facts, balancer: Balancer) -> bool:
    """Whether its Service has asked for it all the time, or for so long that everybody knows."""
    if balancer.owner is None or not balancer.is_of(facts.cluster_id):
        return False
    uid = balancer.owner.uid
    since = facts.history.wanted_since.get(uid)
    if since is None:
        return False
    return uid not in facts.let_go or facts.now() - since > HEARD


def _is_needed(facts: Facts, route: Route) -> bool:
    """Whether it leads to the range of a node, and to its machine, and has for a while."""
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
    """What `pileus.dev/manage` says is obeyed, once the manager has heard of it."""
    if not is_manager(step.who) or step.before.balancers is step.after.balancers:
        return None
    for key, before in step.before.balancers.items():
        after = step.after.balancers.get(key)
        if after is before or before.owner is None:
            continue
        mode, since = facts.history.unmanaged.get(before.owner.uid, ("", None))
        if since is None or _is_allowed(mode, before, after):
            continue
        if after is None and _may_be_swept(facts, before.owner.uid):
            continue
        heard = facts.heard_at(step.who, since)
        if heard is not None and facts.now() - heard > UNDER_WAY:
            return f"{key} was changed, though its Service says {mode} for long"
    return None


def _may_be_swept(facts: Facts, uid: str) -> bool:
    """Whether it is an orphan: what stays in the cloud when its Service is gone is one."""
    services = facts.cluster.objects("services")
    exists = any(text(one, "metadata", "uid") == uid for one in services)
    return facts.schedule.setup.deletes_orphans and not exists


def _is_allowed(mode: str, before: Balancer, after: Balancer | None) -> bool:
    """Whether members alone were changed, where that is allowed."""
    if mode != "members" or after is None:
        return False
    parts = ("ports", "source_ranges", "traffic", "addresses", "owner")
    return all(getattr(before, part) == getattr(after, part) for part in parts)


def few_vanished_services_are_cleaned_up_at_once(facts: Facts, step: CloudStep) -> str | None:
    """Of Services that were deleted by force; what goes the regular way is not limited."""
    if not is_manager(step.who):
        return None
    there = {text(one, "metadata", "uid") for one in facts.cluster.objects("services")}
    gone = [one for one in _lost(step) if one.owner and one.owner.uid not in there]
    if not gone:
        return None
    leader, now = facts.cluster.leader(LEASE), facts.now()
    before = sum(1 for who, at in facts.history.cleaned_up if who == leader and now - at < WINDOW)
    owners = len(facts.balancers()) + len(gone) + before
    limit = max(notes.FEW, int(notes.FRACTION * owners))
    if facts.schedule.setup.deletes_orphans:
        limit += max(orphans.FEW, int(orphans.MOST * owners))
    lost = before + len(gone)
    return f"{leader} cleaned up after {lost} of {owners} Services" if lost > limit else None
