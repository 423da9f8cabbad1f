"""Each check by itself, on observations that are written down."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pileus.doctor.api_checks import api_server, can_block, clock, webhooks
from pileus.doctor.doctor import grant
from pileus.doctor.leftover_checks import leftovers
from pileus.doctor.manager_checks import election, other_managers
from pileus.doctor.node_checks import nodes
from pileus.doctor.observation import CloudState, Expected, Observation, Rights, Server
from pileus.doctor.reading import _ahead
from pileus.doctor.records import (
    Container,
    Event,
    FieldsEntry,
    Lease,
    ManagedMeta,
    Node,
    Pod,
    PodSpec,
    Service,
    Status,
    SystemInfo,
)
from pileus.kube.model.admissionregistration_v1 import (
    ServiceReference,
    Webhook,
    WebhookClient,
    WebhookConfiguration,
    WebhookRule,
)
from pileus.kube.model.coordination_v1 import LeaseSpec
from pileus.kube.model.core_v1 import NodeSpec, ObjectReference
from pileus.kube.model.meta import ObjectMeta
from pileus.objects.rights import Right

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OURS = Pod(
    metadata=ObjectMeta(name="ccm-a", namespace="kube-system"),
    spec=PodSpec(containers=(Container(name="manager", image="reg/pileus:0.1.0"),), node_name="m1"),
)


def lease(
    name: str = "cloud-controller-manager",
    holder: str = "m1_1",
    age: float = 2,
    manager: str = "cloud-controller-manager",
) -> Lease:
    renewed = NOW - timedelta(seconds=age)
    entry = FieldsEntry(manager=manager, operation="Update", time=renewed)
    return Lease(
        metadata=ManagedMeta(name=name, namespace="kube-system", managed_fields=(entry,)),
        spec=LeaseSpec(holder_identity=holder, lease_duration_seconds=15, renew_time=renewed),
    )


HEALTHY = Observation(
    expected=Expected(providers=("openstack",)),
    now=NOW,
    server=Server("api:6443", "v1.37.1", 0.0),
    rights=Rights("kube-system/pileus-cloud-controller-manager", exists=True),
    cluster_id="c1",
    lease=lease(),
    leases=(lease(),),
    nodes=(),
    services=(),
    pods=(OURS,),
    lease_events=(),
    node_events=(),
    webhooks=(),
)


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("v1.29.9", ["api-version-too-old"]),
        ("v1.30.0", []),
        ("v1.30.14+k3s1", []),
        ("v1.38.0", []),
        ("v1.39.0", ["api-version-too-new"]),
        ("v2.0.0", ["api-version-too-new"]),
        ("custom", ["api-version-unknown"]),
    ],
)
def test_the_version_of_the_api_server(version: str, found: list[str]) -> None:
    seen = replace(HEALTHY, server=Server("api:6443", version))

    assert [one.id for one in api_server(seen).findings] == found


@pytest.mark.parametrize(
    ("kubelet", "is_old"), [("v1.33.9", True), ("v1.34.0", False), ("", False)]
)
def test_the_version_of_a_kubelet(kubelet: str, is_old: bool) -> None:
    status = Status(node_info=SystemInfo(kubelet_version=kubelet))
    seen = replace(HEALTHY, nodes=(Node(metadata=ManagedMeta(name="n1"), status=status),))

    assert bool(api_server(seen).findings) is is_old


@pytest.mark.parametrize(
    ("ahead", "found"),
    [(0.0, ""), (-9.0, ""), (11.0, "warning"), (-30.0, "warning"), (125.0, "error")],
)
def test_the_clock(ahead: float, found: str) -> None:
    findings = clock(replace(HEALTHY, server=Server("api:6443", "v1.37.1", ahead))).findings

    assert [one.severity for one in findings] == ([found] if found else [])


def test_a_clock_that_agrees_within_the_second_of_the_header_is_not_off() -> None:
    began, ended = NOW + timedelta(seconds=0.7), NOW + timedelta(seconds=0.9)

    assert _ahead("Thu, 01 Jan 2026 12:00:00 GMT", began, ended) == 0
    assert _ahead("Thu, 01 Jan 2026 12:01:00 GMT", began, ended) == pytest.approx(59.1)
    assert _ahead("Thu, 01 Jan 2026 11:59:00 GMT", began, ended) == pytest.approx(-59.7)
    assert _ahead("", began, ended) is None


def hook(policy: str | None = "Fail", *resources: str, groups: tuple[str, ...] = ("",)) -> Webhook:
    rule = WebhookRule(api_groups=groups, resources=resources, operations=("UPDATE",))
    service = ServiceReference(namespace="policy", name="gate")
    return Webhook(
        name="gate.example.com",
        client_config=WebhookClient(service=service),
        failure_policy=policy,
        rules=(rule,),
    )


@pytest.mark.parametrize(
    ("webhook", "blocks"),
    [
        (hook("Fail", "nodes"), True),
        (hook(None, "nodes/status"), True),
        (hook("Ignore", "nodes"), False),
        (hook("Fail", "pods"), False),
        (hook("Fail", "pods/*"), False),
        (hook("Fail", "nodes/*"), True),
        (hook("Fail", "*"), True),
        (hook("Fail", "*/*"), True),
        (hook("Fail", "*/status"), True),
        (hook("Fail", "*/scale"), False),
        (hook("Fail", "nodes", groups=("apps",)), False),
        (hook("Fail", "leases", groups=("coordination.k8s.io",)), True),
        (hook("Fail", "nodes", groups=("*",)), True),
    ],
)
def test_which_webhooks_can_block(webhook: Webhook, blocks: bool) -> None:
    assert can_block(webhook) is blocks


def test_a_webhook_without_endpoints_is_found() -> None:
    configuration = WebhookConfiguration(
        kind="ValidatingWebhookConfiguration",
        metadata=ObjectMeta(name="gate"),
        webhooks=(hook("Fail", "nodes"),),
    )
    seen = replace(HEALTHY, webhooks=(configuration,), endpoints={"policy/gate": 0})

    (finding,) = webhooks(seen).findings
    assert finding.id == "webhook-without-endpoints"
    assert "kubectl delete validatingwebhookconfiguration gate" in finding.fix
    assert not webhooks(replace(seen, endpoints={"policy/gate": 1})).findings


def own_webhooks(kind: str, *bundles: bytes | None) -> WebhookConfiguration:
    hooks = tuple(
        Webhook(
            name=f"hook-{number}.webhooks.pileus.dev",
            client_config=WebhookClient(url="https://ccm.example", ca_bundle=bundle),
            failure_policy="Ignore",
        )
        for number, bundle in enumerate(bundles)
    )
    name = ObjectMeta(name="cloud-controller-manager-webhook")
    return WebhookConfiguration(kind=kind, metadata=name, webhooks=hooks)


@pytest.mark.parametrize(
    ("mutating", "validating", "found"),
    [
        (b"ca", b"ca", []),
        (None, b"ca", ["webhook-without-ca"]),
        (b"ca", b"other", ["webhook-ca-differs", "webhook-ca-differs"]),
    ],
)
def test_webhooks_of_the_manager_that_the_api_server_does_not_trust_are_found(
    mutating: bytes | None, validating: bytes | None, found: list[str]
) -> None:
    configurations = (
        own_webhooks("MutatingWebhookConfiguration", mutating),
        own_webhooks("ValidatingWebhookConfiguration", validating),
    )

    findings = webhooks(replace(HEALTHY, webhooks=configurations)).findings

    assert [each.id for each in findings] == found


def test_webhooks_of_the_manager_that_are_not_registered_are_found() -> None:
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    expected = replace(HEALTHY.expected, webhooks=frozenset(kinds))
    there = (own_webhooks(kinds[0], b"ca"), own_webhooks("OfAnotherKind", b"ca"))

    (finding,) = webhooks(replace(HEALTHY, expected=expected, webhooks=there)).findings

    assert finding.id == "webhook-not-registered"
    assert finding.subject == f"{kinds[1]} cloud-controller-manager-webhook"
    assert "--webhook-url=https://HOST:PORT | kubectl apply -f - --selector=" in finding.fix
    assert not webhooks(replace(HEALTHY, webhooks=there)).findings, "--webhooks enables none"


@pytest.mark.parametrize(
    ("held", "found"),
    [
        (lease(), []),
        (lease(age=16), []),
        (lease(age=18), ["lease-expired"]),
        (lease(holder=""), ["lease-released"]),
        (lease(holder="laptop_1"), ["lease-held-from-outside"]),
        (lease(manager="openstack-cloud-controller-manager"), ["lease-held-by-another-manager"]),
        (lease(manager="k3s"), ["lease-held-by-another-manager"]),
        (None, ["lease-missing"]),
    ],
)
def test_the_lease(held: Lease | None, found: list[str]) -> None:
    assert [one.id for one in election(replace(HEALTHY, lease=held)).findings] == found


def test_times_of_a_lease_are_judged_by_the_clock_of_the_api_server() -> None:
    seen = replace(HEALTHY, server=Server("api", "v1.37.1", -60.0), lease=lease(age=60))

    assert not election(seen).findings


def became_leader(minutes: float) -> Event:
    return Event(
        involved_object=ObjectReference(kind="Lease", name="cloud-controller-manager"),
        reason="LeaderElection",
        message="m1_1 became leader",
        last_timestamp=NOW - timedelta(minutes=minutes),
    )


def test_a_lease_that_changes_its_holder_often_is_flapping() -> None:
    often = replace(HEALTHY, lease_events=tuple(became_leader(m) for m in (1, 5, 9, 14)))
    long_ago = replace(HEALTHY, lease_events=tuple(became_leader(m) for m in (1, 5, 9, 70)))

    assert [one.id for one in election(often).findings] == ["lease-flapping"]
    assert not election(long_ago).findings


def pod(name: str, image: str, *args: str) -> Pod:
    container = Container(name="c", image=image, args=args)
    return Pod(
        metadata=ObjectMeta(name=name, namespace="kube-system"),
        spec=PodSpec(containers=(container,)),
    )


@pytest.mark.parametrize(
    ("image", "is_other"),
    [
        ("registry.k8s.io/provider-os/openstack-cloud-controller-manager:v1.36.0", True),
        ("docker.io/hetznercloud/hcloud-cloud-controller-manager:v1.24", True),
        ("registry.k8s.io/provider-aws/cloud-controller-manager:v1.31", True),
        ("registry.k8s.io/kube-controller-manager:v1.37.1", False),
        ("reg/pileus:0.1.0", False),
        ("reg/own-image:1", False),
        ("reg/cloud-controller-manager:1", False),
        ("ghcr.io/example/acme-ccm:v2", True),
        ("registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0", False),
    ],
)
def test_pods_of_other_managers(image: str, is_other: bool) -> None:
    found = other_managers(replace(HEALTHY, pods=(OURS, pod("x", image)))).findings

    assert [one.id for one in found] == (["other-manager-pod"] if is_other else [])


def test_a_second_lease_in_use_is_a_second_manager_and_an_old_one_a_leftover() -> None:
    used = replace(HEALTHY, leases=(lease(), lease("aws-cloud-controller-manager")))
    old = replace(HEALTHY, leases=(lease(), lease("aws-cloud-controller-manager", age=99)))
    system = replace(HEALTHY, leases=(lease(), lease("kube-controller-manager")))

    assert [one.id for one in other_managers(used).findings] == ["second-lease"]
    assert not leftovers(used).findings
    assert [one.id for one in leftovers(old).findings] == ["lease-left"]
    assert not other_managers(old).findings
    assert not other_managers(system).findings


@pytest.mark.parametrize(
    ("manager", "minutes", "is_found"),
    [
        ("openstack-cloud-controller-manager", 5, True),
        ("openstack-cloud-controller-manager", 90, False),
        ("cloud-controller-manager", 5, False),
        ("kube-controller-manager", 5, False),
        ("kubelet", 5, False),
    ],
)
def test_another_writer_is_known_by_its_field_manager(
    manager: str, minutes: int, is_found: bool
) -> None:
    entry = FieldsEntry(manager=manager, time=NOW - timedelta(minutes=minutes))
    node = Node(metadata=ManagedMeta(name="n1", managed_fields=(entry,)))
    service = Service(metadata=ManagedMeta(name="web", managed_fields=(entry,)))

    for seen in (replace(HEALTHY, nodes=(node,)), replace(HEALTHY, services=(service,))):
        assert bool(other_managers(seen).findings) is is_found


def test_managers_without_leader_election_are_counted() -> None:
    alone = pod("a", "pileus", "--leader-elect=false")
    both = (alone, pod("b", "pileus", "--leader-elect=false"))

    assert not other_managers(replace(HEALTHY, pods=(alone,))).findings
    assert [one.id for one in other_managers(replace(HEALTHY, pods=both)).findings] == [
        "managers-without-lease"
    ]


def test_a_manager_without_leader_election_beside_a_leader_is_found() -> None:
    seen = replace(HEALTHY, expected=Expected(elects=False))

    assert [one.id for one in election(seen).findings] == ["election-disabled"]
    assert election(replace(seen, lease=None)).is_skipped


@pytest.mark.parametrize(
    ("provider_id", "found"),
    [
        ("openstack:///abc", []),
        ("k3s://n1", ["node-of-another-provider"]),
        ("aws:///eu/i-1", ["node-of-another-provider"]),
    ],
)
def test_nodes_of_other_providers(provider_id: str, found: list[str]) -> None:
    node = Node(metadata=ManagedMeta(name="n1"), spec=NodeSpec(provider_id=provider_id))
    seen = replace(
        HEALTHY, nodes=(node,), clouds=(CloudState(name="openstack", scheme="openstack"),)
    )

    assert [one.id for one in nodes(seen).findings] == found


def test_marks_of_the_go_manager_are_a_note() -> None:
    mark = {"loadbalancer.openstack.org/load-balancer-id": "lb-1"}
    service = Service(metadata=ManagedMeta(name="web", namespace="shop", annotations=mark))

    (finding,) = leftovers(replace(HEALTHY, services=(service,))).findings
    assert (finding.id, finding.severity) == ("go-manager-marks", "note")


def test_rights_are_granted_without_rights_to_write() -> None:
    nodes = Right(purpose="", verbs=("list",), resources=("nodes",))
    leases = Right(purpose="", verbs=("list",), resources=("leases",), group="coordination.k8s.io")
    reviews = Right(
        purpose="",
        verbs=("create",),
        resources=("subjectaccessreviews",),
        group="authorization.k8s.io",
    )

    commands = grant((nodes, leases, reviews), "system:serviceaccount:ops:ann").split(" && ")

    added = "--dry-run=client --output=yaml | kubectl auth reconcile -f -"
    assert commands == [
        (
            "kubectl create clusterrole pileus-doctor-list --verb=list "
            f"--resource=nodes,leases.coordination.k8s.io {added}"
        ),
        (
            "kubectl create clusterrolebinding pileus-doctor-list --clusterrole=pileus-doctor-list "
            f"--serviceaccount=ops:ann {added}"
        ),
        (
            "kubectl create clusterrole pileus-doctor-create --verb=create "
            f"--resource=subjectaccessreviews.authorization.k8s.io {added}"
        ),
        (
            "kubectl create clusterrolebinding pileus-doctor-create "
            f"--clusterrole=pileus-doctor-create --serviceaccount=ops:ann {added}"
        ),
    ]
