"""The laws for load balancers, kept by the OpenStack provider on a model of OpenStack."""

from pileus.providers.openstack.config import LoadBalancer
from pileus.testing.conformance.balancers import BalancersLaws
from tests.contract.openstack_balancers import OpenStackBalancersHarness


class TestOpenStackBalancers(BalancersLaws):
    def make(self) -> OpenStackBalancersHarness:
        return OpenStackBalancersHarness()


class TestWithMonitorsAndSecurityGroups(BalancersLaws):
    examples = 15

    def make(self) -> OpenStackBalancersHarness:
        config = LoadBalancer(create_monitor=True, manage_security_groups=True)
        return OpenStackBalancersHarness(config)
