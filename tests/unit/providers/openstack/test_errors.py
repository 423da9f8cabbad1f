"""Faults of OpenStack's services, as they were seen, and the errors that they become."""

import json

import pytest

from pileus.cloud.errors import (
    CloudError,
    Conflict,
    NotFound,
    QuotaExceeded,
    Rejected,
    Throttled,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from pileus.cloud.http import Answer, Request, error_for
from pileus.providers.openstack.errors import NotOfService, TokenRefused, error_of


def error(status: int, body: object, headers: dict[str, str] | None = None, path: str = "/x"):
    content = body if isinstance(body, str) else json.dumps(body)
    request = Request("POST", f"http://cloud{path}", {"X-Auth-Token": "hunter2"})
    answer = Answer(status, headers or {}, content.encode(), request, "req-7")
    return error_of(answer, error_for(answer))


def neutron(kind: str, message: str) -> object:
    return {"NeutronError": {"type": kind, "message": message, "detail": ""}}


def octavia(message: str) -> object:
    return {"faultcode": "Client", "faultstring": message, "debuginfo": None}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (403, octavia("Quota has been met for resources: Load Balancer"), QuotaExceeded),
        (409, neutron("OverQuota", "Quota exceeded for resources: ['port']."), QuotaExceeded),
        (
            409,
            neutron("IpAddressGenerationFailure", "No more IP addresses available on network n."),
            QuotaExceeded,
        ),
        (
            400,
            neutron("ExternalIpAddressExhausted", "Unable to find any IP address on network n."),
            Rejected,
        ),
        (403, {"forbidden": {"code": 403, "message": "Quota exceeded for cores"}}, QuotaExceeded),
        (
            403,
            {
                "forbidden": {
                    "code": 403,
                    "message": "The maximum allowed number of disk devices (26) to attach to a "
                    "single instance has been exceeded.",
                }
            },
            QuotaExceeded,
        ),
        (
            413,
            {
                "overLimit": {
                    "code": 413,
                    "message": "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot "
                    "exceeds allowed gigabytes quota. Requested 5G, quota is 5G and 1G has been "
                    "consumed.",
                    "retryAfter": "0",
                }
            },
            QuotaExceeded,
        ),
        (
            413,
            {
                "overLimit": {
                    "code": 413,
                    "message": "VolumeLimitExceeded: Maximum number of volumes allowed (1) "
                    "exceeded for quota 'volumes'.",
                    "retryAfter": "0",
                }
            },
            QuotaExceeded,
        ),
        (
            403,
            octavia("Policy does not allow this request to be performed."),
            Unauthorized,
        ),
        (
            409,
            octavia("Load Balancer 1 is immutable and cannot be updated."),
            Conflict,
        ),
        (
            409,
            octavia("Invalid state PENDING_UPDATE of loadbalancer resource 1"),
            Conflict,
        ),
        (409, neutron("PortInUse", "Unable to complete operation on port"), Conflict),
        (412, neutron("RevisionNumberConstraintFailed", "Constrained to 3"), Conflict),
        (404, neutron("PortNotFound", "Port p could not be found."), NotFound),
        (404, {"itemNotFound": {"code": 404, "message": "Instance not found"}}, NotFound),
        (404, octavia("LoadBalancer 1 not found."), NotFound),
        (404, {"code": 404, "title": "Bad Request", "description": "Pool 1 not found."}, NotFound),
        (404, "default backend - 404", NotOfService),
        (404, "<html><h1>404 Not Found</h1></html>", NotOfService),
        (404, "", NotOfService),
        (404, {"message": "no Route matched with those values"}, NotOfService),
        (410, "<html>gone</html>", NotOfService),
        (400, octavia("Validation failure: x"), Rejected),
        (501, octavia("Provider 'ovn' does not support a requested action"), Unsupported),
        (500, {"computeFault": {"code": 500, "message": "Unexpected API Error."}}, Unavailable),
        (503, "<html>busy</html>", Unavailable),
        (401, {"error": {"code": 401, "title": "Unauthorized", "message": "x"}}, TokenRefused),
    ],
)
def test_a_fault_becomes_the_error_for_what_helps(status, body, kind):
    assert type(error(status, body)) is kind


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (octavia("Too  many\nlines"), "Too many lines"),
        (neutron("X", "Said by Neutron"), "Said by Neutron"),
        ({"badRequest": {"code": 400, "message": "Said by Nova"}}, "Said by Nova"),
        ({"error": {"code": 400, "message": "Said by Keystone"}}, "Said by Keystone"),
        ({"title": "Bad", "description": "Said by Barbican"}, "Said by Barbican"),
        ({"NeutronError": "Said plainly"}, "Said plainly"),
        ("plain text", "plain text"),
        ("[1]", "Bad Request"),
        ("", "Bad Request"),
    ],
)
def test_an_error_has_the_message_of_the_service_and_the_request_id(body, message):
    assert str(error(400, body)) == f"POST /x: 400 {message} (request ID req-7)"


def test_a_long_message_is_cut():
    assert len(str(error(400, octavia("x" * 5000)))) < 400


@pytest.mark.parametrize("place", [0, 290])
def test_a_message_has_no_id_and_no_part_of_one(place):
    text = f"{'x ' * (place // 2)}External network 0a1b2c3d-0000-4000-8000-00000000abcd"
    for fault in (octavia(text), neutron("X", text), {"itemNotFound": {"message": text}}):
        assert "0a1b2c3d" not in str(error(404, fault))


def retry_after_of(found: CloudError) -> float | None:
    assert isinstance(found, Throttled)
    return found.retry_after


def test_a_cloud_that_limits_the_rate_says_how_long_to_wait():
    limited = {"overLimit": {"code": 413, "message": "This request was rate-limited."}}
    assert retry_after_of(error(413, limited, {"retry-after": "7"})) == 7
    assert retry_after_of(error(429, limited, {"retry-after": "3"})) == 3
    assert retry_after_of(error(429, "")) is None
    assert retry_after_of(error(503, octavia("busy"), {"retry-after": "3"})) == 3


def test_a_missing_role_is_named():
    found = error(403, octavia("Policy does not allow this."), path="/v2.0/lbaas/pools")
    assert str(found).endswith("Fix: give the user of [Global] the role load-balancer_member in "
                               "its project")  # fmt: skip
    assert "the role that this request needs" in str(error(403, ""))


def test_no_secret_is_part_of_an_error():
    assert "hunter2" not in repr(error(500, "x"))
