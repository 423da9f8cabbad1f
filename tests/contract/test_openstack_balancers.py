"""The laws for load balancers, kept by the OpenStack provider on a model of OpenStack."""

from dataclasses import replace

from pileus.providers.openstack.config import LoadBalancer
from pileus.testing.conformance import abilities
from pileus.testing.conformance.balancers import BalancersLaws
from pileus.testing.conformance.harness import run
from tests.contract.openstack_balancers import OpenStackBalancersHarness


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
