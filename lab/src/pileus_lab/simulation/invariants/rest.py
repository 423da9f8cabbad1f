"""What a world may still cost in which everything is in order: looks around, and no change."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import log2

from pileus.controllers.node.descriptor import NODE
from pileus.controllers.route.descriptor import ROUTE
from pileus_lab.apiserver.tree import Obj, text, texts
from pileus_lab.simulation.invariants.abilities import requests_of_check, requests_of_lists
from pileus_lab.simulation.invariants.facts import Facts, is_new
from pileus_lab.simulation.setup import MONITOR_PERIOD
from pileus_lab.simulation.stage.steps import Channel

REWORDED = 300.0
"""Seconds after which a node that is kept though its machine is gone may say so in new words."""
RETRIED = 60.0
"""Seconds between two tries of what is hopeless, at least, once it has failed for minutes."""
SINGLE = 4
"""Calls that a ported provider makes for each node, as it knows no lists."""
SEARCH = 2
"""Calls that look for the machine of one new node: at the list that all use, and at a fresh one."""
CHECKS = 2
"""Requests for each Service: at most one full check, or two quick ones."""
SEARCHED = 60.0
"""Seconds for which a new node's machine has been looked for by then, ever more seldom."""
LISTS = 5
"""Where the server knows no streaming lists, one at the end of each watch; and one of Services and
nodes, page by page, before anything is said of orphans."""
# Where nodes are not watched, rounds over the routes come as often as looks at machines (10 s).
SWEPT = 60.0
"""Seconds between two looks at Services, page by page, while balancers are there without one."""
ROUNDS = 4
"""Reads by other controllers that may fall into any time, however short: one refresh of nodes, one
check of SSH keys (keys and machines), one search for orphans. All but the refresh have periods of
600 s, longer than a world is watched at rest."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What managers did in a while."""

    seconds: float
    calls: Counter[Channel]
    accepted: int
    """Writes that the cloud has not refused."""
    last_write: str


def wasted(facts: Facts, spent: Spent) -> Iterator[str]:
    """What was done without need."""
    gone = len(_gone(facts))
    times = 1 + int(spent.seconds // REWORDED)
    hopeless = _hopeless(facts, spent.seconds)
    most = {
        Channel.WRITE: (gone + _lost(facts)) * times,  # the lost have two conditions that say so
        # By whoever looks for the first time after it went; and of a route that leads nowhere and
        # is tried once in five minutes, that it fails no more because the cloud was in disorder.
        Channel.EVENT: gone + len(_unroutable(facts)),
        Channel.CLOUD_WRITE: hopeless,
        Channel.READ: LISTS * times + _pages(facts) * (1 + int(spent.seconds // SWEPT)),
        Channel.WATCH: 2 * (1 + times),
        Channel.CLOUD_READ: _looks(facts, spent.seconds) + hopeless,
    }
    for channel, limit in most.items():
        if spent.calls[channel] > limit:
            many = f"{spent.calls[channel]} {channel} in {spent.seconds:.0f} s"
            yield f"{many}, not {limit} at most; last written: {spent.last_write}"
    if spent.accepted:
        yield f"the cloud was changed; last written: {spent.last_write}"


def _looks(facts: Facts, seconds: float) -> int:
    """How many calls looking around may take: at all machines and routes, Services, lost nodes."""
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
    return rounds * a_round + a_check * services + searching


def _refreshes(facts: Facts, seconds: float) -> int:
    """How many refreshes of all initialized nodes may begin in so many seconds."""
    if not facts.runs(NODE.canonical):
        return 0
    return 1 + int(seconds // facts.schedule.setup.config.node.status_update_frequency)


def _lost(facts: Facts) -> int:
    """How many nodes have no machine, and never had one that a manager saw."""
    if not facts.runs(NODE.canonical):
        return 0
    return sum(is_new(node) for node in _gone(facts))


def _pages(facts: Facts) -> int:
    """How many a list of Services may have, if there is cause to ask for one."""
    services = facts.cluster.objects("services")
    there = {text(one, "metadata", "uid") for one in services if facts.wants_balancer(one)}
    is_orphaned = any(one.owner and one.owner.uid not in there for one in facts.balancers())
    return len(services) if is_orphaned else 0


def _gone(facts: Facts) -> list[Obj]:
    """Nodes that are kept although their machines are gone."""
    ours = [one for one in facts.cluster.objects("nodes") if not facts.is_foreign(one)]
    return [node for node in ours if facts.machine_of(node) is None]


def _hopeless(facts: Facts, seconds: float) -> int:
    """How often what is hopeless is tried: impossible Services, and routes to no machine.

    Where nodes are not watched, routes are tried in every round (`--route-reconciliation-period`).
    """
    impossible = sum(map(facts.is_impossible, facts.cluster.objects("services")))
    routes = sum(len(texts(one, "spec", "podCIDRs")) for one in _unroutable(facts))
    config = facts.schedule.setup.config
    period = RETRIED if config.route.watch_based else config.shared.route_reconciliation_period
    return impossible * (1 + int(seconds // RETRIED)) + routes * (1 + int(seconds // period))


def _unroutable(facts: Facts) -> list[Obj]:
    """Nodes whose machines are gone, and that should have routes all the same."""
    if not facts.runs(ROUTE.canonical):
        return []
    return [one for one in _gone(facts) if texts(one, "spec", "podCIDRs")]
