"""What one may see: masters all, everyone the listed paths, the rest as the API server says."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.server.authorization import Authorizer, Question, always_allowed
from pileus.server.errors import BadOption
from pileus.server.reviews import ReviewFailed, Verdict
from pileus.server.settings import AuthorizationOptions
from pileus.server.users import ANONYMOUS, User
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics

JANE = User("jane", groups=("dev",))
DEFAULT = AuthorizationOptions().always_allow_paths
PATHS = st.text("/abc.%*", max_size=12)


class Reviews:
    def __init__(self, verdict: Verdict | ReviewFailed) -> None:
        self.verdict = verdict
        self.asked: list[Question] = []

    async def review(self, user: User, verb: str, path: str) -> Verdict:
        self.asked.append(Question(user, verb, path))
        if isinstance(self.verdict, ReviewFailed):
            raise self.verdict
        return self.verdict


def authorizer(reviews: Reviews | None, options: AuthorizationOptions | None = None) -> Authorizer:
    given = options or AuthorizationOptions()
    return Authorizer(given, reviews, Metrics(MetricRegistry()))


@pytest.mark.parametrize(
    ("path", "allowed", "expected"),
    [
        ("/healthz", DEFAULT, True),
        ("/healthz/", DEFAULT, False),
        ("/healthz/ping", DEFAULT, False),
        ("/healthzz", DEFAULT, False),
        ("/Healthz", DEFAULT, False),
        ("/healthz/ping", ("/healthz/*",), True),
        ("/healthz", ("healthz",), True),
        ("/metrics", ("*",), True),
        ("/metrics", (), False),
    ],
)
def test_listed_paths_are_free_for_all(path: str, allowed: tuple[str, ...], expected: bool):
    assert always_allowed(path, allowed) is expected


@given(PATHS, PATHS)
def test_a_path_without_star_frees_itself_alone(path: str, listed: str):
    listed = listed.rstrip("*")

    assert always_allowed(path, [listed]) is (path.removeprefix("/") == listed.removeprefix("/"))


async def test_masters_and_listed_paths_need_no_review():
    reviews = Reviews(Verdict(allowed=False))
    doors = authorizer(reviews)

    master = Question(User("root", groups=("system:masters",)), "put", "/debug/flags/v")
    assert (await doors.decide(master)).allowed
    assert (await doors.decide(Question(ANONYMOUS, "get", "/readyz"))).allowed

    assert reviews.asked == []


async def test_without_credentials_the_rest_is_denied():
    assert not (await authorizer(None).decide(Question(JANE, "get", "/metrics"))).allowed


async def test_the_api_servers_verdict_counts_with_its_reason():
    verdict = Verdict(allowed=False, reason="not on Mondays")

    assert await authorizer(Reviews(verdict)).decide(Question(JANE, "get", "/metrics")) == verdict


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_verdict_is_remembered_for_its_time(allowed: bool):
    reviews = Reviews(Verdict(allowed=allowed))
    doors = authorizer(reviews, AuthorizationOptions(authorized_ttl=10, unauthorized_ttl=3))
    question = Question(JANE, "get", "/metrics")

    await doors.decide(question)
    await asyncio.sleep(2)
    await doors.decide(question)
    assert len(reviews.asked) == 1
    await asyncio.sleep(2)
    await doors.decide(question)

    assert len(reviews.asked) == (1 if allowed else 2)


async def test_every_part_of_a_question_makes_it_another_one():
    reviews = Reviews(Verdict(allowed=True))
    doors = authorizer(reviews)
    questions = [
        Question(JANE, "get", "/metrics"),
        Question(JANE, "delete", "/metrics"),
        Question(JANE, "get", "/configz"),
        Question(User("jane"), "get", "/metrics"),
        Question(User("jane", "7", ("dev",)), "get", "/metrics"),
        Question(User("jane", "", ("dev",), (("scope", ("a",)),)), "get", "/metrics"),
    ]

    for question in questions * 2:
        await doors.decide(question)

    assert reviews.asked == questions


async def test_huge_questions_are_not_remembered():
    reviews = Reviews(Verdict(allowed=True))
    doors = authorizer(reviews)
    huge = Question(JANE, "get", "/" + "x" * 20_000)

    await doors.decide(huge)
    await doors.decide(huge)

    assert len(reviews.asked) == 2


async def test_no_answer_is_no_permission_and_not_remembered():
    reviews = Reviews(ReviewFailed("down", code=403))
    doors = authorizer(reviews)
    question = Question(JANE, "get", "/metrics")
    with pytest.raises(ReviewFailed):
        await doors.decide(question)

    reviews.verdict = Verdict(allowed=True)

    assert (await doors.decide(question)).allowed


def test_a_refusal_reads_as_kubernetes_writes_it():
    assert Question(ANONYMOUS, "get", "/metrics").forbidden == (
        'forbidden: User "system:anonymous" cannot get path "/metrics"'
    )


@pytest.mark.parametrize("pattern", ["/a*b", "**", "/*/healthz"])
def test_a_star_that_is_not_at_the_end_is_refused(pattern: str):
    options = AuthorizationOptions(always_allow_paths=("/healthz", pattern))

    with pytest.raises(BadOption, match="always-allow-paths"):
        authorizer(None, options)
