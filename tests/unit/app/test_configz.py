"""`/configz` has the shape of the Go program's.

The names are those of Go's `CloudControllerManagerConfiguration` (v1alpha1), whatever our classes
are called.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from pileus.app.configz import configz
from pileus.app.migration import DEFAULT
from pileus.app.settings import TABLE, build_config
from pileus.settings.sources import gather

EXPECTED = {
    "cloudcontrollermanager.config.k8s.io": {
        "kind": "CloudControllerManagerConfiguration",
        "apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1",
        "Generic": {
            "Port": 0,
            "Address": "0.0.0.0",
            "MinResyncPeriod": "1h40m0s",
            "ClientConnection": {
                "kubeconfig": "",
                "acceptContentTypes": "",
                "contentType": "application/vnd.kubernetes.protobuf",
                "qps": 20.0,
                "burst": 30,
            },
            "ControllerStartInterval": "0s",
            "LeaderElection": {
                "leaderElect": True,
                "leaseDuration": "15s",
                "renewDeadline": "10s",
                "retryPeriod": "2s",
                "resourceLock": "leases",
                "resourceName": "cloud-controller-manager",
                "resourceNamespace": "kube-system",
            },
            "Controllers": ["*", "-node-route-controller"],
            "Debugging": {"enableProfiling": True, "enableContentionProfiling": False},
            "LeaderMigrationEnabled": False,
            "LeaderMigration": {
                "leaderName": "",
                "resourceLock": "",
                "controllerLeaders": None,
            },
        },
        "KubeCloudShared": {
            "CloudProvider": {"Name": "local", "CloudConfigFile": ""},
            "ExternalCloudVolumePlugin": "",
            "UseServiceAccountCredentials": False,
            "AllowUntaggedCloud": False,
            "RouteReconciliationPeriod": "10s",
            "ClusterName": "kubernetes",
            "ClusterCIDR": "",
            "AllocateNodeCIDRs": False,
            "CIDRAllocatorType": "RangeAllocator",
            "ConfigureCloudRoutes": True,
            "NodeSyncPeriod": "0s",
        },
        "NodeController": {"ConcurrentNodeSyncs": 1, "ConcurrentNodeStatusUpdates": 1},
        "NodeLifecycleController": {
            "NodeMonitorPeriod": "5s",
            "ConcurrentNodeLifecycleSyncs": 1,
        },
        "ServiceController": {"ConcurrentServiceSyncs": 1},
        "NodeStatusUpdateFrequency": "5m0s",
        "Webhook": {"Webhooks": None},
    }
}


def test_configz_shows_the_configuration_with_durations_as_text():
    line = ("--cloud-provider=local", "--min-resync-period=100m", "--controllers=*,-route")
    config = build_config(gather(TABLE, "ccm", line, {}).values)

    document = json.loads(json.dumps(configz(config)))

    assert document == EXPECTED


def test_configz_shows_the_migration_that_is_in_use():
    line = ("--cloud-provider=local", "--enable-leader-migration")
    config = build_config(gather(TABLE, "ccm", line, {}).values)

    shown = json.dumps(configz(config, DEFAULT))

    assert '"leaderName": "cloud-provider-extraction-migration"' in shown
    assert '{"name": "cloud-node-lifecycle-controller", "component": "*"}' in shown


CONSTANT = {
    "kind",
    "apiVersion",
    "Generic.Port",
    "Generic.Address",
    "Generic.ClientConnection.acceptContentTypes",
}
"""Fields that no flag changes, in Go as well."""
FIELDS: Mapping[str, tuple[str, object]] = {
    "Generic.MinResyncPeriod": ("--min-resync-period=90m", "1h30m0s"),
    "Generic.ClientConnection.kubeconfig": ("--kubeconfig=/k", "/k"),
    "Generic.ClientConnection.contentType": (
        "--kube-api-content-type=application/json",
        "application/json",
    ),
    "Generic.ClientConnection.qps": ("--kube-api-qps=2.5", 2.5),
    "Generic.ClientConnection.burst": ("--kube-api-burst=7", 7),
    "Generic.ControllerStartInterval": ("--controller-start-interval=1500ms", "1.5s"),
    "Generic.LeaderElection.leaderElect": ("--leader-elect=false", False),
    "Generic.LeaderElection.leaseDuration": ("--leader-elect-lease-duration=70s", "1m10s"),
    "Generic.LeaderElection.renewDeadline": ("--leader-elect-renew-deadline=9s", "9s"),
    "Generic.LeaderElection.retryPeriod": ("--leader-elect-retry-period=1s", "1s"),
    "Generic.LeaderElection.resourceLock": ("--leader-elect-resource-lock=x", "x"),
    "Generic.LeaderElection.resourceName": ("--leader-elect-resource-name=x", "x"),
    "Generic.LeaderElection.resourceNamespace": ("--leader-elect-resource-namespace=x", "x"),
    "Generic.Controllers": (
        "--controllers=cloud-node,-route",
        [
            "cloud-node-controller",
            "-node-route-controller",
        ],
    ),
    "Generic.Debugging.enableProfiling": ("--profiling=false", False),
    "Generic.Debugging.enableContentionProfiling": ("--contention-profiling", True),
    "Generic.LeaderMigrationEnabled": ("--enable-leader-migration", True),
    "KubeCloudShared.CloudProvider.Name": ("--cloud-provider=x", "x"),
    "KubeCloudShared.CloudProvider.CloudConfigFile": ("--cloud-config=/c", "/c"),
    "KubeCloudShared.ExternalCloudVolumePlugin": ("--external-cloud-volume-plugin=x", "x"),
    "KubeCloudShared.UseServiceAccountCredentials": ("--use-service-account-credentials", True),
    "KubeCloudShared.AllowUntaggedCloud": ("--allow-untagged-cloud", True),
    "KubeCloudShared.RouteReconciliationPeriod": ("--route-reconciliation-period=1m", "1m0s"),
    "KubeCloudShared.ClusterName": ("--cluster-name=x", "x"),
    "KubeCloudShared.ClusterCIDR": ("--cluster-cidr=10.0.0.0/8", "10.0.0.0/8"),
    "KubeCloudShared.AllocateNodeCIDRs": ("--allocate-node-cidrs", True),
    "KubeCloudShared.CIDRAllocatorType": ("--cidr-allocator-type=x", "x"),
    "KubeCloudShared.ConfigureCloudRoutes": ("--configure-cloud-routes=false", False),
    "KubeCloudShared.NodeSyncPeriod": ("--node-sync-period=1s", "1s"),
    "NodeController.ConcurrentNodeSyncs": ("--concurrent-node-syncs=5", 5),
    "NodeController.ConcurrentNodeStatusUpdates": ("--concurrent-node-status-updates=6", 6),
    "NodeLifecycleController.NodeMonitorPeriod": ("--node-monitor-period=7s", "7s"),
    "NodeLifecycleController.ConcurrentNodeLifecycleSyncs": (
        "--concurrent-node-lifecycle-syncs=8",
        8,
    ),
    "ServiceController.ConcurrentServiceSyncs": ("--concurrent-service-syncs=9", 9),
    "NodeStatusUpdateFrequency": ("--node-status-update-frequency=10s", "10s"),
    "Webhook.Webhooks": ("--webhooks=a,b", ["a", "b"]),
}
"""A flag for each field, and what the field then shows."""
MIGRATION = {
    "Generic.LeaderMigration.leaderName",
    "Generic.LeaderMigration.resourceLock",
    "Generic.LeaderMigration.controllerLeaders",
}
"""Fields of the file of `--leader-migration-config`."""


def shown(*line: str) -> dict[str, object]:
    config = build_config(gather(TABLE, "ccm", line, {}).values)
    (document,) = json.loads(json.dumps(configz(config))).values()
    return dict(leaves(document))


def leaves(document: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from leaves(cast("dict[str, Any]", value), f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def test_every_field_of_configz_is_of_a_flag_or_constant():
    assert set(shown()) == set(FIELDS) | CONSTANT | MIGRATION


@pytest.mark.parametrize(("field", "flag", "value"), [(k, *v) for k, v in FIELDS.items()])
def test_each_flag_shows_in_its_field(field: str, flag: str, value: object):
    assert shown()[field] != value
    assert shown(flag)[field] == value


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ((), 1),
        (("--concurrent-node-syncs=5",), 5),
        (("--concurrent-node-syncs=5", "--concurrent-node-status-updates=0"), 5),
        (("--concurrent-node-syncs=5", "--concurrent-node-status-updates=-1"), 5),
        (("--concurrent-node-syncs=5", "--concurrent-node-status-updates=3"), 3),
    ],
)
def test_concurrent_node_status_updates_shows_the_number_in_effect(
    line: tuple[str, ...], value: int
):
    assert shown(*line)["NodeController.ConcurrentNodeStatusUpdates"] == value
