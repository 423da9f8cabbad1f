"""The manager on the cluster of a bed, installed as a user would do it."""

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tools.node_bed.bed import LOGS, Bed
from tools.node_bed.files import CLOUD, ENDPOINT

PILEUS = Path(sys.executable).with_name("pileus")
NAME = "pileus-cloud-controller-manager"
HERE = ("--namespace=kube-system",)
CHURN_SECONDS = 0.5
AT_ONCE = 30
"""Services of the churn at a time: the cluster has 250 addresses for Services."""
STORY = LOGS / "story.txt"
"""What was reported, with times."""
CHART = Path(__file__).parents[2] / "deploy" / "chart" / "pileus"


class Installation:
    """Installs the manager, and reports what it does on standard error."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.kubectl = bed.kubectl
        self.until = bed.until

    def report(self, text: str) -> None:
        """Prints a line, and adds it to the story of the run."""
        sys.stderr.write(f"e2e: {text}\n")
        sys.stderr.flush()
        with STORY.open("a") as story:
            story.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}\n")

    def get(self, *what: str) -> Any:
        return json.loads(self.kubectl("get", *what, "--output=json"))

    def pods(self, label: str, *where: str) -> list[dict[str, Any]]:
        return self.get("pods", f"--selector=app={label}", *where)["items"]

    def managers(self) -> list[dict[str, Any]]:
        """Returns the pods of the manager that are not being deleted."""
        found = self.pods(NAME, *HERE)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def apply(self, image: str, *flags: str) -> None:
        """Applies the output of `pileus manifests` with this image and waits for the rollout."""
        self.kubectl("apply", "--filename=-", stdin=with_cloud(self.manifests(image, *flags)))
        self.wait_for_rollout()

    def wait_for_rollout(self) -> None:
        self.kubectl("rollout", "status", f"deployment/{NAME}", *HERE, "--timeout=180s")

    def manifests(self, image: str, *flags: str) -> str:
        config = self.bed.folder / "cloud-config.yaml"
        config.write_text(f"endpoint: {ENDPOINT}\n")
        command = [PILEUS, "manifests", "--cloud-provider=local", f"--cloud-config={config}"]
        where = [f"--image={image}", f"--api-server=127.0.0.1:{self.bed.api_port}"]
        done = subprocess.run(
            [*command, *where, "--cluster-name=e2e", *flags],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def uninstall(self, image: str) -> None:
        """Deletes what `apply` has created, and waits until no pod of the manager runs."""
        self.kubectl("delete", "--filename=-", "--wait", stdin=self.manifests(image))
        self.bed.until(lambda: not self.pods(NAME, *HERE), "the manager has ended")

    def install_chart(self, image: str) -> None:
        """Installs the chart with helm, adds the socket of the cloud, and waits for the rollout."""
        repository, _, tag = image.rpartition(":")
        values = {
            "cloudProvider": "local",
            "cloudConfig": f"endpoint: {ENDPOINT}\n",
            "flags": {"cluster-name": "e2e"},
            "image": {"repository": repository, "tag": tag},
            "apiServer": {"host": "127.0.0.1", "port": int(self.bed.api_port)},
        }
        said = self._helm("install", "pileus", CHART, "--values=-", stdin=yaml.safe_dump(values))
        self.report(said.splitlines()[0])
        deployed = self.kubectl("get", "deployment", NAME, *HERE, "--output=yaml")
        self.kubectl("replace", "--filename=-", stdin=with_cloud(deployed))
        self.wait_for_rollout()

    def uninstall_chart(self) -> None:
        """Uninstalls the chart if it is installed, and waits until no pod of the manager runs."""
        if "pileus" in self._helm("list", "--short").split():
            self.report(self._helm("uninstall", "pileus", "--wait").strip())
            self.bed.until(lambda: not self.pods(NAME, *HERE), "the manager has ended")

    def _helm(self, *arguments: str | Path, stdin: str = "") -> str:
        access = [f"--kubeconfig={self.bed.cluster.admin}", *HERE]
        done = subprocess.run(
            [self.bed.prepared.helm, *arguments, *access],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def answer(self, address: str) -> str:
        """Returns what the Service at that address answers, or an empty text."""
        try:
            with urllib.request.urlopen(f"http://{address}/", timeout=5) as answer:
                return answer.read().decode().strip()
        except OSError:
            return ""

    @contextmanager
    def churn(self) -> Generator[list[str]]:
        """Creates Services, and deletes old ones, while the block lasts; yields all their names."""
        end, names = threading.Event(), list[str]()

        def create() -> None:
            while not end.wait(CHURN_SECONDS):
                name = f"churn-{len(names)}"
                self.kubectl("create", "service", "loadbalancer", name, "--tcp=80:8080")
                names.append(name)
                if len(names) > AT_ONCE:
                    self.kubectl("delete", "service", names[-1 - AT_ONCE], "--wait=false")

        thread = threading.Thread(target=create)
        thread.start()
        try:
            yield names
        finally:
            end.set()
            thread.join()

    def keep_logs(self, folder: Path) -> None:
        """Writes the state of the cluster and the logs of the manager into the folder."""
        state = self.kubectl("get", "nodes,pods,services,leases", "--all-namespaces", "-o", "wide")
        (folder / "cluster.txt").write_text(state)
        for pod in (*self.managers(), *self.pods("pileus-csi-node", *HERE)):
            name = pod["metadata"]["name"]
            (folder / f"{name}.log").write_text(self.log_of(name))

    def log_of(self, pod: str) -> str:
        """Returns the log of a pod of the namespace kube-system; why not, if its node is off."""
        try:
            return self.kubectl("logs", *HERE, pod)
        except AssertionError as error:
            return str(error)


def with_cloud(text: str) -> str:
    """Adds the socket of the local cloud, which is a folder of the node, to the manager's pods."""
    objects = list(yaml.safe_load_all(text))
    (deployment,) = [each for each in objects if each["kind"] == "Deployment"]
    deployment["metadata"].pop("resourceVersion", None)  # its status may change meanwhile
    found = deployment["spec"]["template"]["spec"]
    found["volumes"].append({"name": "cloud", "hostPath": {"path": str(CLOUD)}})
    (container,) = found["containers"]
    container["volumeMounts"].append({"name": "cloud", "mountPath": str(CLOUD)})
    return yaml.safe_dump_all(objects)
