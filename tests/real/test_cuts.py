"""A network that cuts, delays or swallows what is between the manager and the API server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import QUICK_LEASE, Lab, eventually, is_initialized, register, running
from tests.real.proxy import Proxy, proxied

LEASE = ("lease", "cloud-controller-manager", "--namespace=kube-system")
PATIENT_LEASE = (
    "--leader-elect-lease-duration=40s",
    "--leader-elect-renew-deadline=20s",
    "--leader-elect-retry-period=1s",
)


@pytest.fixture
def proxy(clean: ControlPlane) -> Iterator[Proxy]:
    with proxied(clean.server) as proxy:
        yield proxy


@pytest.fixture
def kubeconfig(clean: ControlPlane, proxy: Proxy, tmp_path: Path) -> Path:
    return proxy.kubeconfig(clean.admin, tmp_path / "through-proxy")


def test_a_cut_watch_is_taken_up_again_without_a_new_list(
    clean: ControlPlane, lab: Lab, proxy: Proxy, kubeconfig: Path
) -> None:
    proxy.delay = 0.05
    with running(clean, lab, *PATIENT_LEASE, kubeconfig=kubeconfig) as manager:
        register(clean, "before")
        eventually("initialized", lambda: is_initialized(clean, "before"))

        for number in range(3):
            proxy.cut()
            register(clean, f"after-{number}")
            eventually("initialized", lambda n=number: is_initialized(clean, f"after-{n}"))

        assert manager.is_alive()
        assert manager.metric("pileus_watch_relists_total", resource="nodes") <= 1


def test_a_frozen_network_that_thaws_before_the_renew_deadline_costs_nothing(
    clean: ControlPlane, lab: Lab, proxy: Proxy, kubeconfig: Path
) -> None:
    with running(clean, lab, *PATIENT_LEASE, kubeconfig=kubeconfig) as manager:
        manager.wait_leading()
        slow = "leader_election_slowpath_total"
        renewed = manager.metric(slow)
        proxy.freeze()
        register(clean, "meanwhile")
        eventually("a renewal that failed", lambda: manager.metric(slow) > renewed, limit=90)
        proxy.thaw()

        eventually("initialized", lambda: is_initialized(clean, "meanwhile"), limit=120)
        assert manager.is_alive()
        spec = json.loads(clean.kubectl("get", *LEASE, "--output=json"))["spec"]
        assert spec.get("leaseTransitions", 0) == 0


def test_a_leader_in_a_black_hole_ends_and_a_stand_by_takes_over(
    clean: ControlPlane, lab: Lab, proxy: Proxy, kubeconfig: Path
) -> None:
    with running(clean, lab, *QUICK_LEASE, kubeconfig=kubeconfig) as cut_off:
        cut_off.wait_leading()
        with running(clean, lab, *QUICK_LEASE) as stand_by:
            eventually("up", lambda: stand_by.get("/healthz") == (200, "ok"))
            proxy.freeze()
            register(clean, "later")

            assert cut_off.process.wait(60) == 1
            eventually("initialized", lambda: is_initialized(clean, "later"))
            assert stand_by.leads()

    assert "leaderelection lost" in cut_off.log.read_text()
