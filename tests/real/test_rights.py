"""The manager works with the rights that `pileus manifests` prints, and cannot gain others.

That they are not more than it uses is tested in tests/unit/app/test_rights.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.contract.api.http import Api
from tests.real.access import ACCOUNT, EVERYTHING, GROUPS, OWN, granted, may, rbac, verbs
from tests.real.local_cloud import LocalCloud
from tests.real.manager import (
    Lab,
    eventually,
    is_initialized,
    is_told,
    node,
    register,
    running,
    say_ready,
)
from tests.unit.app.stage import APART
from tests.unit.controllers.ssh_keys.keys import public_key

WEB = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
}


@pytest.fixture
def account(clean: ControlPlane) -> Path:
    """Credentials that make their bearer the manager's service account."""
    return clean.user(ACCOUNT, groups=GROUPS)


@pytest.fixture
def rights(clean: ControlPlane, request: pytest.FixtureRequest) -> Iterator[None]:
    with granted(clean, *request.param):
        yield


@pytest.fixture
def keys(clean: ControlPlane) -> Iterator[None]:
    metadata = {"name": "ssh-keys", "namespace": "kube-system"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    body["data"] = {"ops": public_key("ann")}
    clean.kubectl("apply", "--filename=-", stdin=json.dumps(body))
    yield
    clean.kubectl("delete", "configmap", "ssh-keys", "--namespace=kube-system")


def is_routed(cluster: ControlPlane, name: str) -> bool:
    found = node(cluster, name)
    return bool(found["spec"].get("podCIDR")) and "RouteCreated" in json.dumps(found["status"])


WAYS = [
    pytest.param(EVERYTHING, EVERYTHING, id="one-identity"),
    pytest.param((*EVERYTHING, OWN), (*EVERYTHING, OWN), id="own-identities"),
]


@pytest.mark.parametrize(("rights", "flags"), WAYS, indirect=["rights"])
@pytest.mark.usefixtures("rights", "keys")
def test_every_controller_works_with_these_rights(
    clean: ControlPlane, lab: Lab, account: Path, flags: tuple[str, ...], cloud: LocalCloud
) -> None:
    reviews = (f"--authentication-kubeconfig={account}", f"--authorization-kubeconfig={account}")
    quick = ("--node-monitor-period=1s", "--node-deletion-grace=2s")
    for name in ("one", "two"):
        cloud.pileus("instances", "create", name)
    register(clean, "one", "two")
    clean.kubectl("create", "-f", "-", stdin=json.dumps(WEB))

    given = (*cloud.flags, *flags, *reviews, *quick)
    with running(clean, lab, *given, kubeconfig=account) as manager:
        eventually("initialized", lambda: is_initialized(clean, "two"))
        eventually("pod range and route", lambda: is_routed(clean, "two"))
        eventually("served", lambda: "127." in clean.kubectl("get", "service", "web"))
        eventually("keys", lambda: "ops" in cloud.pileus("keys", "list"))
        cloud.pileus("instances", "delete", "two")
        say_ready(clean, "Unknown", "two")
        eventually("deleted", lambda: is_told(clean, "DeletingNode"))
        clean.kubectl("delete", "service", "web", "--timeout=60s")
        eventually("told", lambda: is_told(clean, "DeletedLoadBalancer"))

        assert cloud.pileus("balancers", "list").strip() == "No balancers."
        assert manager.metric("rest_client_requests_total", code="403") == 0
        assert manager.metric("rest_client_requests_total", code="201") > 0


def test_each_verb_that_is_taken_away_is_missed(clean: ControlPlane) -> None:
    """No rule repeats another: without the verb, the API server refuses what it is for.

    Each controller has an account of its own here, which the API server has no roles for.
    """
    admin = Api.of_kubeconfig(clean.admin)
    flags = (*EVERYTHING, "--enable-leader-migration", OWN)
    with granted(clean, *flags, controllers=APART) as objects:
        for verb in verbs(objects):
            eventually(f"granted: {verb}", lambda verb=verb: may(admin, verb))
            assert admin.put(verb.path, verb.without()).status == 200
            eventually(f"refused: {verb}", lambda verb=verb: not may(admin, verb), limit=10)
            assert admin.put(verb.path, verb.role).status == 200


FEWER = [
    pytest.param("nodes", "NodeWriteForbidden", id="nodes"),
    pytest.param("nodes/status", "NodeWriteForbidden", id="addresses"),
    pytest.param("services/status", "SyncLoadBalancerFailed", id="services"),
]
TWO = "--controllers=cloud-node-controller,service-lb-controller"


@pytest.mark.parametrize(("resource", "reason"), FEWER)
def test_a_missing_right_is_reported_by_an_event(
    clean: ControlPlane, account: Path, cloud: LocalCloud, resource: str, reason: str
) -> None:
    cloud.pileus("instances", "create", "one")
    register(clean, "one")
    clean.kubectl("create", "-f", "-", stdin=json.dumps(WEB))
    with granted(clean, TWO) as objects:
        (missing,) = (
            verb
            for verb in verbs(objects)
            if (verb.verb, verb.rule.get("resources")) == ("patch", [resource])
        )
        admin = Api.of_kubeconfig(clean.admin)
        assert admin.put(missing.path, missing.without()).status == 200

        lab = Lab(cloud.config.parent / "lab")
        with running(clean, lab, *cloud.flags, TWO, kubeconfig=account):
            eventually("told", lambda: is_told(clean, reason))


ACCOUNTS = "/api/v1/namespaces/kube-system/serviceaccounts"
POWERFUL = "clusterrole-aggregation-controller"
"""It may give itself any right: its built-in role has the verb escalate on cluster roles."""


@pytest.mark.parametrize("rights", [(OWN,)], indirect=True)
@pytest.mark.usefixtures("rights")
def test_the_manager_cannot_act_as_an_account_that_is_not_its_own(
    clean: ControlPlane, account: Path
) -> None:
    admin, manager = Api.of_kubeconfig(clean.admin), Api.of_kubeconfig(account)
    for name in (POWERFUL, "node-controller"):
        manager.post(ACCOUNTS, {"metadata": {"name": name}})

    token = manager.post(f"{ACCOUNTS}/{POWERFUL}/token", {})
    change = manager.patch(f"{ACCOUNTS}/{POWERFUL}", {"metadata": {"labels": {"a": "b"}}})
    own = manager.post(f"{ACCOUNTS}/node-controller/token", {})

    assert admin.get(f"{ACCOUNTS}/{POWERFUL}").status == 200
    assert (token.status, token.reason) == (403, "Forbidden")
    assert (change.status, change.reason) == (403, "Forbidden")
    assert own.status == 201
    admin.delete(f"{ACCOUNTS}/{POWERFUL}")


@pytest.mark.parametrize("rights", [(OWN,)], indirect=True)
@pytest.mark.usefixtures("rights")
def test_a_missing_account_of_a_controller_is_created_and_belongs_to_no_installation(
    clean: ControlPlane, lab: Lab, account: Path
) -> None:
    admin = Api.of_kubeconfig(clean.admin)
    admin.delete(f"{ACCOUNTS}/node-controller")
    register(clean, "one")

    with running(clean, lab, OWN, kubeconfig=account):
        eventually("initialized", lambda: is_initialized(clean, "one"))

    made = admin.get(f"{ACCOUNTS}/node-controller").body["metadata"]
    assert "labels" not in made


@pytest.mark.parametrize("rights", [(OWN,)], indirect=True)
@pytest.mark.usefixtures("rights")
def test_a_manager_that_may_not_create_a_missing_account_names_the_command_to_run(
    clean: ControlPlane, lab: Lab, account: Path
) -> None:
    admin = Api.of_kubeconfig(clean.admin)
    admin.delete(f"{ACCOUNTS}/node-controller")
    (create,) = (
        each for each in verbs(rbac(OWN)) if each.rule.get("resources") == ["serviceaccounts"]
    )
    assert admin.put(create.path, create.without()).status == 200
    register(clean, "one")

    with running(clean, lab, OWN, kubeconfig=account) as manager:
        fix = ("--namespace=kube-system", "create", "serviceaccount", "node-controller")
        eventually("reported", lambda: " ".join(fix) in manager.log.read_text())
        clean.kubectl(*fix)
        eventually("initialized", lambda: is_initialized(clean, "one"), limit=120)
