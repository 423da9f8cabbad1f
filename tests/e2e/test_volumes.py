"""A volume and its pod on real nodes: the pod moves, the claim grows, a node is switched off.

The manager's volume controller takes the place of the CSI sidecars, and the driver on the nodes
registers itself. Each test continues where the last ended. Run by `make e2e`.
"""

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.node_bed.bed import LOGS, NODES, SPARE, Node
from tools.node_bed.prepare import BUSYBOX, MANAGERS

from tests.e2e.installation import HERE, Installation

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.xdist_group("e2e")]

HOME = NODES[0]
"""The node of the manager. The other one of the story is switched off."""
DRIVER = "local.csi.pileus.dev"
PLUGIN = "pileus-csi-node"
FLAGS = ("--csi", "--csi-without-sidecars", "--controllers=*,volume-controller")
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
ZONE = "topology.kubernetes.io/zone"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
REGISTERED = "Kubelet registered the driver"
WRITE = 'echo "$(hostname) on $NODE" >> /data/journal; sync; exec sleep 1000000'
GIB = 1 << 30
KUBELET_LOOKS = 300.0
"""Seconds. A kubelet notices a claim that has grown at its next look at the pod, in a minute."""
CLASS: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "story"},
    "provisioner": DRIVER,
    "parameters": {"csi.storage.k8s.io/fstype": "xfs"},
    "allowVolumeExpansion": True,
    "volumeBindingMode": "WaitForFirstConsumer",
}
"""XFS: it grows while mounted also where the kernel does not let even root grow ext4 so."""
CLAIM: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data"},
    "spec": {
        "storageClassName": "story",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
WRITER: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "writer"},
    "spec": {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": {"app": "writer"}},
        "template": {
            "metadata": {"labels": {"app": "writer"}},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "writer",
                        "image": BUSYBOX,
                        "command": ["/bin/sh", "-c", WRITE],
                        "env": [
                            {
                                "name": "NODE",
                                "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}},
                            }
                        ],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }
                ],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        },
    },
}


@dataclass
class Story:
    """The pod that writes, its claim, and the volume in the cloud."""

    installation: Installation

    def __post_init__(self) -> None:
        self.bed = self.installation.bed
        self.report = self.installation.report
        self.kubectl = self.installation.kubectl
        self.get = self.installation.get

    def writer(self, node: Node) -> str:
        """Waits until the one pod runs on this node; returns its name."""

        def running() -> str:
            pods = self.installation.pods("writer")
            alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
            found = [pod for pod in alive if is_ready(pod)]
            is_there = len(found) == 1 and found[0]["spec"]["nodeName"] == node.name
            return found[0]["metadata"]["name"] if is_there else ""

        return self.bed.until(running, f"the pod runs on {node.name}")

    def run(self, pod: str, *command: str) -> str:
        return self.kubectl("exec", pod, "--", *command)

    def answers(self, pod: str) -> bool:
        """Returns whether the kubelet of the pod runs commands in it."""
        try:
            self.run(pod, "echo")
        except AssertionError:
            return False
        return True

    def journal(self, pod: str) -> list[str]:
        return self.run(pod, "cat", "/data/journal").splitlines()

    def volume(self) -> dict[str, Any]:
        """Returns the volume of the claim, as the cloud has it."""
        (found,) = self.volumes()
        return found

    def volumes(self) -> list[dict[str, Any]]:
        return json.loads(self.bed.cloud("volumes", "list", "-o", "json"))

    def machine(self) -> str:
        """Returns the name of the machine to which the volume is attached; empty: to none."""
        names = {each.rpartition("/")[2]: name for name, each in self.bed.instances().items()}
        return names.get(self.volume().get("machine", ""), "")

    def homes(self) -> list[str]:
        """Returns the nodes on which the device of the volume is mounted."""
        device = self.volume().get("device", "")
        nodes = [*NODES, SPARE]
        mounted = {n: {line.split()[0] for line in self.bed.mounts(n)} for n in nodes}
        return [node.name for node in nodes if device and device in mounted[node]]

    def only_on(self, node: Node) -> None:
        """Asserts that the cloud and the kernel have the volume on this node alone."""
        assert self.machine() == node.name
        assert self.homes() == [node.name]

    def plugin(self, node: Node) -> dict[str, Any]:
        """Returns the pod of the driver on a node."""
        pods = self.installation.pods(PLUGIN, *HERE)
        (found,) = [pod for pod in pods if pod["spec"].get("nodeName") == node.name]
        return found

    def registrations(self, node: Node) -> int:
        """Returns how often the running driver was registered with the kubelet."""
        name = self.plugin(node)["metadata"]["name"]
        return self.installation.log_of(name).count(REGISTERED)

    def driver_process(self, node: Node) -> int:
        """Returns the process ID of the driver on a node."""
        (found,) = [
            int(folder.name)
            for folder in Path("/proc").glob("[0-9]*")
            if is_driver(folder) and mount_namespace_of(folder) in self.pods_of(node)
        ]
        return found

    def pods_of(self, node: Node) -> set[str]:
        """Returns the mount namespaces of the containers of a node, by its cgroup."""
        mine = f"/{self.bed.folder.name}/{node.name}/"
        found = (
            folder for folder in Path("/proc").glob("[0-9]*") if mine in read(folder / "cgroup")
        )
        return {mount_namespace_of(folder) for folder in found}

    def attachment_of(self, node: Node) -> dict[str, Any]:
        found = self.get("volumeattachments")["items"]
        return next((each for each in found if each["spec"]["nodeName"] == node.name), {})


