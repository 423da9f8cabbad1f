"""SSH keys from a ConfigMap to the local cloud, with exactly the rights of `deploy`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import Lab, eventually, is_initialized, register, running
from tests.real.test_rights import ACCOUNT, DEPLOY, GROUPS
from tests.unit.controllers.ssh_keys.keys import key, public_key

PILEUS = Path(sys.executable).parent / "pileus"
FILES = ("rbac.yaml", "rbac-one-identity.yaml", "rbac-own-identities.yaml", "ssh-keys.yaml")


class Cloud:
    """The local cloud in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.endpoint = folder / "cloud.sock"
        self.config = folder / "local.yaml"
        self.config.write_text(f"endpoint: {self.endpoint}\n")
        command = [PILEUS, "local", "serve", "--network=none", f"--endpoint={self.endpoint}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        eventually("the cloud", self.endpoint.exists)

    def __call__(self, *words: str) -> str:
        command = [PILEUS, "local", *words, f"--endpoint={self.endpoint}"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def fingerprints(self) -> set[str]:
        return {line.split()[-1] for line in self("keys", "list").splitlines()[1:]}


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.process.terminate()
    cloud.process.wait()


@pytest.fixture
def rights(clean: ControlPlane) -> Iterator[Path]:
    files = [f"--filename={DEPLOY / name}" for name in FILES]
    clean.kubectl("apply", *files)
    yield clean.user(ACCOUNT, groups=GROUPS)
    clean.kubectl("delete", *files)
    clean.kubectl("delete", "configmap", "ssh-keys", "-n", "kube-system", "--ignore-not-found")


def publish(cluster: ControlPlane, **users: str) -> None:
    metadata = {"name": "ssh-keys", "namespace": "kube-system"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": users}
    cluster.kubectl("apply", "--filename=-", stdin=json.dumps(body))


def test_keys_follow_the_config_map(
    clean: ControlPlane, tmp_path: Path, cloud: Cloud, rights: Path
) -> None:
    cloud("instances", "create", "one")
    cloud("keys", "add", "root", f"{public_key('by-hand')} me@home")
    by_hand = cloud.fingerprints()
    register(clean, "one")
    publish(clean, ops=public_key("ann"))
    flags = (
        "--cloud-provider=local",
        f"--cloud-config={cloud.config}",
        "--ssh-keys-from=configmap:kube-system/ssh-keys",
        "--use-service-account-credentials",
    )

    with running(clean, Lab(tmp_path / "lab"), *flags, kubeconfig=rights) as manager:
        eventually("initialized", lambda: is_initialized(clean, "one"))
        ann, bob = {key("ops", "ann").fingerprint}, {key("ops", "bob").fingerprint}
        eventually("added", lambda: cloud.fingerprints() == by_hand | ann)
        eventually("told", lambda: "SshKeysAdded" in clean.kubectl("get", "events"))
        publish(clean, ops=public_key("bob"))
        eventually("exchanged", lambda: cloud.fingerprints() == by_hand | bob)
        clean.kubectl("delete", "configmap", "ssh-keys", "--namespace=kube-system")
        events = ("get", "events", "--namespace=kube-system")
        eventually("missed", lambda: "SshKeysUnreadable" in clean.kubectl(*events))

        assert cloud.fingerprints() == by_hand | bob
        assert manager.metric("rest_client_requests_total", code="403") == 0
