"""Authorization API group: whether a user may do a thing."""

from pileus.kube.model.meta import KubeObject, Resource, Wire


class NonResourceAttributes(Wire, frozen=True):
    path: str = ""
    verb: str = ""


class SubjectAccessReviewSpec(Wire, frozen=True):
    user: str = ""
    uid: str | None = None
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None
    non_resource_attributes: NonResourceAttributes | None = None


class SubjectAccessReviewStatus(Wire, frozen=True):
    allowed: bool | None = None
    denied: bool | None = None
    reason: str | None = None
    evaluation_error: str | None = None


class SubjectAccessReview(KubeObject, frozen=True):
    spec: SubjectAccessReviewSpec | None = None
    status: SubjectAccessReviewStatus | None = None


SUBJECT_ACCESS_REVIEWS = Resource(
    SubjectAccessReview,
    "SubjectAccessReview",
    "subjectaccessreviews",
    group="authorization.k8s.io",
    namespaced=False,
)
