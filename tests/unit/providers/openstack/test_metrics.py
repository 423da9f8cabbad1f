"""Metrics of the provider: names, labels and bounds are those of the Go OpenStack manager.

They are written here as its page docs/metrics.md has them, never taken from our code.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from pileus.cloud.errors import NotFound, Unavailable
from pileus.cloud.interface import Reconciliation
from pileus.providers.openstack.api import Call, Client, Service
from pileus.providers.openstack.metrics import MeasuredApi, OpenStackMetrics
from pileus.server.metrics import prometheus_text
from tests.unit.providers.openstack.balancer_site import Site

NAMED = """
    flavor_get floating_ip_create floating_ip_delete floating_ip_list floating_ip_update
    loadbalancer_create loadbalancer_delete loadbalancer_get loadbalancer_healthmonitor_create
    loadbalancer_healthmonitor_delete loadbalancer_list loadbalancer_listener_create
    loadbalancer_listener_delete loadbalancer_listener_list loadbalancer_listener_update
    loadbalancer_member_create loadbalancer_member_delete loadbalancer_member_list
    loadbalancer_members_update loadbalancer_pool_create loadbalancer_pool_delete
    loadbalancer_pool_list loadbalancer_pool_update loadbalancer_update network_extension_list
    network_list port_get port_list port_update router_get router_update secret_list
    security_group_create security_group_delete security_group_rule_create
    security_group_rule_delete server_get server_list server_os_interface_list subnet_get
    subnet_list version_list