def read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def is_driver(process: Path) -> bool:
    words = read(process / "cmdline").split("\0")
    return "csi" in words[:4] and "--mode=node" in words


def mount_namespace_of(process: Path) -> str:
    try:
        return os.readlink(process / "ns" / "mnt")
    except OSError:
        return ""


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True"


def restarts(pod: dict[str, Any]) -> int:
    return sum(each["restartCount"] for each in pod["status"]["containerStatuses"])


@pytest.fixture(scope="module")
def story(installation: Installation) -> Story:
    """Two nodes in one zone, and the manager with its volume controller."""
    bed = installation.bed
    installation.uninstall_chart()
    bed.start_node(SPARE)
    installation.report(f"{SPARE.name} runs in zone {bed.zone(SPARE)}, as {HOME.name} does")
    assert bed.zone(SPARE) == bed.zone(HOME)
    bed.until(lambda: len(installation.get("nodes")["items"]) >= 2, "the nodes register")
    installation.kubectl("label", "node", HOME.name, f"{CONTROL_PLANE}=", "--overwrite")
    installation.apply(MANAGERS[0], *FLAGS)

    def initialized() -> bool:
        nodes = installation.get("nodes")["items"]
        taints = {taint["key"] for node in nodes for taint in node["spec"].get("taints", [])}
        return UNINITIALIZED not in taints

    bed.until(initialized, "the nodes are initialized")
    return Story(installation)


def test_the_driver_registers_itself_with_every_kubelet(story: Story):
    story.kubectl("rollout", "status", f"daemonset/{PLUGIN}", *HERE, "--timeout=180s")
    machines = story.bed.instances()
    for node in (HOME, SPARE):

        def drivers(name: str = node.name) -> dict[str, str]:
            spec = story.get("csinode", name)["spec"]
            return {each["name"]: each["nodeID"] for each in spec.get("drivers") or []}

        found = story.bed.until(drivers, f"the kubelet of {node.name} has the driver")
        assert found == {DRIVER: machines[node.name].rpartition("/")[2]}
        (driver,) = story.get("csinode", node.name)["spec"]["drivers"]
        assert ZONE in driver["topologyKeys"], "it was registered only when its zone was known"
        assert len(story.plugin(node)["spec"]["containers"]) == 1, "no sidecar registers it"
        story.report(f"the kubelet of {node.name} registered {DRIVER}")


def test_a_pod_writes_to_a_claim(story: Story):
    others = [node.name for node in (*NODES, SPARE) if node is not HOME]
    known = {node["metadata"]["name"] for node in story.get("nodes")["items"]}
    story.kubectl("cordon", *(name for name in others if name in known))
    story.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all([CLASS, CLAIM, WRITER]))
    pod = story.writer(HOME)
    assert story.journal(pod) == [f"{pod} on {HOME.name}"]
    story.only_on(HOME)
    volume = story.volume()
    story.report(f"the claim got {volume['id']} ({volume['sizeGib']} GiB, {volume['device']})")
    story.report(f"{pod} wrote to it on {HOME.name}")


def test_the_pod_is_killed_and_reads_its_data_on_another_node(story: Story):
    before = story.writer(HOME)
    counts = {node: restarts(story.plugin(node)) for node in (HOME, SPARE)}
    story.kubectl("uncordon", SPARE.name)
    story.kubectl("cordon", HOME.name)
    story.kubectl("delete", "pod", before, "--wait=false")
    for node in (HOME, SPARE):
        os.kill(story.driver_process(node), signal.SIGKILL)
    story.report(f"{before} was killed, and at the same time the drivers on both nodes")
    after = story.writer(SPARE)

    def restarted() -> bool:
        return all(restarts(story.plugin(node)) == count + 1 for node, count in counts.items())

    story.bed.until(restarted, "both drivers were restarted")
    assert story.journal(after) == [f"{before} on {HOME.name}", f"{after} on {SPARE.name}"]
    story.only_on(SPARE)
    story.report(f"{after} runs on {SPARE.name} and has the line of {before}")


