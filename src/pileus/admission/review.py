"""Admission reviews: the objects that the API server sends, and the answers to them.

A webhook never fails a request because of its own trouble: what it cannot decide is allowed with
a warning, which the API server shows to the user.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from pileus.kube.model.meta import Wire

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
LONGEST_WARNING = 250
"""Characters of a warning; the API server shortens longer ones, and drops those beyond 4096."""


class BadReview(ValueError):
    """The body of a request is not an AdmissionReview with a request."""


class AdmissionRequest(Wire, frozen=True):
    """What the API server asks about. `object` and `old_object` are not decoded yet."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    operation: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    dry_run: bool | None = None


class AdmissionReview(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


class Outcome(StrEnum):
    """The label `answer` of the metric."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """Allowed because the webhook could not find out what it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a webhook decides about one request."""

    outcome: Outcome = Outcome.UNCHANGED
    patch: Sequence[Mapping[str, object]] = ()
    """A JSON patch."""
    message: str = ""
    """Why it is refused."""
    warnings: tuple[str, ...] = ()


ALLOWED = Answer()


def refused(message: str) -> Answer:
    return Answer(outcome=Outcome.REFUSED, message=message)


def undecided(warning: str) -> Answer:
    """Returns the answer of a webhook that could not find out what it needs."""
    return Answer(outcome=Outcome.UNKNOWN, warnings=(warning,))


Review = Callable[[AdmissionRequest], Awaitable[Answer]]
"""Decides about a request. May take as long as it likes: the port has a deadline."""


def parse(body: bytes) -> AdmissionRequest:
    """Returns the request of an AdmissionReview. Raises BadReview."""
    try:
        review = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadReview(f"the body is not an AdmissionReview: {error}") from error
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        found = f"{review.api_version or '?'} {review.kind or '?'}"
        raise BadReview(f"expected {API_VERSION} {KIND}, got {found}")
    if review.request is None or not review.request.uid:
        raise BadReview("the AdmissionReview has no request with a uid")
    return review.request


def render(request: AdmissionRequest, answer: Answer) -> bytes:
    """Returns the AdmissionReview that answers the request."""
    response: dict[str, Any] = {
        "uid": request.uid,
        "allowed": answer.outcome is not Outcome.REFUSED,
    }
    if answer.message:
        response["status"] = {
            "message": answer.message,
            "reason": "Forbidden",
            "code": 403,
        }
    if answer.patch:
        response |= {"patchType": "JSONPatch", "patch": msgspec.json.encode(answer.patch)}
    if answer.warnings:
        response["warnings"] = [_shortened(each) for each in answer.warnings]
    review = {"apiVersion": API_VERSION, "kind": KIND, "response": response}
    return msgspec.json.encode(review)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_WARNING else f"{text[: LONGEST_WARNING - 1]}…"


_DECODER = msgspec.json.Decoder(AdmissionReview)
