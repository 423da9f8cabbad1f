"""While it leads: what starts in which order, under which lock, and how everything ends.

All that against the worst behaviour of the API server and of the provider.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from pileus.app.context import ManagerContext
from pileus.app.errors import Fatal
from pileus.app.leader import Leases, lead
from pileus.app.migration import ControllerLeader, Migration
from pileus.app.provider_access import View
from pileus.app.registry import CONTROLLERS, Controllers
from pileus.cloud.errors import Misconfigured
from pileus.cloud.interface import Cloud, OwnController
from pileus.controllers.node.descriptor import NODE
from pileus.controllers.route.descriptor import ROUTE
from pileus.controllers.service.descriptor import SERVICE
from pileus.kube.transport import Request
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerNames,
    RunningController,
    Skipped,
)
from pileus.runtime.cluster_access import KubernetesAccess
from pileus.runtime.leadership import LeadershipLost
from pileus.server.health import Health, Kind
from pileus.telemetry.log import VALUES
from pileus.testing.scripted import Answer, Lost, ScriptedTransport, refused
from pileus.testing.virtual_time import loop_time
from tests.unit.app.stage import Kube, Stub, described, election, manager_context

Start = Callable[[KubernetesAccess], AbstractAsyncContextManager[None]]

BARE = Cloud(name="fake")
THREE = (NODE, SERVICE, ROUTE)


@dataclass
class Diary:
    """What happened, in order, and when."""

    lines: list[str] = field(default_factory=list[str])
    times: list[float] = field(default_factory=list[float])
    contexts: dict[str, ControllerContext] = field(default_factory=dict[str, ControllerContext])

    def note(self, line: str) -> None:
        self.lines.append(line)
        self.times.append(loop_time())

    @asynccontextmanager
    async def lasting(self, name: str) -> AsyncGenerator[None]:
        self.note(f"+{name}")
        try:
            yield
        finally:
            self.note(f"-{name}")

    def controllers(self, *names: ControllerNames) -> Controllers:
        """Controllers that write into the diary when they start and stop."""
        return Controllers(*(described(one, self._built) for one in names or THREE))

    def _built(self, context: ControllerContext) -> RunningController:
        self.contexts[context.names.canonical] = context
        return Writing(self, context.names.canonical)


@dataclass
class Writing(Stub):
    diary: Diary
    name: str

    async def run(self) -> None:
        async with self.diary.lasting(self.name):
            await asyncio.get_running_loop().create_future()


NONE = Controllers()


async def lead_for(
    seconds: float,
    context: ManagerContext,
    controllers: Controllers,
    leases: Leases | None = None,
) -> list[str]:
    """Lead so long, then stop; returns the names of the health checks just before."""
    health = Health()
    async with asyncio.TaskGroup() as group:
        having = replace(context, controllers=controllers)
        leading = group.create_task(lead(having, leases or Leases(), health))
        await asyncio.sleep(seconds)
        names = [check.name for check in health.checkups(Kind.LIVEZ)]
        leading.cancel()
    return names


@pytest.mark.parametrize(
    "reply", [refused(401, "Unauthorized"), refused(403, "Forbidden")], ids=["token", "right"]
)
async def test_an_api_server_that_refuses_us_ends_the_start_after_ten_seconds(reply: Answer):
    kube = Kube(ScriptedTransport(lambda _: reply))

    async with manager_context(BARE, kube=kube) as context:
        with pytest.raises(Fatal, match=r"^failed to wait for apiserver being healthy: .*40[13]"):
            await lead(replace(context, controllers=NONE), Leases(), Health())

    assert 10 <= loop_time() <= 15
    assert len(kube.requests) <= 11  # once a second at most, no busy loop


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(Lost(), id="down"),
        pytest.param(Answer(500, b"[-]etcd failed"), id="unhealthy"),
        pytest.param(refused(503, "ServiceUnavailable"), id="starting"),
        pytest.param(Answer(200, delay=1e6), id="hangs"),
    ],
)
async def test_an_absent_api_server_is_waited_for(reply: Answer | Lost):
    def respond(_: Request) -> Answer | Lost:
        return Answer(200, b"ok") if loop_time() > 3600 else reply

    kube, diary = Kube(ScriptedTransport(respond)), Diary()

    async with manager_context(BARE, kube=kube) as context:
        await lead_for(3590, context, diary.controllers())
        assert diary.contexts == {}
        waited = len(kube.requests)
        await lead_for(300, context, diary.controllers())

    assert diary.contexts
    assert waited <= 3590 / 9  # ten seconds apart in the long run


async def test_an_api_server_that_gets_well_in_time_is_used():
    replies = iter([Lost(), refused(503, "ServiceUnavailable"), Answer(200, b"ok")])
    kube = Kube(ScriptedTransport(lambda _: next(replies)))

    async with manager_context(BARE, kube=kube) as context:
        await lead_for(60, context, NONE)

    assert len(kube.requests) == 3


def starting(enter: object) -> Start:
    @asynccontextmanager
    async def start(_: KubernetesAccess) -> AsyncGenerator[None]:
        if isinstance(enter, BaseException):
            raise enter
        if enter == "hangs":
            await asyncio.Event().wait()
        yield

    return start


@pytest.mark.parametrize(
    ("enter", "text"),
    [
        pytest.param(Misconfigured("no region"), "no region", id="its own error"),
        pytest.param(KeyError("zone"), '"fake" could not start: KeyError', id="any other"),
        pytest.param(SystemExit("no access"), "could not start: SystemExit: no acc", id="exits"),
        pytest.param(asyncio.CancelledError(), "could not start: Cancelled", id="cancels itself"),
        pytest.param("hangs", "could not start: no answer within 60 s", id="hangs"),
    ],
)
async def test_a_provider_that_cannot_start_ends_the_process_with_the_reason(enter, text):
    async with manager_context(replace(BARE, leading=starting(enter))) as context:
        with pytest.raises(Fatal, match=f"^Cloud provider could not be initialized: .*{text}"):
            await lead(replace(context, controllers=NONE), Leases(), Health())


async def test_an_own_controller_that_crashes_is_told_and_begun_again_and_harms_no_other(caplog):
    begun: list[str] = []

    async def crashing(_: KubernetesAccess) -> None:
        begun.append("crashing")
        raise KeyError("zone")

    async def working(_: KubernetesAccess) -> None:
        begun.append("working")
        await asyncio.Event().wait()

    own = (OwnController("routes", crashing), OwnController("nodes", working))
    health = Health()
    async with (
        manager_context(replace(BARE, controllers=own)) as context,
        asyncio.TaskGroup() as group,
    ):
        task = group.create_task(lead(replace(context, controllers=NONE), Leases(), health))
        await asyncio.sleep(50)
        # Asked without their threads, for which virtual time would not wait.
        ready = {check.name: check._ask() for check in health.checkups(Kind.READYZ)}
        living = [check.name for check in health.checkups(Kind.LIVEZ)]
        task.cancel()

    assert begun.count("working") == 1
    assert 4 <= begun.count("crashing") <= 7
    assert ready["fake-nodes"] is None
    assert "KeyError('zone')" in (ready["fake-routes"] or "")
    assert "fake-routes" not in living, "others work: no cause to restart"
    assert "Background work failed" in caplog.text
    assert "fake-nodes" not in [check.name for check in health.checkups(Kind.READYZ)]


async def test_a_running_controller_is_counted_and_checked_until_it_stops():
    diary = Diary()
    async with manager_context(BARE, "--controllers=cloud-node") as context:

        def counted() -> float | None:
            labels = {"name": "cloud-node", "manager": "cloud-controller-manager"}
            read = context.metrics.registry.value
            return read("running_managed_controllers", labels)

        health = Health()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                lead(replace(context, controllers=diary.controllers()), Leases(), health)
            )
            await asyncio.sleep(1)
            assert counted() == 1
            names = [check.name for check in health.checkups(Kind.LIVEZ)]
            assert names == ["informers", "cloud-calls", "cloud-node-controller"]
            ready = [check.name for check in health.checkups(Kind.READYZ)]
            assert ready == [
                "cloud-calls",
                "informers-synced",
                "cloud-node-controller",
                "cloud-node-controller-rounds",
            ]
            task.cancel()

        assert counted() == 0
        assert "cloud-node-controller" not in [c.name for c in health.checkups(Kind.LIVEZ)]
    assert diary.lines == ["+cloud-node-controller", "-cloud-node-controller"]


async def test_what_does_not_run_says_why(caplog: pytest.LogCaptureFixture):
    def unable(_: ControllerContext) -> Skipped:
        return Skipped("the cloud has none")

    async with manager_context(BARE, "--controllers=cloud-node,-service") as context:
        checks = await lead_for(1, context, Controllers(described(NODE, unable)))

    assert {str(record.message) for record in caplog.records} == {"Skipping controller"}
    values = [vars(record)[VALUES] for record in caplog.records]
    assert sorted((one["controller"], one["why"]) for one in values) == [
        (NODE.canonical, "the cloud has none"),
    ]
    assert checks == ["informers", "cloud-calls"]


async def test_what_nobody_asked_for_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture):
    async with manager_context(BARE, "--controllers=ssh-key") as context:
        await lead_for(1, context, CONTROLLERS)
        assert not caplog.records

    flag = "--ssh-keys-from=configmap:a/b"
    async with manager_context(BARE, "--controllers=ssh-key", flag) as context:
        await lead_for(1, context, CONTROLLERS)
    assert "does not support SSH keys" in str(vars(caplog.records[0])[VALUES])


async def test_the_order_is_left_to_chance():
    orders: set[tuple[str, ...]] = set()
    for seed in range(40):
        diary = Diary()
        async with manager_context(BARE, seed=seed) as context:
            await lead_for(1, context, diary.controllers())
        orders.add(tuple(line for line in diary.lines if line.startswith("+")))

    assert len(orders) == 6


async def test_between_two_starts_are_one_to_two_intervals():
    diary = Diary()
    async with manager_context(BARE, "--controller-start-interval=10s") as context:
        await lead_for(60, context, diary.controllers())

    first, second, third = diary.times[:3]
    assert 10 <= second - first <= 20
    assert 10 <= third - second <= 20
    assert first < third - first


PLAN = Migration(
    "moving",
    (
        ControllerLeader(SERVICE.canonical, "*"),
        ControllerLeader(ROUTE.canonical, "kube-controller-manager"),
    ),
)


async def test_controllers_that_move_wait_for_the_second_lock_and_heed_it():
    kube, diary = Kube(), Diary()
    own = OwnController("own", lambda _: asyncio.sleep(1000))
    async with manager_context(replace(BARE, controllers=(own,)), kube=kube) as context:
        main, moving = election(context, "ccm"), election(context, "moving")
        other = election(context, "moving", "kube-controller-manager")
        held = asyncio.Event()

        async def hold() -> None:
            async with other.leading():
                await held.wait()

        async with asyncio.TaskGroup() as group:
            group.create_task(hold())
            await asyncio.sleep(1)
            leases = Leases(main=main, migration=moving, plan=PLAN)
            task = group.create_task(
                lead(
                    replace(context, fence=main.fence, controllers=diary.controllers()),
                    leases,
                    Health(),
                )
            )
            await asyncio.sleep(60)
            assert diary.lines == ["+cloud-node-controller"]
            held.set()
            await asyncio.sleep(60)
            task.cancel()

    assert set(diary.contexts) == {NODE.canonical, SERVICE.canonical}
    assert diary.contexts[NODE.canonical].fence is main.fence
    assert diary.contexts[SERVICE.canonical].fence is moving.fence


async def test_defect_21_the_providers_own_controllers_run_once_whatever_the_locks():
    diary = Diary()
    own = OwnController("own", lambda _: wait_within(diary, "own"))
    async with manager_context(replace(BARE, controllers=(own,))) as context:
        leases = Leases(main=election(context, "a"), migration=election(context, "b"), plan=PLAN)
        await lead_for(60, context, NONE, leases)

    assert diary.lines == ["+own", "-own"]


async def wait_within(diary: Diary, name: str) -> None:
    async with diary.lasting(name):
        await asyncio.get_running_loop().create_future()


async def test_the_providers_start_comes_before_all_controllers_and_its_end_after_them():
    diary = Diary()
    cloud = replace(
        BARE,
        leading=lambda _: diary.lasting("provider"),
        controllers=(OwnController("own", lambda _: wait_within(diary, "own")),),
    )
    async with manager_context(cloud, "--controllers=cloud-node") as context:
        await lead_for(1, context, diary.controllers())

    assert (diary.lines[0], diary.lines[-1]) == ("+provider", "-provider")
    assert sorted(diary.lines[1:3]) == ["+cloud-node-controller", "+own"]
    assert sorted(diary.lines[3:5]) == ["-cloud-node-controller", "-own"]


async def test_a_provider_sees_the_cluster_through_its_door():
    seen: list[object] = []

    async def look(access: KubernetesAccess) -> None:
        seen.extend([access.view(), access.informers(), access.client("own"), access.config("own")])

    async with manager_context(replace(BARE, controllers=(OwnController("own", look),))) as context:
        await lead_for(1, context, NONE)
        view, informers, _, config = seen

        assert informers is context.informers
        assert config is context.clients.access_of("own")
        assert isinstance(view, View)
        assert (view.node("n1"), view.nodes(), view.service("u1")) == (None, (), None)


async def test_a_lost_lease_ends_all_work_before_the_loss_is_told():
    kube, diary = Kube(), Diary()
    cloud = replace(BARE, leading=lambda _: diary.lasting("provider"))
    async with manager_context(cloud, "--controllers=cloud-node", kube=kube) as context:
        main = election(context, "ccm")
        asyncio.get_running_loop().call_later(30, kube.go_down)
        led = replace(context, fence=main.fence, controllers=diary.controllers())
        with pytest.raises(LeadershipLost):
            await lead(led, Leases(main=main), Health())

    assert diary.lines[-2:] == ["-cloud-node-controller", "-provider"]
    assert max(diary.times) <= 30 + 2 + 10 + 0.1
