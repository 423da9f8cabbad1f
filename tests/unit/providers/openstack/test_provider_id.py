"""Provider IDs of servers: which are ours, and what is written."""

import pytest

from pileus.cloud.errors import Rejected
from pileus.cloud.model import NodeName, NodeRef
from pileus.providers.openstack.provider_id import ProviderIds

ID = "5e508da5-b615-4e22-8a9c-dc843a9274cf"
IDS = ProviderIds("RegionOne")


def node(provider_id: str) -> NodeRef:
    return NodeRef(name=NodeName("n1"), provider_id=provider_id)


def test_the_region_is_written_only_if_the_user_asks_for_it():
    assert IDS.text(ID) == f"openstack:///{ID}"
    assert ProviderIds("RegionOne", is_regional=True).text(ID) == f"openstack://RegionOne/{ID}"


@pytest.mark.parametrize(
    "text",
    [
        f"openstack:///{ID}",
        f"openstack://RegionOne/{ID}",
        ID,
        f"/{ID}",
        f"openstack:///{ID.upper()}",
    ],
)
def test_every_form_that_the_go_ccm_writes_or_reads_is_accepted(text: str):
    for is_regional in (False, True):
        assert ProviderIds("RegionOne", is_regional).server_id(node(text)) == ID


def test_a_node_without_provider_id_has_no_server_id():
    assert not IDS.server_id(node(""))
    assert IDS.owns(node("")) is None


@pytest.mark.parametrize(
    "text",
    [
        f"openstack://RegionTwo/{ID}",
        f"aws:///eu-west-1a/{ID}",
        "openstack:///",
        "openstack:///../flavors",
        f"openstack:///zone/{ID}",
        f"openstack://{ID}",
        "openstack:///server-1",
    ],
)
def test_a_provider_id_that_is_not_of_a_server_in_this_region_is_refused(text: str):
    with pytest.raises(Rejected, match="provider ID"):
        IDS.server_id(node(text))


def test_machines_of_other_regions_and_clouds_are_not_ours():
    assert IDS.owns(node(f"openstack:///{ID}")) is True
    assert IDS.owns(node(f"openstack://RegionOne/{ID}")) is True
    assert IDS.owns(node(f"openstack://RegionTwo/{ID}")) is False
    assert IDS.owns(node("aws:///eu-west-1a/i-1")) is False
    assert IDS.owns(node(ID)) is None, "a bare ID does not name its cloud"
