"""Requests over HTTP: what they say besides path and body."""

from pileus.providers.openstack.api import Call, Service
from pileus.providers.openstack.http_api import headers_of


def test_a_request_names_the_revision_that_it_expects() -> None:
    call = Call(service=Service.NETWORK, method="PUT", path="/v2.0/ports/p", if_revision=0)
    assert headers_of(call) == {"If-Match": "revision_number=0"}


def test_microversions_have_the_headers_of_their_service() -> None:
    nova = Call(service=Service.COMPUTE, method="GET", path="/servers", microversion="2.90")
    assert headers_of(nova) == {
        "OpenStack-API-Version": "compute 2.90",
        "X-OpenStack-Nova-API-Version": "2.90",
    }
    octavia = Call(service=Service.LOAD_BALANCER, method="GET", path="/", microversion="2.90")
    assert headers_of(octavia) == {}
