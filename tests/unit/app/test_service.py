"""How the service controller is put into the process, with ported providers too."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from pileus.app.context import BuiltController
from pileus.app.leader import Leases, lead
from pileus.app.registry import Controllers
from pileus.app.validate import problems
from pileus.classic.errors import ImplementedElsewhere
from pileus.cloud.interface import Cloud
from pileus.controllers.service.descriptor import DESCRIPTOR
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import NAMESPACES, NODES, SERVICES
from pileus.kube.patch import MergePatch
from pileus.objects.descriptor import Skipped
from pileus.server.health import Health
from pileus.telemetry.log import VALUES
from tests.unit.app.stage import Kube, configured, manager_context
from tests.unit.classic.fakes import Provider, adapted
from tests.unit.controllers.service.plain import PlainBalancers

PATH = "/api/v1/namespaces/default/services/web"


@asynccontextmanager
async def managed(kube: Kube, cloud: Cloud, *flags: str) -> AsyncGenerator[Client]:
    """The manager with this controller alone; the client of a user."""
    async with manager_context(cloud, *flags, kube=kube) as context, asyncio.TaskGroup() as group:
        alone = replace(context, controllers=Controllers(DESCRIPTOR))
        task = group.create_task(lead(alone, Leases(), Health()))
        try:
            yield context.clients.own("user")
        finally:
            task.cancel()


async def furnish(user: Client) -> None:
    for name in ("a", "b"):
        await user.create(NODES, {"metadata": {"name": name}})
    body = {
        "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    }
    await user.create(SERVICES, body, namespace="default")


async def service(user: Client) -> dict[str, Any]:
    return json.loads(await user.raw("GET", PATH))


async def test_it_is_skipped_where_the_cloud_has_no_balancers():
    async with manager_context(Cloud(name="fake")) as context:
        built = context.build(DESCRIPTOR)

    assert isinstance(built, Skipped)
    assert "load balancers" in built.why


async def test_it_is_ready_to_run():
    async with manager_context(Cloud(name="fake", balancers=PlainBalancers())) as context:
        built = context.build(DESCRIPTOR)

    assert isinstance(built, BuiltController)
    assert built.controller.stuck(DESCRIPTOR.stuck_after) is None


@pytest.mark.parametrize(
    ("flag", "what"),
    [
        ("--service-orphans=remove", "service-orphans must be one of ignore, report, delete"),
        ("--service-classes=fast", 'service-classes: "fast" must be a name such as'),
        ("--service-drift-period=-1s", "service-drift-period must not be negative"),
        ("--concurrent-service-syncs=0", "concurrent-service-syncs must be at least 1"),
    ],
)
def test_flags_that_make_no_sense_are_refused(flag: str, what: str):
    found = problems(configured("--cloud-provider=x", flag))

    assert any(what in problem for problem in found)


def test_flags_that_make_sense_are_taken():
    flags = ("--service-classes=-,example.com/fast", "--service-orphans=delete")

    assert problems(configured("--cloud-provider=x", *flags)) == ()


async def test_the_clusters_id_is_the_uid_of_kube_system():
    kube, cloud = Kube(), PlainBalancers()
    async with managed(kube, Cloud(name="fake", balancers=cloud)) as user:
        await furnish(user)
        await asyncio.sleep(10)

        uid = (await user.get(NAMESPACES, "kube-system")).metadata.uid
        assert {owner.cluster for owner in cloud.standing} == {uid}


async def test_the_clusters_id_can_be_given():
    kube, cloud = Kube(), PlainBalancers()
    async with managed(kube, Cloud(name="fake", balancers=cloud), "--cluster-id=blue") as user:
        await furnish(user)
        await asyncio.sleep(10)

        assert {owner.cluster for owner in cloud.standing} == {"blue"}
        assert all(not request.path.endswith("kube-system") for _, request in kube.requests)


async def test_without_the_clusters_id_nothing_is_done_and_the_log_says_what_to_do(
    caplog: pytest.LogCaptureFixture,
):
    kube, cloud = Kube(), PlainBalancers()
    kube.refuses.add("/api/v1/namespaces/kube-system")
    async with managed(kube, Cloud(name="fake", balancers=cloud)) as user:
        await furnish(user)
        await asyncio.sleep(300)
        assert (cloud.looks, cloud.standing) == ([], {})
        assert "grant get on namespace kube-system, or set --cluster-id" in str([
            vars(record)[VALUES] for record in caplog.records
        ])

        kube.refuses.clear()
        await asyncio.sleep(100)
        assert len(cloud.standing) == 1


async def test_a_class_is_served_that_a_flag_names_and_none_if_it_says_so():
    kube, cloud = Kube(), PlainBalancers()
    flags = ("--service-classes=-,example.com/fast",)
    async with managed(kube, Cloud(name="fake", balancers=cloud), *flags) as user:
        for name, chosen in (("own", "pileus.dev/fake"), ("fast", "example.com/fast"), ("x", None)):
            spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerClass": chosen}
            body = {"metadata": {"name": name}, "spec": spec}
            await user.create(SERVICES, body, namespace="default")
        await asyncio.sleep(10)

        assert len(cloud.standing) == 2


async def test_a_ported_provider_is_called_as_the_go_framework_calls_it():
    kube, provider = Kube(), Provider()
    async with managed(kube, adapted(provider)) as user:
        await furnish(user)
        await asyncio.sleep(10)
        assert provider.record.names == ["initialize", "ensure"]
        assert provider.record.calls[-1][-1] == ["a", "b"]
        ingress = (await service(user))["status"]["loadBalancer"]["ingress"]
        assert ingress == [{"ip": "203.0.113.7", "ipMode": "VIP"}]

        await user.create(NODES, {"metadata": {"name": "c"}})
        await asyncio.sleep(10)
        assert provider.record.names[2:] == ["update"]
        assert provider.record.calls[-1][-1] == ["a", "b", "c"]

        await user.patch(
            SERVICES,
            "web",
            MergePatch({"spec": {"sessionAffinity": "ClientIP"}}),
            namespace="default",
        )
        await asyncio.sleep(10)
        assert provider.record.names[3:] == ["ensure"]

        await user.delete(SERVICES, "web", namespace="default")
        await asyncio.sleep(10)
        assert provider.record.names[4:] == ["get", "delete", "get"]


async def test_a_ported_provider_is_left_alone_by_a_restart_when_nothing_changed():
    kube, provider = Kube(), Provider()
    async with managed(kube, adapted(provider)) as user:
        await furnish(user)
        await asyncio.sleep(10)
    provider.record.calls.clear()
    before = len(kube.requests)

    async with managed(kube, adapted(provider)):
        await asyncio.sleep(60)

    assert provider.record.names == ["initialize"]
    assert [r.path for _, r in kube.requests[before:] if r.method == "PATCH"] == []


async def test_a_balancer_that_is_made_elsewhere_is_left_to_others():
    kube, provider = Kube(), Provider()
    provider.record.answers["ensure"] = ImplementedElsewhere()
    async with managed(kube, adapted(provider)) as user:
        await furnish(user)
        await asyncio.sleep(60)

        assert provider.record.names == ["initialize", "ensure"]
        status = (await service(user))["status"]
        assert status["loadBalancer"] == {}
        assert status["conditions"][0]["reason"] == "ImplementedElsewhere"
