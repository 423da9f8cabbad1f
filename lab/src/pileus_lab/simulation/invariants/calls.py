"""What must hold for every call that a manager makes, and for every answer that it hears."""

from collections.abc import Callable, Iterator, Mapping

from pileus.controllers.node.descriptor import NODE
from pileus.kube.client import DEAD_AFTER
from pileus_lab.apiserver.tree import Obj, text, texts
from pileus_lab.simulation.invariants.abilities import requests_of_check, requests_of_lists
from pileus_lab.simulation.invariants.facts import (
    READY,
    STUCK,
    Facts,
    conditions_of,
    ingress_of,
    is_new,
)
from pileus_lab.simulation.invariants.pace import LAWS, OTHERS, TICK, same, who_waits
from pileus_lab.simulation.invariants.rates import Costs, most_calls
from pileus_lab.simulation.replica import SLOWEST
from pileus_lab.simulation.stage.steps import Answer, Call, Channel

INVITED = 2
"""Calls of a kind in the pass that a server has asked for: what was refused, and what follows."""
NOT_TOLD = frozenset({Channel.LEASE, Channel.READ, Channel.WATCH})
TOLD_AFTER = 45.0
"""Seconds of the same failure after which people must have heard of it. Ten are waited for it to
pass; the tries come 5, 10 and 20 s apart."""
LASTING = 3
"""Failures of the same call, at least, before it counts as failing all the time: two may be of
different passes, between which the object was settled by other calls."""
WELL = 45.0
"""Seconds in which the API server had no trouble, so that people could be told."""


def only_the_leader_writes(facts: Facts, call: Call) -> str | None:
    if call.identity in facts.leaders(facts.leases_for(call)):
        return None
    leader = facts.cluster.leader()
    return f"{call.identity} sent {call.what} while {leader or 'nobody'} leads"


def nobody_works_on_an_old_lease(facts: Facts, call: Call) -> str | None:
    """Whoever has not heard of a renewal for as long as the deadline is may have lost the lease."""
    renewed = [facts.renewed.get((call.identity, one), 0.0) for one in facts.leases_for(call)]
    age = call.at - max(renewed)
    if age <= facts.election.renew_deadline / SLOWEST + TICK:
        return None
    return f"{call.identity} sent {call.what} {age:.1f} s after its last renewal"


def calls_are_bounded(facts: Facts, call: Call) -> str | None:
    paces, whose = facts.paces, (call.identity, call.agent)
    sent = paces.sent.get((*whose, call.channel), 0)
    able, truth = facts.abilities, facts.account.truth()
    costs = Costs(requests_of_check(able, truth), requests_of_lists(able, truth))
    most = most_calls(call.agent, call.channel, facts.things, facts.election, costs)
    if sent <= most + INVITED * paces.invited.get(whose, 0):
        return None
    return f"{call.identity}: {sent} {call.channel} of {call.agent} in a minute"


def who_is_told_to_wait_waits(facts: Facts, call: Call) -> str | None:
    """Except for the lease, which is lost to who waits; and for reads of the API server.

    Of those nobody can tell whether they are the same: two passes may need the same object.
    """
    if call.channel in NOT_TOLD or not facts.paces.is_early(call):
        return None
    if facts.paces.may_be_early(call):
        return None
    seconds = facts.paces.quiet_until[who_waits(call)] - call.at
    return f"{call.identity} sent {call.what} {seconds:.3f} s before it was to"


def what_fails_comes_ever_more_seldom(facts: Facts, answer: Answer) -> str | None:
    call = answer.call
    vain = facts.paces.vain.get(same(call)) if call.is_work else None
    if vain is None:
        return None
    law, elapsed = LAWS.get(call.agent, OTHERS), facts.now() - vain.since
    if vain.passes <= law.passes(elapsed):
        return None
    return f"{call.identity} sent {call.what} {vain.passes} times in vain in {elapsed:.1f} s"


def what_the_cloud_refuses_is_told(facts: Facts, answer: Answer) -> str | None:
    """What fails for long is said on the object that it fails for, if the API server is well."""
    call, now = answer.call, facts.now()
    vain = facts.paces.vain.get(same(call)) if call.is_to_cloud else None
    if vain is None or now - vain.since < TOLD_AFTER or vain.passes < LASTING:
        return None
    if now - facts.paces.ill.get(call.identity, 0.0) < WELL or facts.cluster.is_down:
        return None
    for kind, thing in _concerned(facts, call):
        name = text(thing, "metadata", "name")
        if not _says_so(thing) and not _is_warned_of(facts, thing):
            seconds = now - vain.since
            return f"{kind}/{name} says nothing, though {call.what} fails for {seconds:.0f} s"
    return None


def _concerned(facts: Facts, call: Call) -> Iterator[tuple[str, Obj]]:
    """The objects that a call to the cloud is made for, if they have been there for a while."""
    kind, is_for = _CONCERN.get(call.agent, ("", None))
    for thing in facts.cluster.objects(kind) if is_for else ():
        since = facts.known_since.get(text(thing, "metadata", "uid"), 0.0)
        heard = DEAD_AFTER if call.channel is Channel.CLOUD_READ else 0.0
        if facts.now() - since < TOLD_AFTER + heard:
            continue  # whoever only reads need not have heard of it: its watch may be dead
        if is_for and is_for(facts, call, thing):
            yield kind, thing


def _is_for_service(facts: Facts, call: Call, service: Obj) -> bool:
    """Whether a write names it or its balancer. A read is for those that have no address yet."""
    uid = text(service, "metadata", "uid")
    if call.channel is Channel.CLOUD_READ:
        return not ingress_of(service) and facts.wants_balancer(service)
    balancer = facts.balancer_of(uid)
    return uid in call.what or (balancer is not None and f"'{balancer.id}'" in call.what)


def _is_for_route(_: Facts, call: Call, node: Obj) -> bool:
    return any(f"'{cidr}'" in call.what for cidr in texts(node, "spec", "podCIDRs"))


def _is_for_new_node(facts: Facts, _: Call, node: Obj) -> bool:
    return facts.runs(NODE.canonical) and is_new(node)


_CONCERN: Mapping[str, tuple[str, Callable[[Facts, Call, Obj], bool]]] = {
    "cloud balancers": ("services", _is_for_service),
    "cloud routes": ("nodes", _is_for_route),
    "cloud instances": ("nodes", _is_for_new_node),
}
"""By whom a call is made: what it is made for."""


def _says_so(thing: Obj) -> bool:
    said = conditions_of(thing)
    return (
        said.get(READY) in {"False", "Unknown"}
        or said.get(STUCK) == "True"
        or said.get("NetworkUnavailable") == "True"
    )


def _is_warned_of(facts: Facts, thing: Obj) -> bool:
    uid = text(thing, "metadata", "uid")
    return any(
        text(event, "involvedObject", "uid") == uid and text(event, "type") == "Warning"
        for event in facts.cluster.objects("events")
    )
