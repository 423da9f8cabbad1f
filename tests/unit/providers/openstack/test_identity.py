"""Requests for tokens, and their answers."""

import json
from typing import Any

import pytest

from pileus.cloud.errors import Misconfigured, Unavailable
from pileus.cloud.http import Answer, Request
from pileus.providers.openstack.config import Auth
from pileus.providers.openstack.identity import (
    identity_of,
    is_used_as_is,
    keystone_url,
    token_of,
    token_request,
)


def identity(auth: Auth) -> Any:
    return token_request(auth)["auth"]["identity"]


def scope(auth: Auth) -> Any:
    return token_request(auth)["auth"].get("scope")


@pytest.mark.parametrize(
    "url",
    [
        "http://k",
        "http://k/",
        "http://k/v3",
        "http://k/v3/",
        "http://k/v2.0",
        "http://k/v3/auth/tokens",
    ],
)
def test_keystone_is_found_with_or_without_its_version(url):
    assert keystone_url(url) == "http://k/v3"
    assert keystone_url(url.replace("http://k", "http://k/identity")) == "http://k/identity/v3"


def test_a_user_has_a_domain_unless_it_is_named_by_id():
    auth = Auth(username="u", password="p", domain_name="d", user_domain_id="e", tenant_name="t")
    user = identity(auth)["password"]["user"]
    assert user == {"name": "u", "domain": {"id": "e"}, "password": "p"}
    assert scope(auth) == {"project": {"name": "t", "domain": {"name": "d"}}}
    auth = Auth(user_id="u", password="p", tenant_id="t", tenant_name="x")
    assert identity(auth)["password"]["user"] == {"id": "u", "password": "p"}
    assert scope(auth) == {"project": {"id": "t"}}


def test_a_trust_is_a_scope_of_its_own_and_the_trustee_the_user():
    auth = Auth(
        user_id="u",
        password="p",
        tenant_id="t",
        trust_id="r",
        trustee_id="v",
        trustee_password="q",
    )
    assert identity(auth)["password"]["user"] == {"id": "v", "password": "q"}
    assert scope(auth) == {"OS-TRUST:trust": {"id": "r"}}
    assert identity_of(auth) == "user v, trust r"


def test_an_application_credential_has_its_own_project():
    auth = Auth(
        application_credential_id="a", application_credential_secret="s", tenant_id="t", region="r"
    )
    assert identity(auth) == {
        "methods": ["application_credential"],
        "application_credential": {"id": "a", "secret": "s"},
    }
    assert scope(auth) is None
    assert identity_of(auth) == "application credential a"


def test_an_application_credential_by_name_needs_its_user():
    auth = Auth(
        application_credential_name="n",
        application_credential_secret="s",
        username="u",
        domain_id="d",
    )
    assert identity(auth)["application_credential"] == {
        "name": "n",
        "secret": "s",
        "user": {"name": "u", "domain": {"id": "d"}},
    }


def test_a_token_is_exchanged_for_one_of_the_project_or_used_as_it_is():
    auth = Auth(token="x", tenant_id="t")
    assert identity(auth) == {"methods": ["token"], "token": {"id": "x"}}
    assert scope(auth) == {"project": {"id": "t"}}
    assert not is_used_as_is(auth)
    assert is_used_as_is(Auth(token="x"))
    assert not is_used_as_is(Auth(token="x", user_id="u", password="p"))


def answer(token: object, headers: dict[str, str] | None = None) -> Answer:
    body = json.dumps({"token": token}).encode()
    request = Request("POST", "http://k/v3/auth/tokens", {})
    return Answer(201, {"x-subject-token": "id", **(headers or {})}, body, request)


ISSUED = {
    "expires_at": "2026-11-17T10:00:00.000000Z",
    "issued_at": "2026-11-17T09:00:00.000000Z",
    "project": {"id": "p"},
}


def test_a_lifetime_is_measured_by_the_clock_of_keystone():
    token = token_of(answer(ISSUED), 1000.0)
    assert (token.renew_at, token.expires_at) == (1000 + 3300, 1000 + 3600)
    late = answer(ISSUED, {"date": "Tue, 17 Nov 2026 09:58:20 GMT"})
    token = token_of(late, 1000.0)
    assert (token.renew_at, token.expires_at) == (1000 + 80, 1000 + 100)


@pytest.mark.parametrize("zone", ["", "Z", "+00:00"])
@pytest.mark.parametrize("date", ["", "Tue, 17 Nov 2026 09:00:00 -0000"])
def test_a_time_without_a_zone_is_utc(zone: str, date: str):
    times = {"expires_at": f"2026-11-17T10:00:00{zone}", "issued_at": "2026-11-17T09:00:00Z"}
    found = token_of(answer(ISSUED | times, {"date": date}), 1000.0)
    assert found.expires_at == 1000 + 3600


def test_a_token_is_not_part_of_its_text():
    token = token_of(answer(ISSUED, {"x-subject-token": "hunter2"}), 0.0)
    assert token.id == "hunter2"
    assert "hunter2" not in repr(token)


@pytest.mark.parametrize(
    ("found", "error", "words"),
    [
        (answer({**ISSUED, "project": None}), Misconfigured, "not for a project"),
        (answer(ISSUED, {"x-subject-token": ""}), Unavailable, "no X-Subject-Token"),
        (answer({**ISSUED, "expires_at": "soon"}), Unavailable, "unexpected answer"),
        (answer([]), Unavailable, "unexpected answer"),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error(found, error, words):
    with pytest.raises(error, match=words):
        token_of(found, 0.0)
