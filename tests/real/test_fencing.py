"""A leader that was frozen, or told to stop amid its work, leaves nothing half done."""

import json
import signal
from typing import Any

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import (
    QUICK_LEASE,
    UNINITIALIZED,
    Lab,
    eventually,
    get,
    is_initialized,
    register,
    running,
)

LEASE = ("lease", "cloud-controller-manager", "--namespace=kube-system")
BURST = 300


def test_trap_10_a_leader_that_wakes_up_after_its_lease_writes_nothing_and_ends(
    clean: ControlPlane, lab: Lab
) -> None:
    with running(clean, lab, *QUICK_LEASE) as sleeper:
        sleeper.wait_leading()
        with running(clean, lab, *QUICK_LEASE) as stand_by:
            eventually("up", lambda: stand_by.get("/healthz") == (200, "ok"))
            lab.set(latency=1)
            register(clean, "in-hand")
            eventually("asked about", lambda: lab.calls)
            sleeper.process.send_signal(signal.SIGSTOP)
            # Only the sleeper has an answer about this node, and will want to write it.
            lab.set(hidden=["in-hand"])
            eventually("a new leader", stand_by.leads)
            sleeper.process.send_signal(signal.SIGCONT)

            assert sleeper.process.wait(30) == 1
            register(clean, "later")
            eventually("initialized", lambda: is_initialized(clean, "later"))
            assert not is_initialized(clean, "in-hand")
            assert not addresses(clean)["in-hand"]

            lab.set()
            eventually("initialized", lambda: is_initialized(clean, "in-hand"))
    assert "leaderelection lost" in sleeper.log.read_text()


def test_a_burst_that_is_interrupted_leaves_nodes_whole_or_untouched(
    clean: ControlPlane, lab: Lab
) -> None:
    register(clean, *(f"node-{number:03}" for number in range(BURST)))
    slowly = ("--kube-api-qps=40", "--kube-api-burst=10")

    with running(clean, lab, *slowly) as manager:
        done = "node_controller_initial_node_sync_delay_seconds_count"
        eventually("some initialized", lambda: manager.metric(done) >= 5)
        manager.process.send_signal(signal.SIGTERM)
        assert manager.process.wait(15) == 0

    holder = json.loads(clean.kubectl("get", *LEASE, "--output=json"))["spec"]["holderIdentity"]
    assert holder == ""
    initialized = 0
    for node in nodes(clean):
        tainted = is_tainted(node)
        initialized += not tainted
        if not tainted:
            assert node["status"]["addresses"]
            assert node["spec"]["providerID"] == f"lab://{node['metadata']['name']}"
            assert "topology.kubernetes.io/zone" in node["metadata"]["labels"]
    assert 5 <= initialized < BURST, "the signal came in the middle"

    with running(clean, lab):
        eventually("the rest", lambda: all(addresses(clean).values()), limit=120)
        eventually("untainted", lambda: not any(map(is_tainted, nodes(clean))))


def nodes(cluster: ControlPlane) -> list[dict[str, Any]]:
    return get(cluster, "/api/v1/nodes")["items"]


def addresses(cluster: ControlPlane) -> dict[str, list[Any]]:
    return {n["metadata"]["name"]: n["status"].get("addresses", []) for n in nodes(cluster)}


def is_tainted(node: dict[str, Any]) -> bool:
    return UNINITIALIZED in {taint["key"] for taint in node["spec"].get("taints", [])}
