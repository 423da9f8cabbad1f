"""Who leads, who waits, and what becomes of the lease, on a real control plane."""

import json
import signal
from typing import Any

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import (
    QUICK_LEASE,
    Lab,
    eventually,
    is_initialized,
    register,
    running,
)

LEASE = ("lease", "cloud-controller-manager", "--namespace=kube-system")


def holder(cluster: ControlPlane) -> str:
    spec: dict[str, Any] = json.loads(cluster.kubectl("get", *LEASE, "--output=json"))["spec"]
    return spec.get("holderIdentity", "")


def test_defect_20_sigterm_ends_the_work_and_frees_the_lease(clean: ControlPlane, lab: Lab) -> None:
    with running(clean, lab) as manager:
        manager.wait_leading()
        assert holder(clean)

        code = manager.end(signal.SIGTERM)

    assert code == 0
    assert holder(clean) == ""
    events = clean.kubectl("get", "events", "--namespace=kube-system")
    assert "became leader" in events
    assert "stopped leading" in events


def test_a_stand_by_takes_over_when_the_leader_is_killed(clean: ControlPlane, lab: Lab) -> None:
    with running(clean, lab, *QUICK_LEASE) as leader:
        leader.wait_leading()
        with running(clean, lab, *QUICK_LEASE) as stand_by:
            eventually("up", lambda: stand_by.get("/healthz") == (200, "ok"))
            assert not stand_by.leads()

            leader.end(signal.SIGKILL)
            register(clean, "later")

            eventually("initialized", lambda: is_initialized(clean, "later"))
            assert stand_by.leads()


def test_a_leader_whose_lease_is_stolen_stops_writing_and_ends(
    clean: ControlPlane, lab: Lab
) -> None:
    with running(clean, lab, *QUICK_LEASE) as manager:
        manager.wait_leading()
        patch = json.dumps({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600}})

        clean.kubectl("patch", *LEASE, "--type=merge", f"--patch={patch}")
        code = manager.process.wait(30)

    assert code == 1
    assert "leaderelection lost" in manager.log.read_text()
    assert holder(clean) == "thief"


def test_a_leader_that_cannot_renew_ends(clean: ControlPlane, lab: Lab) -> None:
    with running(clean, lab, *QUICK_LEASE) as manager:
        manager.wait_leading()
        clean.end("kube-apiserver", at_once=True)
        try:
            code = manager.process.wait(30)
        finally:
            clean.start_api_server()

    assert code == 1


def test_two_locks_share_the_controllers_out(clean: ControlPlane, lab: Lab) -> None:
    plan = lab.folder / "migration.yaml"
    plan.write_text(
        "apiVersion: controllermanager.config.k8s.io/v1\n"
        "kind: LeaderMigrationConfiguration\n"
        "leaderName: moving\n"
        "controllerLeaders:\n"
        "- {name: cloud-node-controller, component: cloud-controller-manager}\n"
    )
    register(clean, "moved")

    with running(clean, lab, "--enable-leader-migration", f"--leader-migration-config={plan}"):
        eventually("initialized", lambda: is_initialized(clean, "moved"))
        held = clean.kubectl("get", "leases", "--namespace=kube-system", "--output=name")

    assert "lease.coordination.k8s.io/moving" in held
