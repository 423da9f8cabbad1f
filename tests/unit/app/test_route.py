"""How the route controller is put into the process: when it runs, and with which settings."""

from collections.abc import Mapping, Sequence

import pytest

from pileus.app.context import BuiltController
from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Cloud
from pileus.cloud.model import Route
from pileus.controllers.route.descriptor import DESCRIPTOR
from pileus.controllers.route.settings import Ownership, RouteSettings
from pileus.objects.descriptor import Skipped
from tests.unit.app.stage import configured, manager_context


class NoRoutes:
    async def list_routes(self, cluster: str) -> Sequence[Route]:
        return ()

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        return {}

    async def delete(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        return {}


CLOUD = Cloud(name="fake", routes=NoRoutes())


@pytest.mark.parametrize(
    ("cloud", "flags", "why"),
    [
        (Cloud(name="fake"), ("--cluster-cidr=10.0.0.0/8",), "does not support routes"),
        (
            Cloud(name="fake", absent={"routes": "router is not set"}),
            ("--cluster-cidr=10.0.0.0/8",),
            "router is not set",
        ),
        (CLOUD, ("--configure-cloud-routes=false",), "--configure-cloud-routes=false"),
    ],
)
async def test_it_is_skipped_where_there_is_nothing_to_do(cloud, flags, why):
    async with manager_context(cloud, *flags) as context:
        built = context.build(DESCRIPTOR)

    assert isinstance(built, Skipped)
    assert why in built.why


async def test_defect_18_a_provider_with_routes_and_no_cluster_range_is_no_reason_to_die():
    async with manager_context(CLOUD) as context:
        built = context.build(DESCRIPTOR)

    assert isinstance(built, Skipped)
    assert "--cluster-cidr" in built.why


async def test_it_is_ready_to_run():
    async with manager_context(CLOUD, "--cluster-cidr=10.0.0.0/8,fd00::/48") as context:
        built = context.build(DESCRIPTOR)

        assert isinstance(built, BuiltController)
        assert built.controller.stuck(DESCRIPTOR.stuck_after) is None


GATE = "CloudControllerManagerWatchBasedRoutesReconciliation"


@pytest.mark.parametrize(
    ("flags", "watch", "period"),
    [
        ((), True, 300.0),
        (("--route-reconciliation-period=1m",), True, 60.0),
        ((f"--feature-gates={GATE}=false",), False, 10.0),
        ((f"--feature-gates={GATE}=false", "--route-reconciliation-period=1m"), False, 60.0),
        (("--feature-gates=AllAlpha=false",), False, 10.0),
        ((f"--feature-gates={GATE}=true",), True, 300.0),
    ],
)
def test_nodes_are_watched_unless_the_gate_says_no_and_a_period_that_is_given_counts(
    flags, watch, period
):
    route = configured(*flags)[RouteSettings]

    assert (route.watch, route.period) == (watch, period)


def test_routes_are_ours_by_record_unless_told_otherwise():
    assert configured()[RouteSettings].ownership is Ownership.RECORDED
    wide = configured("--route-ownership=cluster-cidr")[RouteSettings]
    assert wide.ownership is Ownership.CLUSTER_CIDR
