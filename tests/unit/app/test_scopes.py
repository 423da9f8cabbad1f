"""Routes, SSH keys, orphans and explanations in a manager with two clouds: each names its cloud."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pileus.app.explain.explain import explain
from pileus.app.explain.explanation import Explanation, State
from pileus.app.orphans import OrphanReport, delete_orphans, find_orphans
from pileus.app.plan import read_only_context
from pileus.cli.cluster_command import check_exists
from pileus.cli.explain import as_text as explained
from pileus.cli.orphans import FAILED, FOUND, as_text, document, exit_code
from pileus.cli.terminal import Style
from pileus.cloud.balancer import BalancerState, Notice
from pileus.cloud.errors import Unauthorized, Unavailable
from pileus.cloud.model import Failure, NodeKeys, NodeName, NodeRef
from pileus.kube.model.core_v1 import NODES, SERVICES
from pileus.kube.patch import MergePatch
from pileus.objects.preview import Scope
from pileus.testing.virtual_time import LoopClock
from tests.contract.keyring import Keyring
from tests.unit.app.several import TwoClouds, two_clouds
from tests.unit.controllers.route.site import FakeRoutes
from tests.unit.controllers.service.plain import Change as PlainChange
from tests.unit.controllers.service.plain import PlainBalancers, Seen
from tests.unit.controllers.ssh_keys.keys import public_key


def targets(routes: FakeRoutes) -> dict[str, str]:
    return {destination: str(route.target) for destination, route in routes.table.items()}


async def add_nodes(it: TwoClouds) -> None:
    """n1 of cloud a, and n2 of cloud b, each with a pod range."""
    for number, account in enumerate((it.a, it.b), 1):
        name = f"n{number}"
        account.machines.names.add(name)
        await it.add_node(name, f"{account.name}://{name}")
        ranges = {"spec": {"podCIDR": f"10.0.{number}.0/24", "podCIDRs": [f"10.0.{number}.0/24"]}}
        await it.user.patch(NODES, name, MergePatch(ranges))


async def test_each_cloud_gets_the_routes_of_its_own_nodes():
    async with two_clouds() as it:
        at_a, at_b = FakeRoutes(), FakeRoutes()
        it.a.cloud, it.b.cloud = replace(it.a.cloud, routes=at_a), replace(it.b.cloud, routes=at_b)
        await add_nodes(it)
        async with it.managed("--cluster-cidr=10.0.0.0/16"):
            await asyncio.sleep(60)
            assert targets(at_a) == {"10.0.1.0/24": "n1"}
            assert targets(at_b) == {"10.0.2.0/24": "n2"}

            await it.user.delete(NODES, "n1")
            await asyncio.sleep(1200)
            assert targets(at_a) == {}
            assert targets(at_b) == {"10.0.2.0/24": "n2"}


async def test_a_cloud_that_cannot_list_its_routes_delays_no_route_of_another():
    async with two_clouds() as it:
        at_a, at_b = FakeRoutes(list_error=Unavailable("a is down")), FakeRoutes()
        it.a.cloud, it.b.cloud = replace(it.a.cloud, routes=at_a), replace(it.b.cloud, routes=at_b)
        await add_nodes(it)
        flags = ("--cluster-cidr=10.0.0.0/16", "--route-reconciliation-period=10s")
        async with it.managed(*flags):
            await asyncio.sleep(60)

            assert targets(at_b) == {"10.0.2.0/24": "n2"}
            assert targets(at_a) == {}

            at_a.list_error = None
            await asyncio.sleep(600)
            assert targets(at_a) == {"10.0.1.0/24": "n1"}


class Keys(Keyring):
    """The keys of one cloud's machines, and for which nodes they were asked."""

    def __init__(self, *machines: str) -> None:
        super().__init__({name: {} for name in machines})
        self.asked: set[str] = set()

    async def list_keys(
        self, cluster: str, nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, NodeKeys | Failure]:
        self.asked |= {node.name for node in nodes}
        return await super().list_keys(cluster, nodes)


