"""The laws of the cloud contract as a test suite, for any provider of any shape.

A provider's tests subclass a class of laws and return a harness for its cloud (see `harness`):

    class TestInstances(InstancesLaws):
        def make(self) -> InstancesHarness: ...

The laws need hypothesis, and a runner for tests such as pytest: the extra `testing` has both.
"""

from importlib.util import find_spec

LAWS = (
    "abilities",
    "adoption",
    "balancers",
    "convergence",
    "costs",
    "identity",
    "instances",
    "repair",
    "routes",
    "snapshots",
    "ssh_keys",
    "volumes",
)

if find_spec("pytest"):
    import pytest

    pytest.register_assert_rewrite(*(f"{__name__}.{laws}" for laws in LAWS))