"""
"""Values of `request` that the Go manager has."""
OURS = {
    "floating_ip_get",
    "floating_ip_tag_update",
    "loadbalancer_healthmonitor_get",
    "security_group_list",
    "security_group_tag_update",
}
"""Requests that the Go manager does not send."""
LB, NETWORK = Service.LOAD_BALANCER, Service.NETWORK
REQUEST_BOUNDS = "0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 +Inf"
RECONCILE_BOUNDS = (
    "0.01 0.05 0.1 0.5 1 2.5 5 7.5 10 12.5 15 17.5 20 22.5 25 27.5 30 50 75 100 1000 +Inf"
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Answering:
    """Takes two seconds for each request."""

    def __init__(self, clock: Clock, error: Exception | None = None) -> None:
        self.clock = clock
        self.error = error

    async def call(self, call: Call) -> Any:
        del call
        self.clock.now += 2
        if self.error is not None:
            raise self.error
        return {}


def served(metrics: OpenStackMetrics) -> Mapping[str, str]:
    lines = prometheus_text(metrics.registry).decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def bounds_of(found: Mapping[str, str], name: str, label: str = "") -> str:
    lines = (line for line in found if line.startswith(f"{name}_bucket") and label in line)
    return " ".join(line.split('le="')[1].split('"')[0] for line in lines)


@pytest.mark.parametrize(
    ("service", "method", "path", "label"),
    [
        (LB, "GET", "/", "version_list"),
        (LB, "GET", "/v2.0/lbaas/loadbalancers", "loadbalancer_list"),
        (LB, "GET", "/v2.0/lbaas/loadbalancers/L", "loadbalancer_get"),
        (LB, "POST", "/v2.0/lbaas/loadbalancers", "loadbalancer_create"),
        (LB, "DELETE", "/v2.0/lbaas/loadbalancers/L", "loadbalancer_delete"),
        (LB, "PUT", "/v2.0/lbaas/listeners/L", "loadbalancer_listener_update"),
        (LB, "GET", "/v2.0/lbaas/pools/P/members", "loadbalancer_member_list"),
        (LB, "POST", "/v2.0/lbaas/pools/P/members", "loadbalancer_member_create"),
        (LB, "DELETE", "/v2.0/lbaas/pools/P/members/M", "loadbalancer_member_delete"),
        (LB, "PUT", "/v2.0/lbaas/pools/P/members", "loadbalancer_members_update"),
        (LB, "POST", "/v2.0/lbaas/healthmonitors", "loadbalancer_healthmonitor_create"),
        (NETWORK, "GET", "/v2.0/floatingips", "floating_ip_list"),
        (NETWORK, "PUT", "/v2.0/floatingips/F", "floating_ip_update"),
        (NETWORK, "GET", "/v2.0/extensions", "network_extension_list"),
        (NETWORK, "PUT", "/v2.0/routers/R/add_extraroutes", "router_update"),
        (NETWORK, "DELETE", "/v2.0/security-group-rules/S", "security_group_rule_delete"),
        (Service.COMPUTE, "GET", "/servers/detail", "server_list"),
        (Service.COMPUTE, "GET", "/servers/S", "server_get"),
        (Service.COMPUTE, "GET", "/servers/S/os-interface", "server_os_interface_list"),
        (Service.BLOCK_STORAGE, "POST", "/volumes/V/action", "volume_update"),
        (Service.KEY_MANAGER, "GET", "/v1/secrets/S", "secret_get"),
    ],
)
async def test_requests_are_counted_by_what_they_ask_for(
    service: Service, method: str, path: str, label: str
) -> None:
    clock = Clock()
    metrics = OpenStackMetrics(clock)
    await MeasuredApi(Answering(clock), metrics).call(
        Call(service=service, method=method, path=path)
    )

    found = served(metrics)
    assert found[f'openstack_api_requests_total{{request="{label}"}}'] == "1"
    assert found[f'openstack_api_request_duration_seconds_sum{{request="{label}"}}'] == "2"
    assert bounds_of(found, "openstack_api_request_duration_seconds") == REQUEST_BOUNDS
    assert not any("errors" in line for line in found)


@pytest.mark.parametrize(
    ("method", "error", "count"),
    [
        ("GET", Unavailable("on fire"), "1"),
        ("GET", NotFound("gone"), "1"),
        ("DELETE", NotFound("gone"), None),
        ("DELETE", Unavailable("on fire"), "1"),
    ],
)
async def test_failed_requests_are_errors_but_not_what_is_already_deleted(
    method: str, error: Exception, count: str | None
) -> None:
    clock = Clock()
    metrics = OpenStackMetrics(clock)
    call = Call(service=LB, method=method, path="/v2.0/lbaas/pools/P")
    with pytest.raises(type(error)):
        await MeasuredApi(Answering(clock, error), metrics).call(call)

    label = {"GET": "get", "DELETE": "delete"}[method]
    found = served(metrics)
    assert (
        found.get(f'openstack_api_request_errors_total{{request="loadbalancer_pool_{label}"}}')
        == count
    )
    assert found[f'openstack_api_requests_total{{request="loadbalancer_pool_{label}"}}'] == "1"


async def test_a_load_balancer_costs_requests_that_the_go_manager_names() -> None:
    site = Site(create_monitor=True, manage_security_groups=True)
    metrics = OpenStackMetrics(Clock())
    measured = Client(MeasuredApi(site.api, metrics))
    site.balancers = type(site.balancers)(measured, site.config, site.cluster_name, site)
    await site.settle(site.wish(), deep=True)
    await site.settle(site.wish(site.spec(site.nodes[:1], sticky_seconds=10800)), deep=True)
    await site.delete(site.wish())

    names = {
        line.split('"')[1]
        for line in served(metrics)
        if line.startswith("openstack_api_requests_total")
    }
    assert names <= {*NAMED.split(), *OURS}
    assert {"loadbalancer_create", "loadbalancer_delete", "loadbalancer_members_update"} <= names


def test_what_was_done_with_load_balancers_is_counted() -> None:
    metrics = OpenStackMetrics(Clock())
    for kind in Reconciliation:
        metrics.reconciled(kind, 20.0, has_failed=False)
    metrics.reconciled(Reconciliation.ENSURE, 5.0, has_failed=True)

    found, name = served(metrics), "cloudprovider_openstack_reconcile"
    assert found[f'{name}_total{{operation="loadbalancer_ensure"}}'] == "2"
    assert found[f'{name}_total{{operation="loadbalancer_update"}}'] == "1"
    assert found[f'{name}_total{{operation="loadbalancer_delete"}}'] == "1"
    assert found[f'{name}_errors_total{{operation="loadbalancer_ensure"}}'] == "1"
    assert f'{name}_errors_total{{operation="loadbalancer_update"}}' not in found
    assert bounds_of(found, f"{name}_duration_seconds", "delete") == RECONCILE_BOUNDS
