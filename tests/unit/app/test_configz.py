"""`/configz` has the shape of the Go program's."""

import json

from pileus.app.config import build_config
from pileus.app.configz import configz
from pileus.app.declared.table import TABLE
from pileus.app.migration import DEFAULT
from pileus.app.settings import gather

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
        "NodeController": {"ConcurrentNodeSyncs": 1, "ConcurrentNodeStatusUpdates": 0},
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
