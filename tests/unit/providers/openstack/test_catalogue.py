"""URLs of services from Keystone's catalogue."""

import pytest

from pileus.cloud.errors import Misconfigured, Unavailable, Unsupported
from pileus.providers.openstack.api import Service
from pileus.providers.openstack.catalogue import Catalogue, Endpoint, Entry, base_url

PROJECT = "4d91b48a458e45f2bc6498b80fa9d641"


def entry(kind: str, *endpoints: tuple[str, str, str]) -> Entry:
    return Entry(
        type=kind,
        endpoints=tuple(Endpoint(interface=i, region_id=r, url=u) for i, r, u in endpoints),
    )


@pytest.mark.parametrize(
    ("service", "listed", "expected"),
    [
        (Service.COMPUTE, "http://h/v2.1", "http://h/v2.1"),
        (Service.COMPUTE, "http://h/compute", "http://h/compute/v2.1"),
        (Service.COMPUTE, "http://h/compute/", "http://h/compute/v2.1"),
        (Service.COMPUTE, f"http://h/v2.1/{PROJECT}", f"http://h/v2.1/{PROJECT}"),
        (Service.COMPUTE, f"http://h/v2/{PROJECT}", f"http://h/v2.1/{PROJECT}"),
        (Service.COMPUTE, "http://h/v2.1/%(tenant_id)s", f"http://h/v2.1/{PROJECT}"),
        (Service.NETWORK, "http://h:9696", "http://h:9696"),
        (Service.NETWORK, "http://h:9696/v2.0", "http://h:9696"),
        (Service.NETWORK, "http://h/network/v2.0/", "http://h/network"),
        (Service.LOAD_BALANCER, "http://h/load-balancer", "http://h/load-balancer"),
        (Service.LOAD_BALANCER, "http://h:9876/v2.0", "http://h:9876"),
        (Service.LOAD_BALANCER, "http://h:9876/v2", "http://h:9876"),
        (Service.BLOCK_STORAGE, f"http://h/v3/{PROJECT}", f"http://h/v3/{PROJECT}"),
        (Service.BLOCK_STORAGE, "http://h/volume/v3", f"http://h/volume/v3/{PROJECT}"),
        (Service.BLOCK_STORAGE, "http://h/volume", f"http://h/volume/v3/{PROJECT}"),
        (Service.BLOCK_STORAGE, f"http://h/v2/{PROJECT}", f"http://h/v3/{PROJECT}"),
        (Service.KEY_MANAGER, "http://h/key-manager/v1", "http://h/key-manager"),
        (Service.KEY_MANAGER, "http://v1", "http://v1"),
    ],
)
def test_a_url_has_one_form_whatever_the_cloud_lists(service, listed, expected):
    assert base_url(service, listed, PROJECT) == expected


CATALOGUE = Catalogue(
    entries=(
        entry(
            "compute",
            ("public", "north", "http://public.north"),
            ("internal", "north", "http://internal.north"),
            ("public", "south", "http://public.south"),
        ),
        entry("volume", ("public", "north", "http://volume")),
        entry("volumev3", ("public", "north", "http://volumev3")),
        entry("load-balancer", ("adminURL", "north", "http://lb")),
    ),
    project_id=PROJECT,
)


def test_an_endpoint_is_selected_by_interface_and_region():
    assert CATALOGUE.url(Service.COMPUTE, "public", "south") == "http://public.south/v2.1"
    assert CATALOGUE.url(Service.COMPUTE, "internal", "north") == "http://internal.north/v2.1"


def test_a_newer_service_type_wins_over_its_older_aliases():
    url = CATALOGUE.url(Service.BLOCK_STORAGE, "public", "north")
    assert url == f"http://volumev3/v3/{PROJECT}"


def test_interfaces_may_have_their_older_names():
    assert CATALOGUE.url(Service.LOAD_BALANCER, "admin", "north") == "http://lb"


def test_a_region_is_only_needed_if_there_are_several():
    alone = Catalogue(entries=CATALOGUE.entries[1:], project_id=PROJECT)
    assert alone.region("") == "north"
    assert alone.url(Service.LOAD_BALANCER, "admin", "") == "http://lb"
    with pytest.raises(Misconfigured, match=r"region is missing.* north, south\. Fix: region ="):
        CATALOGUE.url(Service.COMPUTE, "public", "")


def test_a_misspelled_region_is_named_with_the_one_that_was_meant():
    with pytest.raises(Misconfigured, match=r'"nort" is not .*did you mean "north".*north, south'):
        CATALOGUE.url(Service.COMPUTE, "public", "nort")


def test_a_service_that_the_project_lacks_is_unsupported():
    with pytest.raises(Unsupported, match=r"no public endpoint of type network in region north$"):
        CATALOGUE.url(Service.NETWORK, "public", "north")
    with pytest.raises(Unsupported, match=r"no public .* load-balancer in region north; it has:"):
        CATALOGUE.url(Service.LOAD_BALANCER, "public", "north")
    assert not CATALOGUE.has(Service.NETWORK, "public", "north")
    assert CATALOGUE.has(Service.COMPUTE, "public", "north")


@pytest.mark.parametrize(
    "url", ["http://host:99999", "http://host:x", "host", "http://", "http://[::1"]
)
def test_an_invalid_url_of_the_catalogue_is_reported(url: str):
    catalogue = Catalogue(entries=(entry("compute", ("public", "north", url)),))
    with pytest.raises(Unavailable, match="invalid URL of type compute"):
        catalogue.url(Service.COMPUTE, "public", "north")
