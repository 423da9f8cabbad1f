"""The answer of `/configz`: the configuration in the shape that the Go program gives it."""

from collections.abc import Mapping

from pileus.app.config import Config
from pileus.app.declared import generic
from pileus.app.migration import Migration
from pileus.app.registry import CONTROLLERS
from pileus.settings.go_duration import render_duration

GROUP = "cloudcontrollermanager.config.k8s.io"


def configz(config: Config, migration: Migration | None = None) -> Mapping[str, object]:
    """Return a document of plain values, ready for JSON. `migration`: the file in use, if any."""
    return {
        GROUP: {
            "kind": "CloudControllerManagerConfiguration",
            "apiVersion": f"{GROUP}/v1alpha1",
            "Generic": _generic(config, migration),
            "KubeCloudShared": _shared(config),
            "NodeController": {
                "ConcurrentNodeSyncs": config.node.concurrent_syncs,
                "ConcurrentNodeStatusUpdates": _status_updates(config),
            },
            "NodeLifecycleController": {
                "NodeMonitorPeriod": render_duration(config.lifecycle.monitor_period),
                "ConcurrentNodeLifecycleSyncs": config.lifecycle.concurrent_syncs,
            },
            "ServiceController": {"ConcurrentServiceSyncs": config.service.concurrent_syncs},
            "NodeStatusUpdateFrequency": render_duration(config.node.status_update_frequency),
            "Webhook": {"Webhooks": list(config.webhooks.entries) or None},
        }
    }


def _status_updates(config: Config) -> int:
    """The number in effect: zero or less means as many as `--concurrent-node-syncs`."""
    asked = config.node.concurrent_status_updates
    return asked if asked > 0 else config.node.concurrent_syncs


def _generic(config: Config, migration: Migration | None) -> Mapping[str, object]:
    client = config.client
    return {
        "Port": 0,
        "Address": "0.0.0.0",  # noqa: S104 -- a constant of the Go program; nothing listens on it
        "MinResyncPeriod": render_duration(config.generic.min_resync_period),
        "ClientConnection": {
            "kubeconfig": client.kubeconfig,
            "acceptContentTypes": "",
            "contentType": client.content_type,
            "qps": generic.KUBE_API_QPS.default if client.qps is None else client.qps,
            "burst": generic.KUBE_API_BURST.default if client.burst is None else client.burst,
        },
        "ControllerStartInterval": render_duration(config.generic.controller_start_interval),
        "LeaderElection": _leader_election(config),
        "Controllers": [CONTROLLERS.resolve(entry) for entry in config.generic.controllers],
        "Debugging": {
            "enableProfiling": config.generic.profiling,
            "enableContentionProfiling": config.generic.contention_profiling,
        },
        "LeaderMigrationEnabled": config.leader_migration.enabled,
        "LeaderMigration": _leader_migration(migration),
    }


def _leader_election(config: Config) -> Mapping[str, object]:
    election = config.leader_election
    return {
        "leaderElect": election.enabled,
        "leaseDuration": render_duration(election.durations.lease),
        "renewDeadline": render_duration(election.durations.renew_deadline),
        "retryPeriod": render_duration(election.durations.retry),
        "resourceLock": election.resource_lock,
        "resourceName": election.resource_name,
        "resourceNamespace": election.resource_namespace,
    }


def _leader_migration(migration: Migration | None) -> Mapping[str, object]:
    if migration is None:
        return {"leaderName": "", "resourceLock": "", "controllerLeaders": None}
    return {
        "leaderName": migration.leader_name,
        "resourceLock": migration.resource_lock,
        "controllerLeaders": [
            {"name": leader.name, "component": leader.component}
            for leader in migration.controller_leaders
        ],
    }


def _shared(config: Config) -> Mapping[str, object]:
    shared = config.shared
    return {
        "CloudProvider": {
            "Name": shared.cloud_provider,
            "CloudConfigFile": shared.cloud_config_file,
        },
        "ExternalCloudVolumePlugin": shared.external_cloud_volume_plugin,
        "UseServiceAccountCredentials": shared.use_service_account_credentials,
        "AllowUntaggedCloud": shared.allow_untagged_cloud,
        "RouteReconciliationPeriod": render_duration(shared.route_reconciliation_period),
        "ClusterName": shared.cluster_name,
        "ClusterCIDR": shared.cluster_cidr,
        "AllocateNodeCIDRs": shared.allocate_node_cidrs,
        "CIDRAllocatorType": shared.cidr_allocator_type,
        "ConfigureCloudRoutes": shared.configure_cloud_routes,
        "NodeSyncPeriod": render_duration(shared.node_sync_period),
    }
