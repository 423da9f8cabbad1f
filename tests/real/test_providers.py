"""Providers of other distributions in the whole manager: the examples, and own controllers."""

import json
import signal
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.examples import EXAMPLES, PROVIDERS, install_examples
from tests.real.manager import (
    QUICK_LEASE,
    Lab,
    eventually,
    is_initialized,
    node,
    register,
    running,
)

LEASE = ("lease", "cloud-controller-manager", "--namespace=kube-system")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_examples(tmp_path_factory.mktemp("site"))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_example_providers_initialize_nodes(
    clean: ControlPlane, lab: Lab, installed: Path, tmp_path: Path, provider: str
) -> None:
    inventory = EXAMPLES / "machines.yaml"
    shelf = tmp_path / "shelf.yaml"
    shelf.write_text(json.dumps({"inventory": str(inventory)}))
    config = shelf if provider == "shelf" else inventory
    register(clean, "node-1", "stranger")

    flags = (f"--cloud-provider={provider}", f"--cloud-config={config}")
    with running(clean, lab, *flags, providers=installed):
        eventually("initialized", lambda: is_initialized(clean, "node-1"))

    seen = node(clean, "node-1")
    assert seen["spec"]["providerID"] == f"{provider}://4c4c4544-0001"
    assert seen["metadata"]["labels"]["topology.kubernetes.io/zone"] == "cellar"
    assert not is_initialized(clean, "stranger")


def test_an_own_controller_runs_while_its_process_leads_and_has_ended_when_it_stops(
    clean: ControlPlane, lab: Lab
) -> None:
    with running(clean, lab, *QUICK_LEASE) as leader:
        eventually("started", lambda: lab.own_work == ["started"])
        with running(clean, lab, *QUICK_LEASE) as stand_by:
            eventually("up", lambda: stand_by.get("/healthz") == (200, "ok"))
            assert lab.own_work == ["started"], "a stand-by starts none"

            assert leader.end(signal.SIGTERM) == 0
            eventually("handed over", lambda: lab.own_work == ["started", "stopped", "started"])

            thief = json.dumps({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600}})
            clean.kubectl("patch", *LEASE, "--type=merge", f"--patch={thief}")
            assert stand_by.process.wait(30) == 1
    assert lab.own_work == ["started", "stopped"] * 2
