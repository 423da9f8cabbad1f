"""The doctor on an embedded API server and the local cloud: healthy, and with planted faults."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from pileus.app.explain.explain import explain
from pileus.app.explain.explanation import State
from pileus.app.plan import Planner, read_only_context
from pileus.cli.cluster_command import check_exists
from pileus.cli.object_names import parsed_object
from pileus.cloud.errors import Unauthorized
from pileus.cloud.finding import Finding, Severity
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.registry import Registry
from pileus.doctor.check import Check, Verdict
from pileus.doctor.doctor import CHECKS, Diagnosis, diagnose
from pileus.doctor.observation import Observation, Unread
from pileus.doctor.reading import observe
from pileus.kube.model.core_v1 import NODES, SERVICES
from pileus.kube.patch import MergePatch
from pileus.testing.virtual_time import LoopClock
from pileus_lab.apiserver.identity import User
from pileus_lab.apiserver.in_process import InProcessTransport
from pileus_lab.apiserver.server import api_in_memory
from pileus_lab.local.model.account import SetQuota
from tests.unit.app.scene import Scene, scene
from tests.unit.app.stage import Kube, configured
from tests.unit.doctor.ward import (
    ACCOUNT,
    RBAC,
    at_work,
    create,
    examined,
    grant,
    healthy_cluster,
    ids,
    seen,
)


async def test_a_healthy_cluster_has_no_findings() -> None:
    async with healthy_cluster() as made:
        before = len(made.kube.requests)
        diagnosis = await examined(made)
        sent = [request for _, request in made.kube.requests[before:]]

    assert diagnosis.findings == ()
    assert diagnosis.is_healthy
    assert [each.check.id for each in diagnosis.checked if not each.is_made] == ["clock"]
    posted = {request.path for request in sent if request.method not in {"GET", "HEAD"}}
    assert {path.rpartition("/")[2] for path in posted} <= {
        "selfsubjectreviews",
        "selfsubjectaccessreviews",
        "subjectaccessreviews",
        "leases",
        "cloud-controller-manager",
    }


async def plain_node(made: Scene, name: str, **metadata: object) -> None:
    await made.client.create(NODES, {"metadata": {"name": name, **metadata}})


async def plant_everything(made: Scene) -> None:
    """One fault for each of seven checks."""
    await made.client.raw("DELETE", f"{RBAC}/clusterrolebindings/pileus-cloud-controller-manager")
    await plain_node(made, "no-flag")
    await create(made, other_manager())
    await create(made, second_lease())
    await made.cloud.call(SetQuota(limits={"instances": 3}))
    await made.add_service("stuck", 80)
    finalizers = MergePatch({
        "metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}
    })
    await made.client.patch(SERVICES, "stuck", finalizers, namespace="default")
    await made.client.delete(SERVICES, "stuck", namespace="default")


def other_manager() -> dict[str, object]:
    container = {
        "name": "openstack-cloud-controller-manager",
        "image": "registry.k8s.io/provider-os/openstack-cloud-controller-manager:v1.36.0",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "openstack-ccm-x", "namespace": "kube-system"},
        "spec": {"containers": [container]},
    }


def second_lease() -> dict[str, object]:
    spec = {
        "holderIdentity": "master-1_5",
        "leaseDurationSeconds": 15,
        "renewTime": "1970-01-01T00:00:00.000000Z",
    }
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "my-cloud-controller-manager", "namespace": "kube-system"},
        "spec": spec,
    }


async def test_planted_faults_are_all_found_at_once_with_reason_and_fix() -> None:
    async with scene("n1", "n2", "n3") as made:
        await grant(made)
        await made.add_service("web", 80)
        async with at_work(made):
            pass
        await made.add_nodes("n4")
        await plant_everything(made)
        await asyncio.sleep(600)
        diagnosis = await examined(made)

    assert ids(diagnosis) >= {
        "right-missing",
        "lease-released",
        "node-uninitialized",
        "kubelet-flag-missing",
        "other-manager-pod",
        "lease-left",
        "quota-used-up",
        "service-deletion-stuck",
        "service-unmanaged",
    }
    assert not diagnosis.is_healthy
    for finding in diagnosis.findings:
        assert finding.what, finding
        assert finding.reason, finding
        assert finding.fix, finding
        assert finding.subject, finding


async def test_each_fault_is_reported_by_the_check_it_belongs_to() -> None:
    async with healthy_cluster() as made:
        await plain_node(made, "no-flag")
        await plain_node(made, "also-none")
        await asyncio.sleep(200)
        diagnosis = await examined(made)

    by_check = {each.check.id: {one.id for one in each.findings} for each in diagnosis.checked}
    assert {name: found for name, found in by_check.items() if found} == {
        "nodes": {"kubelet-flag-missing"}
    }
    (finding,) = diagnosis.findings
    assert finding.severity is Severity.ERROR
    assert finding.subject == "Nodes also-none, no-flag"
    assert "--cloud-provider=external" in finding.reason
    assert "kubectl taint nodes also-none no-flag node.cloudprovider" in finding.fix


async def test_a_node_without_a_machine_stays_tainted_for_the_reason_of_its_condition() -> None:
    async with healthy_cluster() as made:
        taint = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
        await made.client.create(NODES, {"metadata": {"name": "lost"}, "spec": {"taints": [taint]}})
        await asyncio.sleep(200)
        diagnosis = await examined(made)

    (finding,) = diagnosis.findings
    assert (finding.id, finding.subject) == ("node-uninitialized", "Node lost")
    assert finding.reason.startswith("InstanceNotFound: ")
    assert finding.fix.startswith("kubectl get node lost")
    (nodes,) = [each for each in diagnosis.checked if each.check.id == "nodes"]
    assert nodes.summary.endswith("nodes, 1 not initialized yet"), "part of -o json"


async def test_a_new_node_that_is_tainted_is_not_called_initialized() -> None:
    async with healthy_cluster() as made:
        taint = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
        await made.client.create(NODES, {"metadata": {"name": "new"}, "spec": {"taints": [taint]}})
        diagnosis = await examined(made)

    (nodes,) = [each for each in diagnosis.checked if each.check.id == "nodes"]
    assert nodes.findings == ()
    assert nodes.summary.endswith("nodes, 1 not initialized yet")


async def test_one_taint_on_many_nodes_is_one_finding() -> None:
    names = [f"n{number}" for number in range(8)]
    async with scene(*names) as made:
        await grant(made)
        await asyncio.sleep(600)
        found = [one for one in (await examined(made)).findings if one.id == "node-uninitialized"]

    (finding,) = found
    assert finding.subject == "Nodes n0, n1, n2 and 5 more"
    assert "no manager leads" in finding.reason


async def test_an_expired_lease_is_told_from_a_released_one() -> None:
    async with healthy_cluster() as made:
        lease = (
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager"
        )
        assert "lease-expired" not in ids(await examined(made))
    released = await examined_later(made)
    spec = b'{"spec":{"holderIdentity":"gone_1","leaseDurationSeconds":15}}'
    await made.client.raw("PATCH", lease, body=spec, content_type="application/merge-patch+json")
    expired = await examined(made)

    assert "lease-released" in ids(released)
    assert "lease-expired" in ids(expired)


async def examined_later(made: Scene) -> Diagnosis:
    await asyncio.sleep(60)
    return await examined(made)


async def test_a_missing_right_names_what_it_is_for() -> None:
    async with healthy_cluster() as made:
        await made.client.raw(
            "DELETE",
            f"{RBAC}/clusterrolebindings/pileus-cloud-controller-manager:service-lb-controller",
        )
        diagnosis = await examined(made)

    assert ids(diagnosis) == {"right-missing"}
    texts = " ".join(f"{one.what} {one.reason}" for one in diagnosis.findings)
    assert "patch services" in texts
    assert "needed for: " in texts


@pytest.mark.parametrize(
    ("may_create", "severity", "reason"),
    [
        (True, Severity.NOTE, "the manager creates the account"),
        (False, Severity.WARNING, "the manager lacks the right to create the account"),
    ],
)
async def test_an_account_of_a_controller_that_does_not_exist_is_reported(
    may_create: bool, severity: Severity, reason: str
) -> None:
    flags = ("--use-service-account-credentials", "--controllers=cloud-node,service-lb-controller")
    async with scene("n1") as made:
        await grant(made, *flags)
        await create(made, account("service-controller"))
        if not may_create:
            role = f"{RBAC}/namespaces/kube-system/roles/pileus-cloud-controller-manager:tokens"
            await made.client.raw("DELETE", role)
        diagnosis = await examined(made, *flags)

    (finding,) = (one for one in diagnosis.findings if one.id == "controller-account-missing")
    assert finding.subject == "service account kube-system/node-controller"
    assert finding.severity is severity
    assert reason in finding.reason
    assert finding.fix == ("kubectl --namespace=kube-system create serviceaccount node-controller")


async def test_webhooks_that_the_flags_enable_have_to_be_registered() -> None:
    gate = "--feature-gates=CloudControllerManagerWebhook=true"
    async with healthy_cluster() as made:
        enabled = await examined(made, "--webhooks=persistentvolume-labels", gate)
        without_port = await examined(made, "--webhooks=*", gate, "--webhook-secure-port=0")

    found = [each.subject for each in enabled.findings if each.id == "webhook-not-registered"]
    assert found == ["MutatingWebhookConfiguration cloud-controller-manager-webhook"]
    assert "webhook-not-registered" not in ids(without_port)


def account(name: str) -> dict[str, object]:
    return {"kind": "ServiceAccount", "metadata": {"name": name, "namespace": "kube-system"}}


async def test_the_right_to_the_second_lease_of_leader_migration_is_checked(
    tmp_path: Path,
) -> None:
    file = tmp_path / "migration.yaml"
    file.write_text(
        "apiVersion: controllermanager.config.k8s.io/v1\n"
        "kind: LeaderMigrationConfiguration\n"
        "leaderName: moving\n"
    )
    flags = ("--enable-leader-migration", f"--leader-migration-config={file}")

    async with healthy_cluster() as made:
        diagnosis = await examined(made, *flags)

    assert ids(diagnosis) == {"right-missing"}
    (finding,) = diagnosis.findings
    assert "get leases.coordination.k8s.io moving in kube-system" in finding.what


async def test_rights_that_nothing_needs_are_reported_with_the_binding_that_grants_them() -> None:
    version, name = "rbac.authorization.k8s.io/v1", "system:cloud-controller-manager"
    ours = {
        "kind": "ServiceAccount",
        "namespace": "kube-system",
        "name": "pileus-cloud-controller-manager",
    }
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    common = {"apiVersion": version, "metadata": {"name": name}}
    async with healthy_cluster() as made:
        before = await examined(made)
        await create(made, {**common, "kind": "ClusterRole", "rules": rules})
        bound = {**common, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [ours]}
        await create(made, bound)
        after = await examined(made)

    assert "right-unneeded" not in ids(before)
    (finding,) = (each for each in after.findings if each.id == "right-unneeded")
    assert finding.what == (
        f"may get, list secrets, by ClusterRoleBinding {name} (ClusterRole {name})"
    )
    assert finding.fix == f"kubectl delete clusterrolebinding {name}"


async def test_without_rights_the_doctor_says_which_are_missing_and_how_to_get_them() -> None:
    api = api_in_memory(clock=LoopClock(), random=Random(0))
    async with healthy_cluster(Kube(InProcessTransport(api))) as made:
        made.kube.transport = InProcessTransport(api, User("jane", ("system:authenticated",)))
        diagnosis = await examined(made)

    assert [each.check.id for each in diagnosis.checked if each.unread] == [
        "rights",
        "unneeded-rights",
        "leader-election",
        "other-managers",
        "nodes",
        "volumes",
        "leftovers",
        "cluster-id",
    ]
    (finding,) = diagnosis.findings
    assert finding.id == "doctor-right-missing"
    assert finding.subject == "user jane"
    assert "list nodes" in finding.what
    assert "list pods in kube-system" in finding.what
    assert "--verb=list" in finding.fix
    assert "--user=jane" in finding.fix


@pytest.mark.parametrize("name", [ACCOUNT.replace("/", ":"), "ops:pileus-cloud-controller-manager"])
async def test_the_account_of_the_manager_is_not_given_the_rights_of_the_doctor(name: str) -> None:
    api = api_in_memory(clock=LoopClock(), random=Random(0))
    async with healthy_cluster(Kube(InProcessTransport(api))) as made:
        user = User(f"system:serviceaccount:{name}", ("system:authenticated",))
        made.kube.transport = InProcessTransport(api, user)
        diagnosis = await examined(made)

    (finding,) = (each for each in diagnosis.findings if each.id == "doctor-right-missing")
    assert finding.fix.startswith("use the kubeconfig of an administrator")


@pytest.mark.parametrize("words", [("node", "n1"), ("service", "default/web")])
async def test_the_account_of_the_manager_may_run_the_commands_that_are_printed_for_its_pod(
    words: tuple[str, ...],
) -> None:
    api = api_in_memory(clock=LoopClock(), random=Random(0))
    async with healthy_cluster(Kube(InProcessTransport(api))) as made:
        user = User(f"system:serviceaccount:{ACCOUNT.replace('/', ':')}", ("system:authenticated",))
        made.kube.transport = InProcessTransport(api, user)
        scope = parsed_object(words).scope("default")
        async with read_only_context(configured(*made.flags), made.world()) as context:
            found = await check_exists(context, scope)
            assert found
            explained = await explain(context, found, scope)
            plan = await Planner(context).plan(scope)

    assert explained.state is State.UP_TO_DATE
    assert plan.is_whole


async def test_an_api_server_that_is_down_is_one_finding_and_the_cloud_is_still_checked() -> None:
    async with scene("n1") as made:
        await made.cloud.call(SetQuota(limits={"instances": 1}))
        made.kube.is_down = True
        diagnosis = await examined(made)

    assert ids(diagnosis) == {"not-readable", "quota-used-up"}
    (broken,) = [one for one in diagnosis.findings if one.id == "not-readable"]
    assert broken.subject == "API server"
    assert "connection refused" in broken.what
    assert broken.fix.startswith("kubectl cluster-info")


async def test_a_cloud_that_cannot_be_reached_is_a_finding() -> None:
    async with healthy_cluster() as made:
        diagnosis = await examined(made, "--cloud-provider=unknown")

    assert ids(diagnosis) == {"cloud-unusable"}
    (finding,) = diagnosis.findings
    assert 'unknown cloud provider "unknown"' in finding.what


@pytest.mark.parametrize(
    ("error", "message"),
    [(Unauthorized("Keystone refuses user x"), "Keystone refuses user x"), (KeyError("a"), "Key")],
)
async def test_a_provider_whose_checks_fail_is_a_finding(error: Exception, message: str) -> None:
    async def fails() -> tuple[Finding, ...]:
        raise error

    async with healthy_cluster() as made:
        world = made.world()
        inner = world.providers.get("fake")
        assert inner

        @asynccontextmanager
        async def connect(config: ProviderConfig) -> AsyncGenerator[Cloud]:
            async with inner(config) as cloud:
                yield replace(cloud, checks=fails)

        providers = Registry(discover=tuple)
        providers.register("fake", connect)
        given = configured(*made.flags)
        found = await observe(given, replace(world, providers=providers), ACCOUNT)

    (finding,) = diagnose(found).findings
    assert finding.id == "cloud-checks-failed"
    assert message in finding.what


async def test_a_check_that_fails_is_a_finding_and_hides_no_other() -> None:
    def fails(_: Observation) -> Verdict:
        raise ZeroDivisionError("bug")

    async with healthy_cluster() as made:
        found = await seen(made)
    diagnosis = diagnose(found, (Check("broken", "Broken", fails), *CHECKS))

    assert diagnosis.checked[0].findings[0].id == "check-failed"
    assert "ZeroDivisionError: bug" in diagnosis.checked[0].findings[0].what
    assert len(diagnosis.checked) == len(CHECKS) + 1


@pytest.mark.parametrize("part", ["nodes", "services", "pods", "leases", "webhooks"])
async def test_a_part_that_cannot_be_read_leaves_the_other_checks(part: str) -> None:
    async with healthy_cluster() as made:
        found = await seen(made)
    diagnosis = diagnose(replace(found, **{part: Unread(part, "500 InternalError")}))

    made_ids = {each.check.id for each in diagnosis.checked if each.is_made}
    assert {"api-server", "leader-election", "cluster-id", "cloud"} <= made_ids
    assert ids(diagnosis) == {"not-readable"}
