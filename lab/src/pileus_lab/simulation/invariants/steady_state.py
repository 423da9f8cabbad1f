"""What may remain in the cloud at the end, and what may be sent when nothing changes."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import log2

from pileus.controllers.node.descriptor import NODE
from pileus.controllers.node.settings import NodeSettings
from pileus.controllers.route.descriptor import ROUTE
from pileus.controllers.route.settings import RouteSettings
from pileus.controllers.service import notes
from pileus.controllers.service.descriptor import SERVICE
from pileus.controllers.volume.descriptor import VOLUME
from pileus.controllers.volume.settings import VolumeSettings
from pileus_lab.apiserver.tree import Obj, text, texts
from pileus_lab.simulation.clouds.truth import Balancer
from pileus_lab.simulation.environment.cluster import ready_status
from pileus_lab.simulation.environment.steps import Channel
from pileus_lab.simulation.invariants.abilities import (
    requests_of_check,
    requests_of_lists,
    requests_of_single_nodes,
)
from pileus_lab.simulation.invariants.facts import Facts, is_new, named_of_others
from pileus_lab.simulation.setup import MONITOR_PERIOD

REWORDED = 300.0
"""Seconds after which a node that is kept without a machine may report it with new numbers."""
RETRIED = 60.0
"""Minimum seconds between two retries of a permanent failure, after some minutes."""
SINGLE = 4
"""Calls of a ported provider for each node, because it has no lists."""
SEARCH = 2
"""Calls that look for the machine of one new node: in the shared list, and in a fresh one."""
CHECKS = 2
"""Requests for each Service: at most one full check, or two quick ones."""
SEARCHED = 60.0
"""Seconds for which a new node's machine has been looked up by then, with exponential backoff."""
TOLD = 2
"""Events of one change of a balancer: that it began, and that it is done."""
LISTS = 5
"""Without streaming lists, one list at the end of each watch; and one of Services and nodes,
page by page, before orphans are reported."""
# Where nodes are not watched, rounds over the routes are as frequent as checks of machines (10 s).
SIDECARS = 3
"""Leases of CSI sidecars that a check of all volumes looks for."""
VOLUME_KINDS, NODES_AND_SERVICES = 4, 2
"""Kinds that are watched for volumes besides nodes, and without them."""
SWEPT = 60.0
"""Seconds between two paged lists of Services, while there are orphaned balancers."""
ROUNDS = 4
"""Reads of other controllers that may happen at any time: one refresh of nodes, one check of SSH
keys (keys and machines), one search for orphans. All but the refresh have periods of 600 s,
longer than a world is watched at rest."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What managers did in a period."""

    seconds: float
    calls: Counter[Channel]
    accepted: int
    """Writes that the cloud has not refused."""
    last_write: str