def test_the_driver_is_killed_and_the_pod_keeps_its_volume(story: Story):
    pod = story.writer(SPARE)
    before = restarts(story.plugin(SPARE))
    os.kill(story.driver_process(SPARE), signal.SIGKILL)

    def restarted() -> bool:
        plugin = story.plugin(SPARE)
        return restarts(plugin) == before + 1 and is_ready(plugin)

    story.bed.until(restarted, "the driver runs again")
    story.bed.until(lambda: story.registrations(SPARE), "the kubelet registers it again")
    story.run(pod, "sh", "-c", "echo still here >> /data/journal")
    assert story.journal(pod)[-1] == "still here"
    assert story.writer(SPARE) == pod
    story.report(f"the driver on {SPARE.name} was killed and registered again; {pod} kept writing")


def test_the_kubelet_is_restarted_and_registers_the_driver_again(story: Story):
    plugin, count = story.plugin(SPARE), story.registrations(SPARE)
    story.bed.stop_kubelet(SPARE)
    story.bed.start_kubelet(SPARE)
    story.bed.until(lambda: story.registrations(SPARE) > count, "the kubelet registers the driver")
    assert story.plugin(SPARE)["metadata"]["uid"] == plugin["metadata"]["uid"]
    assert restarts(story.plugin(SPARE)) == restarts(plugin)
    pod = story.writer(SPARE)
    story.bed.until(lambda: story.answers(pod), "the kubelet serves again")
    story.report(f"the kubelet of {SPARE.name} was restarted and registered the running driver")


def test_the_claim_grows_while_the_pod_writes(story: Story):
    pod = story.writer(SPARE)
    before = size_of(story.run(pod, "busybox", "df", "-k", "/data"))
    assert before < GIB
    grown = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    story.kubectl("patch", "pvc", "data", f"--patch={json.dumps(grown)}")

    def capacity() -> bool:
        return story.get("pvc", "data")["status"]["capacity"]["storage"] == "2Gi"

    story.bed.until(capacity, "the claim has 2 GiB", limit=KUBELET_LOOKS)
    after = size_of(story.run(pod, "busybox", "df", "-k", "/data"))
    assert 1.9 * GIB < after < 2 * GIB
    assert story.volume()["sizeGib"] == 2
    assert story.writer(SPARE) == pod
    assert restarts(story.get("pod", pod)) == 0
    sizes = f"from {before / GIB:.2f} to {after / GIB:.2f} GiB"
    story.report(f"volume and claim grew to 2 GiB, and the filesystem in {pod} {sizes}")


def test_the_node_stops_and_the_volume_moves_when_the_cloud_says_that_it_is_off(story: Story):
    bed = story.bed
    before = story.writer(SPARE)
    lines = story.journal(before)
    driver = story.plugin(SPARE)["metadata"]["name"]
    (LOGS / f"{driver}-before.log").write_text(story.installation.log_of(driver))
    story.kubectl("uncordon", HOME.name)
    bed.stop_node(SPARE)
    story.report(f"{SPARE.name} lost its power; the cloud does not know it yet")
    unready = ("wait", f"node/{SPARE.name}", "--for=condition=Ready=Unknown", "--timeout=120s")
    story.kubectl(*unready)
    story.kubectl("taint", "node", SPARE.name, f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute")

    def refusal() -> str:
        status = story.attachment_of(SPARE).get("status", {})
        return status.get("detachError", {}).get("message", "")

    why = bed.until(refusal, "the detachment is refused")
    assert "It is not detached by force" in why
    assert story.machine() == SPARE.name
    story.report(f"out-of-service, but still running for the cloud: {why}")

    bed.cloud("instances", "stop", SPARE.name)
    after = story.writer(HOME)
    assert story.journal(after) == [*lines, f"{after} on {HOME.name}"]
    story.only_on(HOME)
    reasons = {each["reason"] for each in story.get("events", "--all-namespaces")["items"]}
    assert "VolumeDetachedByForce" in reasons
    story.report(f"the machine is off: {after} runs on {HOME.name} and has all {len(lines)} lines")
    assert 1.9 * GIB < size_of(story.run(after, "busybox", "df", "-k", "/data")) < 2 * GIB


def test_the_volume_is_deleted_with_its_claim(story: Story):
    story.kubectl("delete", "deployment/writer", "pvc/data", "--wait=false")
    story.bed.until(lambda: not story.volumes(), "the volume is deleted")
    story.bed.until(lambda: not story.get("pv")["items"], "the PersistentVolume is deleted")
    assert story.get("volumeattachments")["items"] == []
    events = story.get("events")["items"]
    failed = {e["reason"] for e in events if e["reason"] in {"VolumeMissing", "VolumeShared"}}
    assert failed == set()
    story.report("the claim is deleted, and its volume with it")


def size_of(table: str) -> int:
    """Returns the bytes of a filesystem, from the output of df -k."""
    return int(table.splitlines()[1].split()[1]) * 1024
