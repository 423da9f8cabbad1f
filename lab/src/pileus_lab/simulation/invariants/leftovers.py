"""What may be left in the cloud, in the end, that no Service wants; and who must hear of it."""

from collections.abc import Iterator

from pileus.controllers.service import notes
from pileus.controllers.service.descriptor import SERVICE
from pileus_lab.apiserver.tree import Obj, text
from pileus_lab.simulation.clouds.truth import Balancer
from pileus_lab.simulation.invariants.facts import Facts

ORPHANED = "OrphanedLoadBalancers"
MISTAKE = 3


def no_balancer_is_left_behind(facts: Facts) -> Iterator[str]:
    """What nobody wants is gone; or people hear of it, where it is theirs to decide."""
    if not facts.runs(SERVICE.canonical):
        return
    services = facts.cluster.objects("services")
    wanting = {_uid(one) for one in services if facts.wants_balancer(one)}
    others = {_uid(one) for one in services if facts.is_of_another_class(one)}
    ended = {_uid(one) for one in services} - wanting - others
    for balancer in facts.balancers():
        owner = balancer.owner.uid if balancer.owner else ""
        if owner in wanting or (owner not in wanting | others | ended and _is_unknowable(facts)):
            continue
        if owner in ended and facts.ignores_orphans and _is_forgotten(facts, owner):
            continue
        if owner in others:
            may_stay = True
        elif _should_have_gone(facts, balancer, owner):
            yield f"{balancer.id} is left, though its leader knew when Service {owner} vanished"
            continue
        else:
            may_stay = not facts.schedule.setup.deletes_orphans
        if owner in ended or not _is_told(facts, owner, may_stay=may_stay):
            yield f"{balancer.id} is left, and nobody wants it ({owner})"


def _is_unknowable(facts: Facts) -> bool:
    """Whether nobody can find what is left of a Service that is gone.

    Ported providers cannot list what they have built: then only the process that built it knows.
    """
    writers = facts.writers
    return not facts.account.offered.knows_leftovers and writers != {facts.cluster.leader()}


def _is_forgotten(facts: Facts, owner: str) -> bool:
    """Whether nothing on a Service, and no process that leads, tells that it had a balancer.

    It was released while people wanted the balancer to stay; or others removed its finalizer
    while another process led.
    """
    leader = facts.cluster.leader()
    was_stripped = facts.history.stripped.get(owner, leader) != leader
    return owner in facts.history.kept_on_purpose or was_stripped


def _should_have_gone(facts: Facts, balancer: Balancer, owner: str) -> bool:
    """Whether the process that leads now has led, and known the Service, when that vanished.

    Then it must have cleaned up by itself, unless many vanished at once, people wanted the
    balancer to stay, or the cloud created it only afterwards.
    """
    lost = facts.history.vanished.get(owner)
    if lost is None or lost.is_protected or owner in facts.left_to_others:
        return False
    if owner in facts.history.kept_on_purpose:
        return False  # it was released before, and its balancer stayed
    if not lost.was_known or lost.leader != facts.cluster.leader():
        return False
    many = [
        one for one in facts.history.vanished.values() if abs(one.at - lost.at) < notes.SUSPICION
    ]
    return len(many) <= notes.FEW and facts.history.born.get(balancer.id, 0.0) < lost.at


def _is_told(facts: Facts, owner: str, *, may_stay: bool) -> bool:
    """Whether it is an orphan that no manager may delete by itself, and people hear of it."""
    if facts.ignores_orphans:
        return True
    if not may_stay and not _are_too_many(facts):
        return False
    told = [one for one in facts.cluster.objects("events") if text(one, "reason") == ORPHANED]
    return any(owner in text(one, "message") or " more " in text(one, "message") for one in told)


def _are_too_many(facts: Facts) -> bool:
    """So many at once that they look like a mistake: then none is deleted."""
    services = {_uid(one) for one in facts.cluster.objects("services")}
    owners = {one.owner.uid for one in facts.balancers() if one.owner}
    orphans = owners - services
    return len(orphans) > max(MISTAKE, len(owners) / 2)


def _uid(service: Obj) -> str:
    return text(service, "metadata", "uid")
