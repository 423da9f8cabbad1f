"""What `--network=netns` refuses before anything starts, and how it says so."""

import pytest

from pileus.cloud.errors import Misconfigured
from pileus_lab.local.model.machines import CreateMachine
from pileus_lab.local.model.records import Pools
from pileus_lab.local.model.state import Settings, State
from pileus_lab.local.netns import namespaces
from pileus_lab.local.netns.namespaces import (
    INTERNAL_POOL,
    check_state,
    claim_rights,
    has_rights,
    pools_inside,
)
from tests.unit.providers.local.clouds import moment


def test_instances_get_addresses_that_are_real_inside_unless_the_user_chose_some():
    assert pools_inside(Pools()).internal == "10.77.0.0/16"
    assert pools_inside(Pools(balancers="127.5.0.0/24")).balancers == "127.5.0.0/24"
    assert pools_inside(Pools(internal="10.5.0.0/24")).internal == "10.5.0.0/24"


def test_loopback_addresses_for_instances_are_refused():
    with pytest.raises(Misconfigured, match=r"127\.5\.0\.0/24 .* --network=loopback"):
        pools_inside(Pools(internal="127.5.0.0/24"))


def test_a_state_that_was_made_for_loopback_is_refused_by_the_instance():
    loopback = CreateMachine(name="old").step(State(), moment())[0]
    inside = CreateMachine(name="new").step(
        State(), moment(settings=Settings(internal_pool=INTERNAL_POOL))
    )

    check_state(inside[0])
    with pytest.raises(Misconfigured, match=r"old has 127\.77\."):
        check_state(loopback)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [("000001ffffffffff", True), ("0000000000201000", True), ("0000000000200000", False)],
)
def test_rights_are_read_from_the_capabilities(capabilities: str, *, expected: bool):
    status = f"Name:\tpython: x\nCapPrm:\t000001ffffffffff\nCapEff:\t{capabilities}\n"

    assert has_rights(status) is expected


def test_a_missing_command_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(namespaces, "ip_command", lambda: None)

    with pytest.raises(Misconfigured, match="needs the command `ip`.*--network=loopback"):
        claim_rights()


def test_missing_rights_are_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch):
    def refuse() -> None:
        raise PermissionError(1, "unshare: not permitted")

    monkeypatch.setattr(namespaces, "ip_command", lambda: "/sbin/ip")
    monkeypatch.setattr(namespaces, "has_rights", lambda _: False)
    monkeypatch.setattr(namespaces, "enter_user_namespace", refuse)

    with pytest.raises(Misconfigured, match="root, or user namespaces.*--network=loopback"):
        claim_rights()