def wasted(facts: Facts, spent: Spent) -> Iterator[str]:
    """Returns what was done without need."""
    gone = len(_gone(facts))
    times = 1 + int(spent.seconds // REWORDED)
    hopeless = _hopeless(facts, spent.seconds)
    renewed = _renewed(facts)
    checks = _volume_checks(facts, spent.seconds)
    kinds = 1 + (VOLUME_KINDS / NODES_AND_SERVICES if checks else 0)
    most = {
        # The lost have two conditions that say so.
        Channel.WRITE: (gone + _lost(facts)) * times + _names_of_deleted(facts),
        # By the first check after its deletion; and of a route that leads nowhere and
        # is tried once in five minutes, that it fails no more because the cloud was in disorder.
        Channel.EVENT: gone + len(_unroutable(facts)) + TOLD * renewed,
        Channel.CLOUD_WRITE: hopeless + renewed,
        Channel.READ: int(LISTS * times * kinds)
        + _pages(facts) * (1 + int(spent.seconds // SWEPT))
        + SIDECARS * checks,
        Channel.WATCH: int(2 * (1 + times) * kinds),
        Channel.CLOUD_READ: _looks(facts, spent.seconds) + hopeless + checks,
    }
    for channel, limit in most.items():
        if spent.calls[channel] > limit:
            many = f"{spent.calls[channel]} {channel} in {spent.seconds:.0f} s"
            yield f"{many}, not {limit} at most; last written: {spent.last_write}"
    if spent.accepted > renewed:
        yield f"the cloud was changed; last written: {spent.last_write}"


def _names_of_deleted(facts: Facts) -> int:
    """How many Services name a balancer of others that was deleted: their message changes once."""
    there = facts.account.truth().balancers
    services = facts.cluster.objects("services")
    named = filter(None, (named_of_others(facts.account, one) for one in services))
    return sum(one not in there for one in named)


def _volume_checks(facts: Facts, seconds: float) -> int:
    """How many checks of all volumes there may be: one list of the cloud each."""
    if not facts.runs(VOLUME.canonical):
        return 0
    return 1 + int(seconds // facts.schedule.setup.config[VolumeSettings].check_period)


def _renewed(facts: Facts) -> int:
    """How many outdated notes one full check may write again: at most one per balancer."""
    is_late = facts.abilities.notes_at_full_check and facts.schedule.setup.repairs
    return len(facts.balancers()) if is_late else 0


def _looks(facts: Facts, seconds: float) -> int:
    """Calls that periodic checks may take: machines and routes, Services, lost nodes."""
    able, truth = facts.abilities, facts.account.truth()
    refreshes = _refreshes(facts, seconds)
    rounds = ROUNDS + int(seconds / MONITOR_PERIOD) * (2 if facts.runs(ROUTE.canonical) else 1)
    rounds += max(0, refreshes - 1)
    nodes = len(facts.cluster.objects("nodes"))
    is_bulk = facts.account.offered.knows_leftovers
    a_round = requests_of_lists(able, truth) if is_bulk else 1 + SINGLE * nodes
    searches = _lost(facts) * (1 + int(log2(1 + seconds / SEARCHED)))
    searching = searches * (SEARCH if is_bulk else SINGLE)
    if is_bulk and len(_gone(facts)) > _lost(facts):
        searching += refreshes * (SEARCH - 1)  # absence is never concluded from a cache
    a_check = max(CHECKS, requests_of_check(able, truth))
    services = len(facts.cluster.objects("services"))
    singles = _single_lookups(facts, seconds, refreshes)
    return rounds * a_round + a_check * services + searching + singles


def _single_lookups(facts: Facts, seconds: float, refreshes: int) -> int:
    """Requests for single machines, if the provider declares any.

    Checks of machines ask for nodes that are not ready, refreshes for all.
    """
    nodes, gone, lost = facts.cluster.objects("nodes"), len(_gone(facts)), _lost(facts)
    unready = sum(ready_status(node) != "True" for node in nodes)
    a_check = requests_of_single_nodes(facts.abilities, unready, gone, lost)
    a_refresh = requests_of_single_nodes(facts.abilities, len(nodes), gone, lost)
    return (1 + int(seconds / MONITOR_PERIOD)) * a_check + refreshes * a_refresh


def _refreshes(facts: Facts, seconds: float) -> int:
    """How many refreshes of all initialized nodes may begin in that many seconds."""
    if not facts.runs(NODE.canonical):
        return 0
    return 1 + int(seconds // facts.schedule.setup.config[NodeSettings].refresh_period)


def _lost(facts: Facts) -> int:
    """How many nodes have no machine and never had one that a manager saw."""
    if not facts.runs(NODE.canonical):
        return 0
    return sum(is_new(node) for node in _gone(facts))


def _pages(facts: Facts) -> int:
    """How many lists of Services there may be, if there is a reason for one."""
    services = facts.cluster.objects("services")
    there = {text(one, "metadata", "uid") for one in services if facts.wants_balancer(one)}
    is_orphaned = any(one.owner and one.owner.uid not in there for one in facts.balancers())
    return len(services) if is_orphaned else 0


def _gone(facts: Facts) -> list[Obj]:
    """Nodes that are kept although their machines do not exist."""
    ours = [one for one in facts.cluster.objects("nodes") if not facts.is_foreign(one)]
    return [node for node in ours if facts.machine_of(node) is None]


def _hopeless(facts: Facts, seconds: float) -> int:
    """How often permanent failures are retried: impossible Services, and routes without a machine.

    Without node watches, routes are retried in every round (`--route-reconciliation-period`).
    """
    impossible = sum(map(facts.is_impossible, facts.cluster.objects("services")))
    routes = sum(len(texts(one, "spec", "podCIDRs")) for one in _unroutable(facts))
    config = facts.schedule.setup.config
    period = RETRIED if config[RouteSettings].watch else config[RouteSettings].period
    return impossible * (1 + int(seconds // RETRIED)) + routes * (1 + int(seconds // period))


def _unroutable(facts: Facts) -> list[Obj]:
    """Nodes without a machine that should still have routes."""
    if not facts.runs(ROUTE.canonical):
        return []
    return [one for one in _gone(facts) if texts(one, "spec", "podCIDRs")]


ORPHANED = "OrphanedLoadBalancers"
MISTAKE = 3


def no_balancer_is_left_behind(facts: Facts) -> Iterator[str]:
    """What is not desired is deleted, or reported if the decision is the user's."""
    if not facts.runs(SERVICE.canonical):
        return
    services = facts.cluster.objects("services")
    wanting = {_uid(one) for one in services if facts.wants_balancer(one)}
    others = {_uid(one) for one in services if facts.is_of_another_class(one)}
    ended = {_uid(one) for one in services} - wanting - others
    for one in facts.account.truth().balancers.values():
        is_lost = one.owner is None and not one.is_of_others
        if is_lost and one.id in facts.made_by_managers:
            yield f"{one.id} is left, and nothing says whose it is"
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
            yield f"{balancer.id} is left and not desired ({owner})"


def _is_unknowable(facts: Facts) -> bool:
    """Whether the remains of a deleted Service cannot be found.

    Ported providers cannot list what they have created: then only the process that created it
    knows.
    """
    writers = facts.writers
    return not facts.account.offered.knows_leftovers and writers != {facts.cluster.leader()}


def _is_forgotten(facts: Facts, owner: str) -> bool:
    """Whether neither a Service nor the leader knows that it had a balancer.

    Its finalizer was removed while users wanted to keep the balancer, or others removed the
    finalizer while another process led.
    """
    leader = facts.cluster.leader()
    was_stripped = facts.history.stripped.get(owner, leader) != leader
    return owner in facts.history.kept_on_purpose or was_stripped


def _should_have_gone(facts: Facts, balancer: Balancer, owner: str) -> bool:
    """Whether the current leader already led, and knew the Service, when it vanished.

    Then it must have cleaned up, unless many vanished at once, users wanted to keep the balancer,
    or the cloud created it only afterwards.
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
    """Whether it is an orphan that no manager may delete by itself, and that is reported."""
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
