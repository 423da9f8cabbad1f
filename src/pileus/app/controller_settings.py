"""From the configuration to the settings of each controller, by the type that it declares."""

from collections.abc import Callable
from typing import Any, TypeVar

from pileus.app.config import Config
from pileus.controllers.ipam.descriptor import IpamFlags
from pileus.controllers.ipam.sizes import Asked
from pileus.controllers.lifecycle.descriptor import LifecycleFlags
from pileus.controllers.node.descriptor import NodeFlags
from pileus.controllers.route.descriptor import RouteFlags
from pileus.controllers.service.descriptor import ServiceFlags
from pileus.controllers.ssh_keys.descriptor import SshKeyFlags
from pileus.objects.descriptor import ControllerDescriptor

S = TypeVar("S")


def settings_of(config: Config, descriptor: ControllerDescriptor[S]) -> S:
    """Returns the settings of a controller. A type without flags gets its defaults."""
    made: dict[type[Any], Callable[[Config], Any]] = {
        NodeFlags: _node,
        LifecycleFlags: _lifecycle,
        ServiceFlags: _service,
        RouteFlags: _route,
        IpamFlags: _ipam,
        SshKeyFlags: lambda given: SshKeyFlags(source=given.ssh_keys_from),
    }
    make = made.get(descriptor.settings)
    return make(config) if make else descriptor.settings()


def asked_of(config: Config) -> Asked:
    """Returns the flags about pod ranges."""
    return Asked(
        cluster_cidr=config.shared.cluster_cidr,
        service_range=config.ipam.service_cluster_ip_range,
        mask_size=config.ipam.node_cidr_mask_size,
        mask_size_ipv4=config.ipam.node_cidr_mask_size_ipv4,
        mask_size_ipv6=config.ipam.node_cidr_mask_size_ipv6,
        allocator=config.shared.cidr_allocator_type,
    )


def _node(config: Config) -> NodeFlags:
    given = config.node
    return NodeFlags(
        workers=given.workers,
        status_workers=given.status_workers,
        status_update_frequency=given.status_update_frequency,
        label_sync=given.label_sync,
    )


def _lifecycle(config: Config) -> LifecycleFlags:
    given = config.lifecycle
    return LifecycleFlags(
        monitor_period=given.monitor_period,
        workers=given.workers,
        deletion_policy=given.deletion_policy,
        deletion_grace=given.deletion_grace,
        deletion_unidentified_grace=given.deletion_unidentified_grace,
        deletion_max_fraction=given.deletion_max_fraction,
        deletion_window=given.deletion_window,
        out_of_service_taint=given.out_of_service_taint,
    )


def _service(config: Config) -> ServiceFlags:
    given = config.service
    return ServiceFlags(
        workers=given.workers,
        classes=given.classes,
        drift_period=given.drift_period,
        drain_cordoned=given.drain_cordoned,
        orphans=given.orphans,
    )


def _route(config: Config) -> RouteFlags:
    return RouteFlags(
        configure_cloud_routes=config.shared.configure_cloud_routes,
        cluster_cidr=config.shared.cluster_cidr,
        ownership=config.route.ownership,
        watch_based=config.route.watch_based,
        period=config.route.period,
    )


def _ipam(config: Config) -> IpamFlags:
    return IpamFlags(allocate_node_cidrs=config.shared.allocate_node_cidrs, ranges=asked_of(config))