async def test_each_cloud_is_given_the_ssh_keys_for_its_own_nodes(tmp_path):
    file = tmp_path / "authorized_keys"
    file.write_text(json.dumps({"ann": public_key("ann")}))
    async with two_clouds() as it:
        at_a, at_b = Keys("n1", "n2"), Keys("n1", "n2")
        it.a.cloud = replace(it.a.cloud, ssh_keys=at_a)
        it.b.cloud = replace(it.b.cloud, ssh_keys=at_b)
        await add_nodes(it)
        async with it.managed(f"--ssh-keys-from=file:{file}"):
            await asyncio.sleep(120)

            assert {name: len(keys) for name, keys in at_a.machines.items()} == {"n1": 1, "n2": 0}
            assert {name: len(keys) for name, keys in at_b.machines.items()} == {"n1": 0, "n2": 1}
            assert (at_a.asked, at_b.asked) == ({"n1"}, {"n2"})


async def abandon(it: TwoClouds) -> dict[str, str]:
    """Leave a load balancer without a Service in each cloud. Returns its UID by cloud."""
    await add_nodes(it)
    uids: dict[str, str] = {}
    async with it.managed():
        for cloud in ("a", "b"):
            uids[cloud] = await it.add_service(f"old-{cloud}", f"pileus.dev/{cloud}")
        await asyncio.sleep(30)
    for cloud in ("a", "b"):
        without = MergePatch({"metadata": {"finalizers": None}})
        await it.user.patch(SERVICES, f"old-{cloud}", without, namespace="default")
        await it.user.delete(SERVICES, f"old-{cloud}", namespace="default")
    return uids


async def orphans(it: TwoClouds) -> OrphanReport:
    async with read_only_context(it.configured(), it.world()) as context:
        return await find_orphans(context)


async def test_orphans_are_listed_with_their_clouds():
    async with two_clouds() as it:
        uids = await abandon(it)

        found = await orphans(it)

        assert {each.cloud: each.owner.uid for each in found.orphans} == uids
        assert exit_code(found, None) == FOUND
        text = as_text(found, Style())
        assert f"Cloud a: Deleted Service with UID {uids['a']}" in text
        assert f"Cloud b: Deleted Service with UID {uids['b']}" in text
        assert [each["cloud"] for each in document(found, None)["orphans"]] == ["a", "b"]  # type: ignore[attr-defined]


async def test_a_cloud_that_is_not_connected_fails_the_command_and_the_others_are_listed():
    async with two_clouds() as it:
        uids = await abandon(it)
        it.a.error = Unauthorized("the key is wrong")

        found = await orphans(it)

        assert [(each.cloud, each.owner.uid) for each in found.orphans] == [("b", uids["b"])]
        assert exit_code(found, None) == FAILED
        (problem,) = found.problems
        assert "cloud a is not connected: the key is wrong" in problem
        assert problem in as_text(found, Style())
        assert document(found, None)["problems"] == [problem]


async def test_orphans_are_deleted_in_their_own_cloud():
    async with two_clouds() as it:
        uids = await abandon(it)
        found = await orphans(it)
        (of_b,) = [each for each in found.orphans if each.cloud == "b"]

        may = frozenset({"balancers.apply"})
        async with read_only_context(it.configured(), it.world(), may=may) as context:
            assert await delete_orphans(context, [of_b]) == {}

        assert [owner.uid for owner in it.a.balancers.standing] == [uids["a"]]
        assert it.b.balancers.standing == {}


async def told(it: TwoClouds, kind: str, name: str) -> Explanation:
    scope = Scope(kind, "" if kind == "Node" else "default", name)
    async with read_only_context(it.configured(), it.world()) as context:
        found = await check_exists(context, scope)
        assert found
        return await explain(context, found, scope)


async def test_explanations_name_the_cloud_of_a_node_and_of_a_service():
    async with two_clouds() as it:
        await add_nodes(it)
        async with it.managed():
            await it.add_service("web", "pileus.dev/b")
            await asyncio.sleep(30)

        node, service = await told(it, "Node", "n2"), await told(it, "Service", "web")

        assert "cloud b: it owns the provider ID" in node.owner
        text = explained(service, LoopClock().now(), Style())
        assert "cloud b" in service.owner
        assert "members: n2 (1 of 2 nodes)" in text
        assert "not a member: n1 (a machine of another cloud)" in text


async def test_the_explanation_of_a_service_with_members_of_all_clouds_lists_them():
    async with two_clouds() as it:
        await add_nodes(it)
        await it.add_service("web", "pileus.dev/b", **{"pileus.dev/members": "all"})

        text = explained(await told(it, "Service", "web"), LoopClock().now(), Style())

        assert "members: n1, n2 (2 of 2 nodes)" in text
        assert "not a member" not in text


