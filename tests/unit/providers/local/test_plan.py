from random import Random

import pytest

from pileus.cloud.balancer import (
    BalancerSpec,
    BalancerState,
    Effect,
    HealthCheck,
    Ingress,
    Listener,
    Owner,
    Transport,
    Wish,
)
from pileus.cloud.errors import (
    Conflict,
    Misconfigured,
    Rejected,
    Unsupported,
)
from pileus.cloud.model import (
    NodeName,
    NodeRef,
)
from pileus_lab.local import balancer_plan
from pileus_lab.local.balancer_plan import Change, Seen
from pileus_lab.local.capabilities import LocalBalancers
from pileus_lab.local.model.balancers import CreateBalancer, DeleteBalancer
from pileus_lab.local.model.records import Balancer, Port
from pileus_lab.local.model.state import Moment, State
from tests.unit.providers.local.clouds import local_cloud

OWNER = Owner("c", "u")
DONE = "~ balancer web: record that it matches the desired state (F)"


def node(name: str, provider_id: str = "", uuid: str = "") -> NodeRef:
    return NodeRef(name=NodeName(name), provider_id=provider_id, system_uuid=uuid)


def spec(**changes: object) -> BalancerSpec:
    plain: dict[str, object] = {
        "listeners": frozenset({Listener(port=80, node_port=30080)}),
        "members": frozenset({node("a"), node("b")}),
    }
    return BalancerSpec(**{**plain, **changes})  # type: ignore[arg-type]


def wish(spec: BalancerSpec | None, **options: str) -> Wish:
    named = {f"local.pileus/{key.replace('_', '-')}": value for key, value in options.items()}
    return Wish(owner=OWNER, spec=spec, name="web", options={**named, "other.io/x": "y"})


class Story:
    """A cloud with one balancer, and its plan."""

    def __init__(self) -> None:
        self.local = local_cloud()
        self.balancers = LocalBalancers(self.local)

    async def seen(self) -> Seen:
        return (await self.balancers.observe([wish(None)], deep=True))[OWNER]

    async def plan(self, wished: Wish, *, deep: bool = True) -> tuple[Change, ...]:
        seen = await self.balancers.observe([wished], deep=deep)
        return self.balancers.changes(wished, seen[OWNER])

    async def settle(self, wished: Wish) -> Seen:
        for change in await self.plan(wished):
            await self.balancers.apply(change, await self.seen())
        assert await self.plan(wished) == ()
        return await self.seen()


async def lines(story: Story, wished: Wish) -> list[str]:
    """The plan as it is shown; the wish's fingerprint as F."""
    shown = [f"{change.effect} {change.summary}" for change in await story.plan(wished)]
    return [line.replace(wished.fingerprint, "F") for line in shown]


async def test_a_new_balancer_is_one_change():
    story = Story()

    assert await lines(story, wish(spec())) == ["+ balancer web on 80/TCP with members a, b"]
    seen = await story.settle(wish(spec()))

    assert seen.balancer is not None
    assert seen.balancer.state is BalancerState.READY
    assert seen.balancer.ingress == (Ingress(ip="127.78.0.1", proxied=True),)


