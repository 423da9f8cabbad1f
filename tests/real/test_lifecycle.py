"""Nodes whose machines are gone or stopped, on a real control plane."""

import shlex
from pathlib import Path

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import (
    Lab,
    Manager,
    events,
    eventually,
    get,
    is_initialized,
    node,
    register,
    running,
    say_ready,
)

TEN = tuple(f"node-{number}" for number in range(10))
QUICK = ("--node-deletion-grace=3s", "--node-monitor-period=1s")
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
DOCS = Path(__file__).resolve().parents[2] / "docs"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def names(cluster: ControlPlane) -> set[str]:
    return {each["metadata"]["name"] for each in get(cluster, "/api/v1/nodes")["items"]}


def taints(cluster: ControlPlane, name: str) -> set[str]:
    return {taint["key"] for taint in node(cluster, name)["spec"].get("taints", [])}


def reasons(cluster: ControlPlane, name: str) -> dict[str, str]:
    told = [each for each in events(cluster) if each["involvedObject"]["name"] == name]
    return {each["reason"]: each["message"] for each in told}


def why_kept(cluster: ControlPlane, name: str) -> str:
    conditions = node(cluster, name)["status"].get("conditions", [])
    ours = [each for each in conditions if each["type"] == "CloudProviderInstanceGone"]
    return ours[0]["reason"] if ours and ours[0]["status"] == "True" else ""


def initialized(cluster: ControlPlane, *nodes: str) -> None:
    register(cluster, *nodes)
    eventually("initialized", lambda: all(is_initialized(cluster, name) for name in nodes))
    say_ready(cluster, "True", *nodes)


def as_the_guide_says() -> list[str]:
    """The guide's command that lists the nodes whose machines are missing."""
    text = (DOCS / "guides" / "when-a-node-is-not-deleted.md").read_text()
    line = next(each for each in text.splitlines() if each.startswith("    kubectl get nodes"))
    return shlex.split(line)[1:]


def deletions(manager: Manager) -> float:
    return manager.metric("rest_client_requests_total", method="DELETE")


def test_a_lost_node_is_deleted_and_a_cluster_that_is_denied_is_not(
    clean: ControlPlane, lab: Lab
) -> None:
    with running(clean, lab, *QUICK) as manager:
        initialized(clean, *TEN)

        lab.set(gone=[TEN[0]])
        say_ready(clean, "Unknown", TEN[0])
        eventually("deleted", lambda: names(clean) == set(TEN[1:]))
        eventually("told", lambda: "DeletingNode" in reasons(clean, TEN[0]))
        assert deletions(manager) == 1

        lab.set(gone=list(TEN))
        say_ready(clean, "Unknown", *TEN[1:])
        eventually(
            "all held",
            lambda: all(why_kept(clean, name) == "TooManyNodesGone" for name in TEN[1:]),
        )
        assert manager.metric("pileus_node_breaker_open", action="delete") == 1
        assert names(clean) == set(TEN[1:])
        assert set(clean.kubectl(*as_the_guide_says()).split()) == set(TEN[1:])

        clean.kubectl("annotate", "node", TEN[1], "pileus.dev/deletion=approved")
        eventually("the approved one deleted", lambda: names(clean) == set(TEN[2:]))

        lab.set()
        eventually("found again", lambda: not why_kept(clean, TEN[2]))
        assert manager.metric("pileus_node_breaker_open", action="delete") == 0
        assert deletions(manager) == 2
    assert "kubectl annotate node NAME pileus.dev/deletion=approved" in manager.log.read_text()


def test_a_stopped_machine_taints_its_node_and_takes_it_out_of_service(
    clean: ControlPlane, lab: Lab
) -> None:
    with running(clean, lab, *QUICK, "--node-out-of-service-taint"):
        initialized(clean, *TEN[:3])

        lab.set(states={TEN[0]: "stopped"})
        say_ready(clean, "Unknown", TEN[0])
        eventually("shut down", lambda: SHUTDOWN in taints(clean, TEN[0]))
        eventually("out of service", lambda: OUT_OF_SERVICE in taints(clean, TEN[0]))

        lab.set()
        eventually("in service", lambda: OUT_OF_SERVICE not in taints(clean, TEN[0]))
        assert SHUTDOWN in taints(clean, TEN[0])
        say_ready(clean, "True", TEN[0])
        eventually("not shut down", lambda: SHUTDOWN not in taints(clean, TEN[0]))


def test_defect_8_a_new_node_that_the_cloud_does_not_know_is_kept_until_a_human_says_so(
    clean: ControlPlane, lab: Lab
) -> None:
    lab.set(gone=["new"])

    with running(clean, lab, *QUICK) as manager:
        register(clean, "new")
        eventually("kept and told", lambda: why_kept(clean, "new") == "NeverInitialized")
        assert deletions(manager) == 0

        clean.kubectl("annotate", "node", "new", "pileus.dev/deletion=approved")
        eventually("deleted", lambda: "new" not in names(clean))