async def test_a_service_of_a_cloud_that_is_not_connected_is_explained_with_that_cloud():
    async with two_clouds() as it:
        await add_nodes(it)
        await it.add_service("web", "pileus.dev/b")
        it.b.error = Unauthorized("the key is wrong")

        service = await told(it, "Service", "web")

        assert "cloud b" in service.owner
        assert "members: n2 (1 of 2 nodes)" in service.desired
        assert any("cloud b is not connected: the key is wrong" in each for each in service.actual)


async def test_a_node_of_a_cloud_that_is_not_connected_is_explained_with_that_cloud():
    async with two_clouds() as it:
        await add_nodes(it)
        it.b.error = Unauthorized("the key is wrong")

        node = await told(it, "Node", "n2")

        assert node.owner == ("cloud b: it owns the provider ID",)
        (desired,) = node.desired
        assert "cloud b is not connected: the key is wrong" in desired
        assert node.state is State.BLOCKED


async def test_objects_are_not_blocked_by_another_cloud_that_is_not_connected():
    async with two_clouds() as it:
        await add_nodes(it)
        async with it.managed():
            await it.add_service("web", "pileus.dev/b")
            await asyncio.sleep(30)
        it.a.error = Unauthorized("the key is wrong")

        assert (await told(it, "Node", "n2")).state is State.UP_TO_DATE
        assert (await told(it, "Service", "web")).state is State.UP_TO_DATE


async def test_a_service_that_is_no_longer_served_is_explained_with_the_cloud_that_served_it():
    async with two_clouds() as it:
        await add_nodes(it)
        async with it.managed():
            uid = await it.add_service("web", "pileus.dev/b")
            await asyncio.sleep(30)
        no_balancer = {"spec": {"type": "ClusterIP", "loadBalancerClass": None}}
        await it.user.patch(SERVICES, "web", MergePatch(no_balancer), namespace="default")

        service = await told(it, "Service", "web")

        assert any(f"load balancer lb-{uid}: ready" in each for each in service.actual)


async def test_the_explanation_of_a_node_of_no_cloud_names_all_clouds():
    async with two_clouds() as it:
        await it.add_node("n9", "other://n9")

        node = await told(it, "Node", "n9")

        assert node.owner == ("another cloud: none of a, b owns other://n9",)
        assert node.state is State.NOT_MANAGED


async def test_the_explanation_of_a_node_that_no_lookup_has_decided_names_the_candidates():
    async with two_clouds() as it:
        await it.add_node("n9")
        it.b.error = Unauthorized("the key is wrong")

        node = await told(it, "Node", "n9")

        assert node.owner == ("no cloud yet: only lookups in a, b can tell",)
        assert node.state is State.BLOCKED


async def test_the_explanation_of_a_service_has_the_notices_of_its_provider():
    async with two_clouds() as it:
        await add_nodes(it)
        notice = Notice("SourceRangesIgnored", "this cloud cannot restrict clients")
        it.a.balancers.reports = lambda seen: {"notices": (notice,)}
        async with it.managed():
            await it.add_service("web")
            await asyncio.sleep(30)

        service = await told(it, "Service", "web")

        assert "SourceRangesIgnored: this cloud cannot restrict clients" in service.actual


class SlowDeletion(PlainBalancers):
    """A deletion takes ten seconds, in which the load balancer is pending."""

    async def apply(self, change: PlainChange, seen: Seen) -> Seen:
        after = replace(seen, state=BalancerState.PENDING)
        self.standing[seen.owner] = after
        asyncio.get_running_loop().call_later(10, self.standing.pop, seen.owner)
        self.changed.append((seen.owner.uid, change.effect))
        return after


async def test_the_deletion_of_an_orphan_waits_until_the_cloud_has_deleted_it():
    async with two_clouds() as it:
        await abandon(it)
        slow = SlowDeletion(standing=it.b.balancers.standing)
        it.b.cloud = replace(it.b.cloud, balancers=slow)
        (of_b,) = [each for each in (await orphans(it)).orphans if each.cloud == "b"]
        began = asyncio.get_running_loop().time()

        may = frozenset({"balancers.apply"})
        async with read_only_context(it.configured(), it.world(), may=may) as context:
            assert await delete_orphans(context, [of_b]) == {}

        assert slow.standing == {}
        assert asyncio.get_running_loop().time() - began >= 10
        assert [effect for _, effect in slow.changed] == ["-"]
