"""Both shapes of providers keep the same laws."""

from pileus.testing.conformance.balancers import BalancersLaws
from pileus.testing.conformance.instances import InstancesLaws
from pileus.testing.conformance.routes import RoutesLaws
from pileus.testing.conformance.ssh_keys import SshKeysLaws
from pileus.testing.virtual_time import VirtualTimeLoop
from tests.contract.keyring import ClassicKeyringHarness, KeyringHarness
from tests.contract.machines import MachinesHarness, RouteTableHarness
from tests.contract.parts_harness import PartsHarness
from tests.contract.ported import (
    ClassicBalancersHarness,
    ClassicInstancesHarness,
    ClassicRoutesHarness,
    NotedBalancersHarness,
)


class TestModernInstances(InstancesLaws):
    def new_loop(self):
        return VirtualTimeLoop()

    def make(self):
        return MachinesHarness()


class TestClassicInstances(InstancesLaws):
    def make(self):
        return ClassicInstancesHarness()


class TestModernBalancers(BalancersLaws):
    def new_loop(self):
        return VirtualTimeLoop()

    def make(self):
        return PartsHarness()


class TestClassicBalancers(BalancersLaws):
    def new_loop(self):
        return VirtualTimeLoop()

    def make(self):
        return ClassicBalancersHarness()


class TestClassicBalancersWithNotes(BalancersLaws):
    def new_loop(self):
        return VirtualTimeLoop()

    def make(self):
        return NotedBalancersHarness()


class TestModernRoutes(RoutesLaws):
    def make(self):
        return RouteTableHarness()


class TestClassicRoutes(RoutesLaws):
    def make(self):
        return ClassicRoutesHarness()


class TestModernSshKeys(SshKeysLaws):
    def make(self):
        return KeyringHarness()


class TestClassicSshKeys(SshKeysLaws):
    def make(self):
        return ClassicKeyringHarness()
