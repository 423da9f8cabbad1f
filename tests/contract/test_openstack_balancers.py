"""The laws for load balancers, kept by the OpenStack provider on a model of OpenStack."""

from dataclasses import replace
from itertools import product

import pytest

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Misconfigured, Unsupported
from pileus.cloud.model import Failure
from pileus.providers.openstack.config import LoadBalancer
from pileus.testing.conformance import abilities
from pileus.testing.conformance.balancers import BalancersLaws
from pileus.testing.conformance.convergence import SMALL, US, settle, wish_for
from pileus.testing.conformance.harness import run
from pileus_lab.openstack.state import Settings
from tests.contract.openstack_balancers import BreakableApi, OpenStackBalancersHarness

OWNER = Owner(US, "restricted")
RESTRICTED = ({"10.0.0.0/8"}, {"10.0.0.0/8", "0.0.0.0/1"}, {"2001:db8::/32"})


class OpenStackLaws(BalancersLaws):
    def make(self) -> OpenStackBalancersHarness:
        raise NotImplementedError

    def test_ip_families_are_built_or_refused_as_declared(self) -> None:
        """A configured subnet has one family: here members tell the subnet."""
        harness = OpenStackBalancersHarness(self.make().config, detects_subnets=True)
        harness.config = replace(harness.config, subnet_id="")
        run(abilities.families_are_as_declared(harness), self.new_loop)


class TestOpenStackBalancers(OpenStackLaws):
    def make(self) -> OpenStackBalancersHarness:
        return OpenStackBalancersHarness()


class TestWithMonitorsAndSecurityGroups(OpenStackLaws):
    examples = 15

    def make(self) -> OpenStackBalancersHarness:
        config = LoadBalancer(create_monitor=True, manage_security_groups=True)
        return OpenStackBalancersHarness(config)


class WithoutAccessLists(OpenStackLaws):
    """Only the features of the cloud, read at run time, tell that ranges cannot be applied."""

    examples = 15

    def test_source_ranges_that_admit_no_one_open_nothing(self) -> None:
        run(_restrictions_are_refused(self.make()), self.new_loop)


class TestWithProviderOvn(WithoutAccessLists):
    def make(self) -> OpenStackBalancersHarness:
        api = BreakableApi(Settings(lb_providers=("ovn", "amphora")))
        harness = OpenStackBalancersHarness(LoadBalancer(lb_provider="ovn"), api)
        harness.abilities = replace(harness.abilities, source_ranges=False)
        return harness


class TestWithOctaviaBefore212(WithoutAccessLists):
    def make(self) -> OpenStackBalancersHarness:
        api = BreakableApi(Settings(octavia_minor=11))
        harness = OpenStackBalancersHarness(api=api)
        harness.abilities = replace(harness.abilities, source_ranges=False, dual_stack=False)
        return harness


async def _restrictions_are_refused(harness: OpenStackBalancersHarness) -> None:
    async with harness.connect() as balancers:
        await settle(harness, balancers, wish_for(harness, OWNER, SMALL))
        before = harness.built()
        for owner, ranges in product((OWNER, Owner(US, "new")), map(frozenset, RESTRICTED)):
            wish = wish_for(harness, owner, SMALL)
            assert wish.spec is not None
            wish = replace(wish, spec=replace(wish.spec, source_ranges=ranges))
            seen = (await balancers.observe([wish], deep=True))[owner]
            assert not isinstance(seen, Failure)
            with pytest.raises((Misconfigured, Unsupported), match="Fix: "):
                balancers.changes(wish, seen)
    assert harness.built() == before
