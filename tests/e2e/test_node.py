"""The manager on real nodes, as a pod from its own image. Each test continues where the last ended.

Run by `make e2e`: see CONTRIBUTING.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from tools.node_bed.bed import NODES
from tools.node_bed.prepare import BUSYBOX, MANAGERS

from tests.e2e.installation import HERE, NAME, Installation
from tests.e2e.writers import outside_of_terms, read, terms, without_overlap, writes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.xdist_group("e2e")]

UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
BLUE, GREEN = MANAGERS
SERVE = "hostname > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"
USER = 65532
SECCOMP_FILTER = 2


def taints(node: dict[str, Any]) -> set[str]:
    return {taint["key"] for taint in node["spec"].get("taints", [])}


def test_nodes_register_with_the_taint_and_a_workload_stays_pending(installation: Installation):
    bed = installation.bed

    def only_uninitialized() -> bool:
        return [taints(n) for n in installation.get("nodes")["items"]] == [{UNINITIALIZED}] * 2

    bed.until(only_uninitialized, "two nodes register and lack nothing but initialization")
    installation.kubectl("label", "node", NODES[0].name, f"{CONTROL_PLANE}=")
    create = ("create", "deployment", "web", f"--image={BUSYBOX}", "--replicas=2", "--port=8080")
    installation.kubectl(*create, "--", "/bin/sh", "-c", SERVE)

    def reasons() -> list[str]:
        pods = installation.pods("web")
        conditions = [each for pod in pods for each in pod["status"].get("conditions", [])]
        return [each.get("message", "") for each in conditions if each["type"] == "PodScheduled"]

    bed.until(lambda: len(reasons()) == 2, "the scheduler has seen both pods")
    assert {pod["status"]["phase"] for pod in installation.pods("web")} == {"Pending"}
    assert all("untolerated taint" in reason for reason in reasons())
    installation.report(f"web is Pending: {reasons()[0]}")


def test_the_manager_runs_from_its_own_image_on_a_tainted_node(installation: Installation):
    installation.apply(BLUE)
    pods = installation.managers()
    assert len(pods) == 2
    for pod in pods:
        assert pod["spec"]["nodeName"] == NODES[0].name
        assert pod["spec"]["containers"][0]["image"] == BLUE
        (status,) = pod["status"]["containerStatuses"]
        assert (status["ready"], status["restartCount"]) == (True, 0)
    running = manager_processes()
    assert len(running) == 2
    for process in running:
        assert process["Uid"].split() == [str(USER)] * 4
        assert int(process["CapEff"], 16) == 0
        assert (int(process["Seccomp"]), int(process["NoNewPrivs"])) == (SECCOMP_FILTER, 1)
    installation.report(f"two replicas run as user {USER} without capabilities, with seccomp")


def test_nodes_are_initialized_and_the_workload_runs(installation: Installation):
    bed = installation.bed

    def initialized() -> bool:
        return not any(UNINITIALIZED in taints(n) for n in installation.get("nodes")["items"])

    bed.until(initialized, "the taint is removed")
    machines = bed.instances()
    for node in installation.get("nodes")["items"]:
        name = node["metadata"]["name"]
        assert node["spec"]["providerID"] == machines[name]
        assert node["metadata"]["labels"]["topology.kubernetes.io/region"] == "local-1"
    installation.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    assert {pod["status"]["phase"] for pod in installation.pods("web")} == {"Running"}
    installation.report("the taint is removed and web runs")


def test_a_service_answers_from_the_pods_through_the_balancer_of_the_cloud(
    installation: Installation,
):
    bed = installation.bed
    bed.start_proxy()
    expose = ("--type=LoadBalancer", "--port=80", "--target-port=8080")
    installation.kubectl("expose", "deployment", "web", *expose)

    def address() -> str:
        status = installation.get("service", "web")["status"]["loadBalancer"]
        return next((each["ip"] for each in status.get("ingress", [])), "")

    found = bed.until(address, "the Service has an address")
    assert found.startswith("127.78.")
    assert "web" in bed.cloud("balancers", "list")
    names = {pod["metadata"]["name"] for pod in installation.pods("web")}
    bed.until(lambda: installation.answer(found) in names, "a pod answers")
    answers = {installation.answer(found) for _ in range(20)}
    assert answers <= names
    installation.report(f"http://{found}/ answers from {', '.join(sorted(answers))}")


def test_an_upgrade_and_a_downgrade_never_have_two_writers(installation: Installation):
    bed = installation.bed
    with installation.churn() as names:
        for image in (GREEN, BLUE):
            before = len(names)
            bed.until(lambda goal=before + 5: len(names) > goal, "Services are created")
            installation.apply(image)
            installation.report(f"rolled out {image}; {len(names)} Services were created meanwhile")
            assert {p["spec"]["containers"][0]["image"] for p in installation.managers()} == {image}
        before = len(names)
        bed.until(lambda: len(names) > before + 5, "Services are created")

    def served() -> bool:
        ours = [each for each in installation.get("services")["items"] if is_churn(each)]
        return all(each["status"]["loadBalancer"].get("ingress") for each in ours)

    bed.until(served, "every Service has an address")
    events = read(bed.audit_log.read_text().splitlines(), NAME)
    leaders, all_writes = terms(events), writes(events)
    for term in leaders:
        count = sum(term.covers(each) for each in all_writes)
        installation.report(f"leader {term.pod}: {count} writes")
    assert len({term.pod for term in leaders}) >= 3
    assert len(all_writes) >= 2 * len(names)  # finalizer and address of each Service
    assert outside_of_terms(events) == []
    assert without_overlap(events) == []
    installation.report(f"{len(all_writes)} writes, each by the leader of its time")


def test_every_balancer_of_a_deleted_service_is_deleted(installation: Installation):
    bed = installation.bed
    churned = [s["metadata"]["name"] for s in installation.get("services")["items"] if is_churn(s)]
    installation.kubectl("delete", "service", *churned)
    listed = bed.cloud("balancers", "list")
    assert "default-web" in listed
    assert "churn-" not in listed
    installation.report(f"{len(churned)} Services and their balancers are deleted")


def test_the_node_of_a_deleted_machine_is_deleted(installation: Installation):
    bed = installation.bed
    lost = NODES[1]
    bed.stop_node(lost)
    bed.cloud("instances", "delete", lost.name)
    installation.report(f"{lost.name} is switched off and its machine deleted")

    def nodes() -> list[str]:
        return [node["metadata"]["name"] for node in installation.get("nodes")["items"]]

    bed.until(lambda: nodes() == [NODES[0].name], "the node is deleted")
    bed.until(lambda: lost.name not in bed.cloud("balancers", "list"), "no balancer has it")
    installation.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    assert {pod["spec"]["nodeName"] for pod in installation.pods("web")} == {NODES[0].name}
    installation.report(f"the node is deleted; web runs on {NODES[0].name}")


def test_the_manager_did_nothing_but_by_its_leader_and_without_restarts(
    installation: Installation,
):
    events = read(installation.bed.audit_log.read_text().splitlines(), NAME)
    assert outside_of_terms(events) == []
    assert [w.what for w in writes(events) if w.what.startswith("delete nodes")] == [
        f"delete nodes {NODES[1].name}"
    ]
    for pod in installation.managers():
        assert [each["restartCount"] for each in pod["status"]["containerStatuses"]] == [0]
    deployment = installation.get("deployment", NAME, *HERE)
    assert deployment["status"]["readyReplicas"] == 2


def test_the_chart_installs_the_same_manager(installation: Installation):
    bed = installation.bed
    before = installation.get("service", "web")["status"]["loadBalancer"]
    installation.uninstall(BLUE)
    installation.install_chart(GREEN)
    installation.kubectl("create", "service", "loadbalancer", "charted", "--tcp=80:8080")

    def address() -> str:
        status = installation.get("service", "charted")["status"]["loadBalancer"]
        return next((each["ip"] for each in status.get("ingress", [])), "")

    found = bed.until(address, "a new Service has an address")
    assert installation.get("service", "web")["status"]["loadBalancer"] == before
    web = before["ingress"][0]["ip"]
    assert installation.answer(web) in {p["metadata"]["name"] for p in installation.pods("web")}
    events = read(bed.audit_log.read_text().splitlines(), NAME)
    assert outside_of_terms(events) == []
    installation.report(f"installed from the chart; a new Service has {found}, web kept {web}")


def is_churn(service: dict[str, Any]) -> bool:
    return service["metadata"]["name"].startswith("churn-")


def manager_processes() -> list[dict[str, str]]:
    """Returns the status of each process of the manager's containers."""
    found: list[dict[str, str]] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
            status = (folder / "status").read_text()
        except OSError:
            continue
        if any(part.endswith(b"bin/cloud-controller-manager") for part in command[:2]):
            found.append(dict(re.findall(r"^(\w+):\t(.*)$", status, re.MULTILINE)))
    return found
