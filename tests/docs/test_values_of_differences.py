"""The values that `docs/explanation/differences.md` states are those of the code."""

import pytest
from tools.differences_tests import PAGE

from pileus.cloud import abilities, balancer
from pileus.cloud.provider_context import ENTERING
from pileus.cloud.threads import LIMIT
from pileus.controllers.ipam import controller as ipam
from pileus.controllers.lifecycle import reconciler as lifecycle
from pileus.controllers.lifecycle.settings import WORKERS as NODE_WRITERS
from pileus.controllers.lifecycle.settings import Rules
from pileus.controllers.node import controller as node
from pileus.controllers.route import controller as route
from pileus.controllers.route import plan as route_plan
from pileus.controllers.route import reconciler, record
from pileus.controllers.service import controller as service
from pileus.controllers.service import events, members, plan, steps
from pileus.controllers.service.settings import ServiceSettings
from pileus.http.server import HANDSHAKE, HEADERS
from pileus.kube.client import DEAD_AFTER
from pileus.kube.config.credentials import PAUSE
from pileus.kube.config.exec import DEADLINE, OUTPUT_LIMIT
from pileus.kube.config.tls import CHECK_EVERY
from pileus.kube.errors import LONGEST_RETRY_AFTER
from pileus.kube.exchange import Window
from pileus.kube.settings import ZERO_BURST, ZERO_QPS
from pileus.objects.cluster_nodes import TRIES
from pileus.objects.lookup import CHUNK
from pileus.runtime import supervision
from pileus.runtime.backoff import JITTER
from pileus.runtime.controller import DEFAULT_LIMITS
from pileus.runtime.events import LONGEST_MESSAGE
from pileus.runtime.failure import SHORTEST_HINT

