"""Clouds and demos on one machine have addresses of their own."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address, ip_network
from itertools import combinations
from pathlib import Path

import pytest

from pileus.cloud.errors import Misconfigured
from pileus_lab.local.http_api import reaching
from pileus_lab.local.journal import open_journal
from pileus_lab.local.loopback import NETWORKS, claimed_pools, kept_pools
from pileus_lab.local.model.balancers import CreateBalancer, ListBalancers
from pileus_lab.local.model.machines import CreateMachine
from pileus_lab.local.model.records import Member, Pools, Port
from pileus_lab.local.model.state import State
from tests.unit.providers.local.clouds import moment
from tests.unit.providers.local.test_server import body, networks_of_its_own, served

TRIED = NETWORKS[-3:]
"""The last ones: clouds that run on this machine take the first ones."""


def test_the_networks_are_apart_and_on_loopback():
    pools = [
        ip_network(pool) for one in NETWORKS for pool in (one.internal, one.external, one.balancers)
    ]

    assert all(pool.is_loopback for pool in pools)
    assert not any(one.overlaps(other) for one, other in combinations(pools, 2))


def test_clouds_side_by_side_get_different_networks_and_a_freed_one_is_given_again():
    with claimed_pools(Pools(), choices=TRIED) as first:
        with claimed_pools(Pools(), choices=TRIED) as second:
            assert first != second
        with claimed_pools(Pools(), choices=TRIED) as third:
            assert third == second


@contextmanager
def refused(pool: str) -> Generator[None]:
    with pytest.raises(Misconfigured, match="Another local cloud or demo") as error, ExitStack():
        yield
    assert f"({pool}: Address already in use)" in str(error.value)


def test_a_network_that_is_kept_or_named_and_in_use_is_refused_by_its_name():
    with claimed_pools(Pools(), choices=TRIED) as taken:
        with refused(taken.internal), claimed_pools(Pools(), kept=taken):
            pass
        with refused(taken.balancers), claimed_pools(Pools(balancers=taken.balancers)):
            pass
        with refused(taken.internal), claimed_pools(Pools(), choices=[taken]):
            pass


def test_pools_beyond_loopback_are_taken_as_they_are_named():
    named = Pools(internal="10.77.0.0/24", external="10.78.0.0/24", balancers="192.0.2.1/32")

    with claimed_pools(named) as one, claimed_pools(named) as other:
        assert one == other == named


def test_a_state_without_pools_has_the_first_ones_once_it_has_objects():
    used = CreateMachine(name="a").step(State(), moment())[0]

    assert kept_pools(State()) is None
    assert kept_pools(used) == NETWORKS[0]


async def address_of(folder: Path, instance: str) -> str:
    """Create an instance, and a balancer of it on port 8080. Return the balancer's address."""
    async with reaching(folder / "local.sock") as api:
        await api.call(CreateMachine(name=instance))
        members = (Member(name=instance),)
        ports = (Port(port=8080, node_port=30080),)
        made = await api.call(CreateBalancer(name="web", ports=ports, members=members))
    assert made.problem == ""
    return made.addresses[0]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    one, other = tmp_path / "1", tmp_path / "2"
    one.mkdir(mode=0o700)
    other.mkdir(mode=0o700)
    return one, other


@pytest.mark.real_time
@pytest.mark.timeout(60)
async def test_the_balancers_of_two_clouds_lead_each_to_its_own_instances(
    folders: tuple[Path, Path],
):
    one, other = folders
    with served(one), served(other):
        first, second = await address_of(one, "a"), await address_of(other, "b")

        assert await body(f"http://{first}:8080/") == "a"
        assert await body(f"http://{second}:8080/") == "b"


@pytest.mark.real_time
@pytest.mark.timeout(60)
async def test_a_cloud_keeps_the_networks_that_it_picked(folders: tuple[Path, Path]):
    one, other = folders
    with served(other), served(one, f"--state={one / 'cloud.db'}"):
        address = await address_of(one, "a")

    with open_journal(one / "cloud.db") as journal:
        kept = kept_pools(journal.load())
    assert kept is not None
    assert ip_address(address) in ip_network(kept.balancers)


@pytest.mark.real_time
@pytest.mark.timeout(60)
async def test_a_cloud_starts_again_at_its_addresses_or_not_at_all(tmp_path: Path):
    state = f"--state={tmp_path / 'cloud.db'}"
    with served(tmp_path, state, networks_of_its_own(tmp_path)):
        address = await address_of(tmp_path, "a")
    with served(tmp_path, state):
        assert await body(f"http://{address}:8080/") == "a"
        async with reaching(tmp_path / "local.sock") as api:
            (balancer,) = (await api.call(ListBalancers())).items
    with open_journal(tmp_path / "cloud.db") as journal:
        kept = kept_pools(journal.load())
    assert balancer.addresses == (address,)
    assert kept is not None

    with claimed_pools(Pools(), kept):
        late = subprocess.run(
            [sys.executable, "-m", "pileus", "local", "serve", state],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    assert late.returncode == 1
    assert f"Error: the addresses of the local cloud cannot be used ({kept.internal}" in late.stderr
