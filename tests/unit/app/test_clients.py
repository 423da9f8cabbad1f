"""Clients: whose credentials, at what rate, and what may leave by them."""

import asyncio

import pytest

from pileus.app.clients import Rate, user_agent
from pileus.cloud.interface import Cloud
from pileus.fence import Fenced, Open
from pileus.kube.config.service_account import ServiceAccountCredentials
from pileus.kube.errors import ReadOnly
from pileus.kube.model.core_v1 import NODES
from pileus.kube.patch import MergePatch
from pileus.kube.settings import ClientSettings
from pileus.kube.transport import reads
from tests.unit.app.stage import ACCESS, Kube, configured, manager_context

BARE = Cloud(name="fake")
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}


@pytest.mark.parametrize(
    ("arguments", "rate"),
    [
        ([], None),
        (["--kube-api-qps=5"], Rate(5, 30)),
        (["--kube-api-burst=7"], Rate(20, 7)),
        (["--kube-api-qps=5", "--kube-api-burst=7"], Rate(5, 7)),
        (["--kube-api-qps=-1", "--kube-api-burst=7"], None),
        (["--kube-api-qps=0"], Rate(5, 30)),
        (["--kube-api-burst=0"], Rate(20, 10)),
        (["--kube-api-qps=0", "--kube-api-burst=0"], Rate(5, 10)),
    ],
)
def test_a_fixed_rate_holds_only_if_asked_for(arguments: list[str], rate: Rate | None):
    assert Rate.of(configured(*arguments)[ClientSettings]) == rate


async def test_each_controller_has_the_whole_rate_for_itself():
    async with manager_context(BARE, "--kube-api-qps=1", "--kube-api-burst=1") as context:
        first, second = (context.clients.controller(name, fence=Open()) for name in ("a", "b"))
        now = asyncio.get_running_loop().time
        for client in (first, second):
            await client.raw("GET", "/healthz")
        assert now() == 0
        await first.raw("GET", "/healthz")

        assert now() == pytest.approx(1)


def test_the_user_agent_says_program_version_system_and_part():
    program, system, library = user_agent("node-controller").split(" ")

    assert program.startswith("cloud-controller-manager/v1.")
    assert system.startswith("(linux/")
    assert library.startswith("kubernetes/pileus-")
    assert library.endswith("/node-controller")


async def test_requests_are_json_whatever_content_type_is_asked_for():
    kube, flag = Kube(), "--kube-api-content-type=application/vnd.kubernetes.protobuf"
    async with manager_context(BARE, flag, kube=kube) as context:
        client = context.clients.main("a")
        await client.create(NODES, NODE)
        await client.patch(NODES, "n1", MergePatch({"metadata": {"labels": {"a": "b"}}}))
        await client.list(NODES)

    headers = [request.headers for _, request in kube.requests]
    assert [each.get("Content-Type") for each in headers] == [
        "application/json",
        "application/merge-patch+json",
        None,
    ]
    assert {each["Accept"] for each in headers} == {"application/json"}


async def test_without_accounts_of_their_own_all_use_the_managers_credentials():
    kube = Kube()
    async with manager_context(BARE, kube=kube) as context:
        for name in ("node-controller", "service-controller"):
            assert context.clients.access_of(name) is ACCESS
            await context.clients.controller(name, fence=Open()).raw("GET", "/healthz")

    assert [wire.access for wire in kube.wires] == [ACCESS]
    agents = [request.headers["User-Agent"] for _, request in kube.requests]
    assert agents == [user_agent("node-controller"), user_agent("service-controller")]


async def test_with_accounts_of_their_own_each_has_its_connection_and_one_token():
    kube = Kube()
    async with manager_context(BARE, "--use-service-account-credentials", kube=kube) as context:
        first = context.clients.access_of("node-controller")
        for name in ("node-controller", "node-controller", "service-controller"):
            await context.clients.controller(name, fence=Open()).raw("GET", "/healthz")

        assert context.clients.access_of("node-controller") is first
        assert isinstance(first.credentials, ServiceAccountCredentials)
        own = [wire.access for wire in kube.wires if wire.access is not ACCESS]
        assert own == [first, context.clients.access_of("service-controller")]
        assert all(wire.is_open for wire in kube.wires)

    assert not any(wire.is_open for wire in kube.wires)


async def test_a_token_does_not_wait_behind_the_requests_that_wait_for_tokens():
    kube = Kube(hangs={"/slow"})
    async with (
        manager_context(BARE, "--use-service-account-credentials", kube=kube) as context,
        asyncio.TaskGroup() as group,
    ):
        slow = context.clients.main("slow")
        waiting = [group.create_task(slow.raw("GET", "/slow")) for _ in range(100)]
        await asyncio.sleep(1)

        async with asyncio.timeout(1):
            headers = await context.clients.access_of("node-controller").credentials.headers()

        assert headers["Authorization"].startswith("Bearer ")
        for task in waiting:
            task.cancel()


@pytest.mark.parametrize("made", ["main", "own", "controller"])
async def test_what_is_not_permitted_leaves_by_no_client(made: str):
    kube = Kube()
    async with manager_context(BARE, kube=kube, permits=reads) as context:
        clients = {
            "main": context.clients.main("a"),
            "own": context.clients.own("leader-election"),
            "controller": context.clients.controller("node-controller", fence=Open()),
        }

        assert (await clients[made].list(NODES)).items == ()
        with pytest.raises(ReadOnly, match="not sent"):
            await clients[made].create(NODES, NODE)

    assert {request.method for _, request in kube.requests} == {"GET"}


async def test_a_dry_run_makes_no_tokens_and_so_keeps_its_own_identity():
    kube = Kube()
    async with manager_context(
        BARE, "--dry-run", "--use-service-account-credentials", kube=kube
    ) as context:
        assert context.clients.access_of("node-controller") is ACCESS


class Closed:
    def check(self) -> None:
        raise Fenced("the lease is too old")


async def test_a_controller_that_does_not_lead_reads_but_does_not_write():
    async with manager_context(BARE) as context:
        client = context.clients.controller("node-controller", fence=Closed())

        assert (await client.list(NODES)).items == ()
        with pytest.raises(Fenced):
            await client.create(NODES, NODE)
