"""SSH keys from a ConfigMap to the local cloud, with exactly the rights of `pileus manifests`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.real.access import ACCOUNT, GROUPS, granted
from tests.real.local_cloud import LocalCloud
from tests.real.manager import Lab, eventually, is_initialized, is_told, register, running
from tests.unit.controllers.ssh_keys.keys import key, public_key

FLAGS = (
    "--ssh-keys-from=configmap:kube-system/ssh-keys",
    "--use-service-account-credentials",
)


def fingerprints(cloud: LocalCloud) -> set[str]:
    return {line.split()[-1] for line in cloud.pileus("keys", "list").splitlines()[1:]}


@pytest.fixture
def rights(clean: ControlPlane) -> Iterator[Path]:
    with granted(clean, *FLAGS):
        yield clean.user(ACCOUNT, groups=GROUPS)
    clean.kubectl("delete", "configmap", "ssh-keys", "-n", "kube-system", "--ignore-not-found")


def publish(cluster: ControlPlane, **users: str) -> None:
    metadata = {"name": "ssh-keys", "namespace": "kube-system"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": users}
    cluster.kubectl("apply", "--filename=-", stdin=json.dumps(body))


def test_keys_follow_the_config_map(
    clean: ControlPlane, tmp_path: Path, cloud: LocalCloud, rights: Path
) -> None:
    cloud.pileus("instances", "create", "one")
    cloud.pileus("keys", "add", "root", f"{public_key('by-hand')} me@home")
    by_hand = fingerprints(cloud)
    register(clean, "one")
    publish(clean, ops=public_key("ann"))
    flags = (*cloud.flags, *FLAGS)

    with running(clean, Lab(tmp_path / "lab"), *flags, kubeconfig=rights) as manager:
        eventually("initialized", lambda: is_initialized(clean, "one"))
        ann, bob = {key("ops", "ann").fingerprint}, {key("ops", "bob").fingerprint}
        eventually("added", lambda: fingerprints(cloud) == by_hand | ann)
        eventually("told", lambda: is_told(clean, "SshKeysAdded"))
        publish(clean, ops=public_key("bob"))
        eventually("exchanged", lambda: fingerprints(cloud) == by_hand | bob)
        clean.kubectl("delete", "configmap", "ssh-keys", "--namespace=kube-system")
        events = ("get", "events", "--namespace=kube-system")
        eventually("missed", lambda: "SshKeysUnreadable" in clean.kubectl(*events))

        assert fingerprints(cloud) == by_hand | bob
        assert manager.metric("rest_client_requests_total", code="403") == 0
