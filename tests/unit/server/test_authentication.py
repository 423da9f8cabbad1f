"""Who asks: proxy, certificate, token, in this order; what does not hold is refused."""

import asyncio
from datetime import timedelta

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from pileus.pki import KeyPair, Subject
from pileus.server.authentication import Authenticator, CachedTokens, Proof, bearer_token
from pileus.server.client_certificates import ProxyTrust, Trust
from pileus.server.reviews import ReviewFailed
from pileus.server.users import ANONYMOUS, Unauthenticated, User
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from tests.unit.server.people import (
    CLIENT_CA,
    JANE,
    MALLORY,
    PROXY,
    PROXY_CA,
    REAL_NOW,
    FixedClock,
    der,
)

TRUST = Trust(CLIENT_CA.certificate, ProxyTrust(PROXY_CA.certificate, ("front-proxy",)))
FOR_BOB = {"X-Remote-User": "bob", "X-Remote-Group": "ops"}


class Reviews:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failures: list[ReviewFailed] = []

    async def review(self, token: str) -> User | None:
        self.asked.append(token)
        await asyncio.sleep(0.1)
        if self.failures:
            raise self.failures.pop()
        return User("robot", groups=("bots",)) if token == "good" else None


class Desk:
    """An authenticator with everything at hand."""

    def __init__(self, trust: Trust = TRUST) -> None:
        self.reviews = Reviews()
        self.clock = FixedClock(REAL_NOW)
        self.metrics = Metrics(MetricRegistry())
        tokens = CachedTokens(self.reviews, self.metrics, lifetime=10)
        self.authenticator = Authenticator(self.clock, self.metrics, tokens)
        self.authenticator.trust(trust)

    async def user(self, pair: KeyPair | None = None, /, **headers: str) -> User:
        given = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
        chain = (der(pair),) if pair else ()
        return await self.authenticator.authenticate(Proof(CIMultiDictProxy(given), chain))


async def test_no_proof_at_all_is_anonymous():
    assert await Desk().user() == ANONYMOUS


async def test_a_client_certificate_names_its_user():
    user = await Desk().user(JANE)

    assert (user.name, user.groups) == ("jane", ("dev", "ops", "system:authenticated"))


async def test_a_certificate_of_an_unknown_ca_is_refused():
    with pytest.raises(Unauthenticated):
        await Desk().user(MALLORY)


async def test_without_a_ca_certificates_do_not_count_at_all():
    assert await Desk(Trust()).user(JANE) == ANONYMOUS


async def test_a_certificate_that_expired_on_an_open_connection_is_refused():
    desk = Desk()
    assert (await desk.user(JANE)).name == "jane"

    desk.clock.moment += timedelta(days=5000)

    with pytest.raises(Unauthenticated):
        await desk.user(JANE)


async def test_a_proxy_speaks_for_others():
    user = await Desk().user(PROXY, **FOR_BOB)

    assert user == User("bob", groups=("ops", "system:authenticated"))


async def test_nobody_else_speaks_for_others():
    desk = Desk()

    assert (await desk.user(JANE, **FOR_BOB)).name == "jane"
    assert await desk.user(**FOR_BOB) == ANONYMOUS
    with pytest.raises(Unauthenticated):
        await desk.user(MALLORY, **FOR_BOB)


async def test_a_proxy_of_another_name_is_refused_unless_all_names_are_allowed():
    other = PROXY_CA.issue(Subject(common_name="other-proxy"), now=REAL_NOW)
    with pytest.raises(Unauthenticated, match="'other-proxy' is not among"):
        await Desk().user(other, **FOR_BOB)

    any_name = Trust(CLIENT_CA.certificate, ProxyTrust(PROXY_CA.certificate))

    assert (await Desk(any_name).user(other, **FOR_BOB)).name == "bob"


async def test_a_proxy_that_names_nobody_is_nobody():
    with pytest.raises(Unauthenticated):
        await Desk().user(PROXY)


@pytest.mark.parametrize("name", ["X-Remote-User", "X-Remote-Group", "X-Remote-Extra-Scope"])
async def test_a_proxy_whose_headers_are_not_utf8_is_refused(name: str):
    with pytest.raises(Unauthenticated, match="not UTF-8"):
        await Desk().user(PROXY, **(FOR_BOB | {name: "b\udcffb"}))


async def test_a_token_that_is_not_utf8_is_refused_without_a_review():
    desk = Desk()

    with pytest.raises(Unauthenticated, match="not UTF-8"):
        await desk.user(Authorization="Bearer \udcff")
    assert desk.reviews.asked == []


async def test_a_token_names_its_user_and_is_asked_for_once_in_its_time():
    desk = Desk()

    for _ in range(3):
        user = await desk.user(Authorization="Bearer good")
        assert user == User("robot", groups=("bots", "system:authenticated"))
    assert desk.reviews.asked == ["good"]

    await asyncio.sleep(10)
    await desk.user(Authorization="Bearer good")

    assert desk.reviews.asked == ["good", "good"]
    name = "authentication_token_cache_request_total"
    assert desk.metrics.registry.value(name, {"status": "hit"}) == 2


async def test_a_bad_token_is_refused_though_anonymous_would_pass():
    with pytest.raises(Unauthenticated, match="the token is invalid"):
        await Desk().user(Authorization="Bearer bad")


async def test_a_good_token_makes_up_for_a_bad_certificate():
    assert (await Desk().user(MALLORY, Authorization="Bearer good")).name == "robot"


async def test_no_answer_on_a_token_is_a_refusal_that_is_not_remembered():
    desk = Desk()
    desk.reviews.failures.append(ReviewFailed("no right to ask", code=403))
    with pytest.raises(Unauthenticated, match="no right to ask"):
        await desk.user(Authorization="Bearer good")

    assert (await desk.user(Authorization="Bearer good")).name == "robot"


async def test_tokens_do_not_count_where_they_cannot_be_reviewed():
    authenticator = Authenticator(FixedClock(), Metrics(MetricRegistry()))
    headers = CIMultiDictProxy(CIMultiDict(Authorization="Bearer good"))

    assert await authenticator.authenticate(Proof(headers)) == ANONYMOUS


async def test_results_are_counted_under_few_names():
    desk = Desk()
    await desk.user(JANE)
    with pytest.raises(Unauthenticated):
        await desk.user(MALLORY)

    value = desk.metrics.registry.value
    assert value("authentication_attempts", {"result": "success"}) == 1
    assert value("authentication_attempts", {"result": "error"}) == 1
    assert value("authenticated_user_requests", {"username": "other"}) == 1


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc", ""),
        ("  Bearer abc def", "abc"),
        ("Basic abc", ""),
        ("Bearer", ""),
        ("", ""),
    ],
)
def test_tokens_are_read_as_upstream_reads_them(header: str, token: str):
    assert bearer_token(header) == token


async def test_the_lifetime_of_client_certificates_is_measured():
    desk = Desk()
    name = "apiserver_client_certificate_expiration_seconds"
    await desk.user(JANE)
    left = desk.metrics.registry.value(f"{name}_sum")
    desk.clock.moment += timedelta(hours=1)
    await desk.user(JANE)

    assert left is not None
    assert desk.metrics.registry.value(f"{name}_count") == 2
    assert desk.metrics.registry.value(f"{name}_sum") == 2 * left - 3600
