"""The laws of the cloud contract as a test suite, for any provider of any shape.

A provider's tests subclass a class of laws and say how to furnish its cloud (see `harness`):

    class TestInstances(InstancesLaws):
        def make(self) -> InstancesHarness: ...

Needs pytest and hypothesis.
"""

import pytest

LAWS = ("instances", "balancers", "identity", "keeping", "settling", "routes", "ssh_keys")
pytest.register_assert_rewrite(*(f"{__name__}.{laws}" for laws in LAWS))