CALLS = abilities.Limits()
DEADLINES = abilities.Deadlines()
GUARD = Rules()
VALUES = [
    ("`--kube-api-qps=0`", f"means {ZERO_QPS:g} a second, `--kube-api-burst=0` means {ZERO_BURST}"),
    (
        "20 requests a second, bursts of 30",
        f"{Window().limit} concurrent requests, up to {Window().most} while they succeed",
    ),
    ("SIGTERM kills", f"finish ({DEFAULT_LIMITS.grace:g} s)"),
    ("a silent connection", f"without a byte for {DEAD_AFTER:g} s"),
    ("a `Retry-After` is obeyed", f"at most {LONGEST_RETRY_AFTER:g} s"),
    ("kubeconfig: certificate, key", f"every {CHECK_EVERY.seconds} s"),
    (
        "kubeconfig: an `exec` plugin has no limits",
        f"{DEADLINE:g} s and {OUTPUT_LIMIT >> 20} MiB",
    ),
    ("after a 401", f"is {PAUSE.seconds} s old"),
    ("a TLS handshake", f"| {HANDSHAKE} s; the headers of a request have {HEADERS:g} s in both"),
    ("one worker, one cloud call", f"up to {CHUNK} nodes; up to {node.WORKERS} passes"),
    (
        "failures are retried after 5 ms",
        (
            f"after {node.RETRIES.first:g} s, doubled up to {node.RETRIES.last:g} s; a cloud's "
            f"Retry-After takes precedence, with at least {SHORTEST_HINT:g} s"
        ),
    ),
    ("20 tries after conflicts", f"{TRIES} tries"),
    ("nothing is repaired", f"every {ServiceSettings().drift_period / 60:g} minutes"),
    (
        "the finalizer goes as soon",
        (
            f"at least {plan.LAST_CHECK:g} s after the cloud accepted the deletion; without such a "
            f"deletion, after two that find nothing, {plan.SECOND_CHECK:g} s apart"
        ),
    ),
    ("balancers are emptied", f"fresh list, {steps.SECOND_CHECK_OF_NODES:g} s later"),
    ("every failed sync", f"after {events.PATIENCE:g} s if it may be temporary"),
    (
        "a Service may have any number",
        (
            f"at most {balancer.MOST_LISTENERS:,} ports, {balancer.MOST_RANGES:,} source ranges, "
            f"{balancer.MOST_PAIRS:,} source ranges of all ports together and, with more than "
            f"{balancer.FEW_LISTENERS} ports, {balancer.MOST_PAIRS:,} members"
        ),
    ),
    (
        "each change of the nodes",
        (
            f"{members.QUIET_ALONE:g} to {members.QUIET_AFTER_REMOVAL:g} s after the last one, "
            f"and at most {members.LONGEST_BOUND:g} s after the first"
        ),
    ),
    (
        "a load balancer is created while",
        f"waits up to {members.LONGEST_NEW_NODES:g} s",
    ),
    ("the first answer", f"two that agree, {GUARD.grace:g} s apart"),
    ("a new node that the cloud", f"for {GUARD.unidentified_grace / 60:g} minutes"),
    ("two calls for each node and round", f"up to {CHUNK} nodes a call"),
    ("one worker | 100", f"| {NODE_WRITERS} nodes are written at a time"),
    ("a failed deletion", f"after {lifecycle.PAUSES.first:g} s, doubled up to "),
    ("watch-based rounds", f"up to {route.BURST} in {route.WINDOW:g} s"),
    (
        "watch-based: a route",
        f"after {route.RETRIES.first:g} s, doubled up to {route.RETRIES.last:g} s",
    ),
    ("a tainted node without", f"or {record.PATIENCE + reconciler.GATHER:g} s after"),
    ("a created route that the next", f"{record.SETTLING + reconciler.GATHER:g} s after its"),
    ("a list of routes", f"again after {reconciler.PAUSE:g} s"),
    ("one call per route", f"up to {route_plan.CHUNK} routes a call"),
    ("30 workers", f"| {ipam.WORKERS} |"),
    ("messages of any length", f"cut at {LONGEST_MESSAGE} characters"),
    ("a provider that panics", f"plus {DEADLINES.per_item:g} s for each further node"),
    (
        "a panic in a goroutine",
        (
            f"restart after {supervision.DELAYS.first:g} s, then "
            f"{supervision.DELAYS.delay(2):g}, up to {supervision.DELAYS.last / 60:g} min"
        ),
    ),
    ("a provider that hangs", f"it has {ENTERING:g} s for each"),
    (
        "calls are not limited",
        (
            f"{CALLS.per_second:g} a second, bursts of {CALLS.burst}, {CALLS.at_once} at a time to "
            f"begin with; up to {CALLS.growth:g} times as many"
        ),
    ),
    ("ported providers: calls come from", f"in threads, {LIMIT} at a time"),
]
"""The beginning of a row, and what it says."""


IN_WORDS = [
    ("backoffs are exact", "up to a tenth longer", JITTER == 1 / 10),
    ("a provider that panics", "a lookup has a minute", DEADLINES.read == 60),
    ("any number of nodes is deleted", "at most a fifth", GUARD.fraction == 1 / 5),
    ("any number of nodes is deleted", "within ten minutes", GUARD.window == 600),
    ("a failed deletion", "up to 5 minutes", lifecycle.PAUSES.last == 300),
    ("a list of routes", "less than half of the routes", reconciler.SHRUNK == 2),
    ("one worker | up", "up to a thousand passes", service.WORKERS == 1000),
]
"""As above, and whether that is true."""


def row_of(beginning: str) -> str:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    (found,) = (line for line in lines if line.startswith(f"| {beginning}"))
    return found


@pytest.mark.parametrize(("row", "said"), VALUES, ids=[row for row, _ in VALUES])
def test_a_row_states_the_value_of_the_code(row: str, said: str):
    assert said in row_of(row)


@pytest.mark.parametrize(("row", "said", "is_so"), IN_WORDS)
def test_a_row_states_the_value_of_the_code_in_words(row: str, said: str, is_so: bool):
    assert said in row_of(row)
    assert is_so
