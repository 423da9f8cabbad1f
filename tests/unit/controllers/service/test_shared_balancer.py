"""A load balancer that the provider lets several Services use can be named by a second one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from pileus.cloud.balancer import (
    Balancer,
    BalancerSpec,
    BalancerState,
    Change,
    Listener,
    Owner,
    Wish,
)
from pileus.cloud.errors import Misconfigured
from pileus.controllers.service.observation import BalancerOperations
from pileus.kube.model.core_v1 import Service
from pileus.kube.model.meta import ObjectMeta

FIRST = Service(metadata=ObjectMeta(namespace="default", name="web", uid="u1"))
SPEC = BalancerSpec(listeners=frozenset({Listener(port=80, node_port=30080)}), members=frozenset())
WISH = Wish(owner=Owner("c", "u2"), spec=SPEC, adopts="lb-1")


@dataclass(frozen=True)
class Seen:
    balancer: Balancer


@dataclass(frozen=True)
class OneBalancer:
    """A cloud whose only load balancer serves the Service `default/web`."""

    is_shareable: bool

    async def owners(self, cluster: str) -> frozenset[Owner]:
        return frozenset({Owner(cluster, "u1")})

    async def observe(self, wishes: Sequence[Wish], *, deep: bool) -> Mapping[Owner, Seen]:
        del deep
        balancer = Balancer(
            id="lb-1",
            state=BalancerState.READY,
            owner=Owner("c", "u1"),
            is_shareable=self.is_shareable,
        )
        return {wish.owner: Seen(balancer) for wish in wishes}

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        del wish, seen
        return ()

    async def apply(self, change: Change, seen: Seen) -> Seen:
        raise AssertionError(f"nothing has to be changed, but {change} of {seen}")

    def lock_key(self, wish: Wish) -> str:
        return wish.owner.uid


def operations(*, is_shareable: bool) -> BalancerOperations:
    return BalancerOperations(OneBalancer(is_shareable), {"u1": FIRST}.get)


async def test_a_second_service_uses_a_load_balancer_that_can_be_shared() -> None:
    observed = await operations(is_shareable=True).check(WISH, full=False)
    assert observed.balancer is not None
    assert observed.balancer.id == "lb-1"


async def test_a_second_service_is_refused_if_it_cannot_be_shared() -> None:
    with pytest.raises(Misconfigured, match="was not created for this Service") as refusal:
        await operations(is_shareable=False).check(WISH, full=False)
    assert "default/web" not in str(refusal.value)
    with pytest.raises(Misconfigured, match="it serves Service default/web"):
        await operations(is_shareable=False).check(replace(WISH, may_use_foreign=True), full=False)
