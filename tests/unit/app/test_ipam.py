"""How the node-ipam controller is put into the process, and what is refused before it starts."""

import pytest

from pileus.app.context import BuiltController
from pileus.app.validate import problems
from pileus.cloud.interface import Cloud
from pileus.controllers.ipam.descriptor import DESCRIPTOR
from pileus.objects.descriptor import Skipped
from tests.unit.app.stage import configured, manager_context

CLOUD = Cloud(name="fake")
ON = ("--controllers=*,nodeipam", "--allocate-node-cidrs")


async def test_it_runs_only_when_ranges_are_to_be_allocated():
    async with manager_context(
        CLOUD, "--controllers=nodeipam", "--cluster-cidr=10.0.0.0/16"
    ) as context:
        skipped = context.build(DESCRIPTOR)
    async with manager_context(CLOUD, *ON, "--cluster-cidr=10.0.0.0/16,fd00::/48") as context:
        built = context.build(DESCRIPTOR)
        assert isinstance(built, BuiltController)
        assert built.controller.stuck(DESCRIPTOR.stuck_after) is None

    assert isinstance(skipped, Skipped)
    assert "--allocate-node-cidrs" in skipped.why


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (
            ("--cluster-cidr=10.0.0.0/16", "--cidr-allocator-type=CloudAllocator"),
            '--cidr-allocator-type: "CloudAllocator" is not supported',
        ),
        (
            ("--cluster-cidr=10.0.0.0/16", "--node-cidr-mask-size=8"),
            "--node-cidr-mask-size: node CIDRs of /8 do not fit into 10.0.0.0/16",
        ),
    ],
)
def test_flags_that_do_not_fit_together_are_refused_only_where_ranges_are_allocated(flags, told):
    (problem,) = problems(configured(*ON, *flags))

    assert problem.startswith(told)
    assert problems(configured("--allocate-node-cidrs", *flags)) == ()
    assert problems(configured("--controllers=nodeipam", *flags)) == ()


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--cluster-cidr=nonsense",), '--cluster-cidr: "nonsense" is not a CIDR'),
        (
            ("--cluster-cidr=10.0.0.0/16", "--service-cluster-ip-range=10.0.0.0"),
            '--service-cluster-ip-range: "10.0.0.0" is not a CIDR',
        ),
    ],
)
def test_a_malformed_range_is_refused_where_it_is_used_and_else_a_warning(flags, told):
    (problem,) = problems(configured(*ON, *flags))
    assert problem.startswith(told)

    for others in (("--allocate-node-cidrs",), ("--configure-cloud-routes=false",), ()):
        config = configured(*others, *flags)
        assert problems(config) == ()
        ((message, fields),) = config.warnings()
        assert message == "Ignoring an invalid flag unless a controller reads it"
        assert fields["why"].startswith(told)