@pytest.mark.parametrize(
    ("wished", "expected"),
    [
        pytest.param(wish(None), ["- balancer web (127.78.0.1) with all its parts"], id="gone"),
        pytest.param(wish(spec()), [], id="same"),
        pytest.param(
            wish(spec(members=frozenset({node("b"), node("c")}))),
            ["+ member c", "- member a", DONE],
            id="members",
        ),
        pytest.param(
            wish(spec(members=frozenset(node(name) for name in "abcdefg"))),
            ["+ 5 members"],
            id="many members",
        ),
        pytest.param(
            wish(spec(members=frozenset({node("a", "local://i-1"), node("b")}))),
            ["~ machine of member a"],
            id="the machine of a member",
        ),
        pytest.param(
            wish(spec(listeners=frozenset({Listener(port=80, node_port=30081)}))),
            ["~ listener 80/TCP: node port 30080 to 30081"],
            id="node port",
        ),
        pytest.param(
            wish(
                spec(
                    listeners=frozenset({
                        Listener(port=53, node_port=30053, transport=Transport.UDP)
                    })
                )
            ),
            ["- listener 80/TCP", "+ listener 53/UDP to node port 30053", DONE],
            id="listeners",
        ),
        pytest.param(
            wish(spec(families=("IPv4", "IPv6"))),
            ["~ address 127.78.0.1 to IPv4 and IPv6"],
            id="second family",
        ),
        pytest.param(
            wish(spec(families=("IPv6",))), ["± address 127.78.0.1 to IPv6"], id="other family"
        ),
        pytest.param(
            wish(spec(requested_address="127.78.3.3")),
            ["± address 127.78.0.1 to 127.78.3.3"],
            id="address",
        ),
        pytest.param(
            wish(spec(requested_address="127.78.0.1")),
            ["~ address 127.78.0.1 to 127.78.0.1"],
            id="pinned",
        ),
        pytest.param(
            wish(
                spec(
                    source_ranges=frozenset({"10.0.0.0/8"}),
                    sticky_seconds=60,
                    health=HealthCheck(node_port=31000),
                ),
                proxy_protocol="v2",
                drain_seconds="5",
            ),
            [
                (
                    "~ source ranges everyone to 10.0.0.0/8; affinity none to 60 s; "
                    "health check by connection to 31000/healthz; PROXY protocol none to v2; "
                    "draining 30 s to 5 s"
                )
            ],
            id="traffic",
        ),
    ],
)
async def test_a_plan_says_what_will_happen_and_then_it_does(wished: Wish, expected: list[str]):
    story = Story()
    await story.settle(wish(spec()))

    assert await lines(story, wished) == expected
    await story.settle(wished)


async def test_the_order_of_ranges_and_their_spelling_make_no_change():
    story = Story()
    await story.settle(wish(spec(source_ranges=frozenset({"10.1.2.3/8", "::/0"}))))

    assert await story.plan(wish(spec(source_ranges=frozenset({"0::/0", "10.0.0.0/8"})))) == ()


async def test_a_member_is_followed_to_its_machine_once_the_cluster_knows_it():
    story = Story()
    await story.settle(wish(spec()))

    known = wish(spec(members=frozenset({node("a", "local://i-1"), node("b")})))

    assert [change.effect for change in await story.plan(known)] == [Effect.UPDATE]
    await story.settle(known)


@pytest.mark.parametrize(
    ("wished", "error", "text"),
    [
        pytest.param(wish(spec(), proxy_protocol="v3"), Misconfigured, "v1, v2", id="value"),
        pytest.param(wish(spec(), proxy_protocl="v1"), Misconfigured, "did you mean", id="name"),
        pytest.param(wish(spec(source_ranges=frozenset({"x"}))), Rejected, "source", id="range"),
        pytest.param(
            wish(
                spec(listeners=frozenset({Listener(port=1, node_port=1, transport=Transport.SCTP)}))
            ),
            Unsupported,
            "TCP and UDP only",
            id="sctp",
        ),
    ],
)
async def test_a_wish_that_cannot_be_met_says_why(wished: Wish, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        await Story().plan(wished)


async def test_a_wish_with_a_mistake_can_still_be_deleted():
    story = Story()
    await story.settle(wish(spec()))

    await story.settle(wish(None, proxy_protocol="nonsense"))

    assert story.local.state.balancers == {}


async def test_balancers_made_by_hand_belong_to_nobody():
    story = Story()
    await story.local.call(CreateBalancer(name="mine", ports=(Port(port=1, node_port=1),)))

    assert await story.balancers.owners("") == frozenset()
    assert await story.balancers.owners("c") == frozenset()


async def test_changing_a_balancer_that_was_deleted_meanwhile_is_a_conflict():
    story = Story()
    seen = await story.settle(wish(spec()))
    (change,) = await story.plan(wish(spec(sticky_seconds=5)))
    assert isinstance(seen.found, Balancer)
    await story.local.call(DeleteBalancer(balancer=seen.found.id))

    with pytest.raises(Conflict, match="observe again"):
        await story.balancers.apply(change, seen)


async def test_a_balancer_that_failed_as_it_should_be_is_tried_again_by_its_stamp():
    wished = wish(spec())
    made = balancer_plan.desired(wished, spec()).step(
        State(), Moment(0.0, Random(1), doom="no room")
    )[1]
    seen = Seen(OWNER, made)

    left = balancer_plan.changes(wished, seen)

    assert seen.balancer is not None
    assert seen.balancer.state is BalancerState.FAILED
    assert [f"{one.effect} {one.summary}".replace(wished.fingerprint, "F") for one in left] == [
        DONE
    ]
