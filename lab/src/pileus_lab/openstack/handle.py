"""One request to the modelled OpenStack: finds its handler, and lets time pass before it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from pileus.providers.openstack.api import Call, Service
from pileus_lab.openstack import (
    cinder,
    neutron,
    neutron_security,
    nova,
    octavia,
    octavia_parts,
    octavia_pending,
)
from pileus_lab.openstack.by_identity import by_identity
from pileus_lab.openstack.state import Due, Fault, Handler, Moment, Reply, Request, State

ROUTES: Mapping[Service, Mapping[tuple[str, str], Handler]] = {
    Service.COMPUTE: nova.ROUTES,
    Service.NETWORK: {**neutron.ROUTES, **neutron_security.ROUTES},
    Service.LOAD_BALANCER: {**octavia.ROUTES, **octavia_parts.ROUTES},
    Service.BLOCK_STORAGE: cinder.ROUTES,
}
DONE: Mapping[str, Callable[[State, Due], State]] = {
    "loadbalancers": octavia_pending.done,
    "failovers": octavia_pending.failed_over,
    "servers": nova.started,
    "volumes": cinder.done,
    "snapshots": cinder.done,
}


class Match(NamedTuple):
    pattern: str
    """The path with `{id}` in place of IDs."""
    ids: tuple[str, ...]


def handle(state: State, call: Call, moment: Moment) -> tuple[State, Reply]:
    """Returns the state after the request, and the answer. Pure except for `moment.chance`."""
    state = settled(state, moment.now)
    match = route_of(call.service, call.method, call.path)
    if match is None:
        return state, Reply(404, {"message": f"no route {call.method} {call.path}"})
    handler = ROUTES[call.service][call.method, match.pattern]
    try:
        return handler(state, Request(call, moment, match.ids))
    except Fault as fault:
        return state, fault.reply


def settled(state: State, now: float) -> State:
    """Returns the state after everything that was due by now."""
    while state.due and state.due[0].at <= now:
        state = _after_first_due(state)
    return state


@by_identity
def _after_first_due(state: State) -> State:
    due, rest = state.due[0], state.due[1:]
    return DONE[due.collection](replace(state, due=rest), due)


@lru_cache(maxsize=4096)
def route_of(service: Service, method: str, path: str) -> Match | None:
    """Returns the pattern of a path, with the fewest variable parts; None if there is none."""
    parts = path.split("/")
    matches = [
        Match(pattern, ids)
        for known, pattern in ROUTES.get(service, {})
        if known == method and (ids := _ids(pattern.split("/"), parts)) is not None
    ]
    return min(matches, key=lambda one: len(one.ids), default=None)


def _ids(pattern: list[str], parts: list[str]) -> tuple[str, ...] | None:
    if len(pattern) != len(parts):
        return None
    pairs = list(zip(pattern, parts, strict=True))
    if any(name != part for name, part in pairs if not name.startswith("{")):
        return None
    return tuple(part for name, part in pairs if name.startswith("{"))
