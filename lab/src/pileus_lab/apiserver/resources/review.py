"""Reviews, which are answered and not stored: who a user is and what the user may do."""

from pileus_lab.apiserver.resource import CREATE_ONLY, Resource

AUTHENTICATION = "authentication.k8s.io"
AUTHORIZATION = "authorization.k8s.io"

TOKEN_REVIEWS = Resource(
    group=AUTHENTICATION,
    kind="TokenReview",
    plural="tokenreviews",
    schema="authentication.TokenReview",
    namespaced=False,
    verbs=CREATE_ONLY,
)
SELF_REVIEWS = Resource(
    group=AUTHENTICATION,
    kind="SelfSubjectReview",
    plural="selfsubjectreviews",
    schema="authentication.SelfSubjectReview",
    namespaced=False,
    verbs=CREATE_ONLY,
)
ACCESS_REVIEWS = Resource(
    group=AUTHORIZATION,
    kind="SubjectAccessReview",
    plural="subjectaccessreviews",
    schema="authorization.SubjectAccessReview",
    namespaced=False,
    verbs=CREATE_ONLY,
)
LOCAL_ACCESS_REVIEWS = Resource(
    group=AUTHORIZATION,
    kind="LocalSubjectAccessReview",
    plural="localsubjectaccessreviews",
    schema="authorization.LocalSubjectAccessReview",
    verbs=CREATE_ONLY,
)
SELF_ACCESS_REVIEWS = Resource(
    group=AUTHORIZATION,
    kind="SelfSubjectAccessReview",
    plural="selfsubjectaccessreviews",
    schema="authorization.SelfSubjectAccessReview",
    namespaced=False,
    verbs=CREATE_ONLY,
)
SELF_RULES_REVIEWS = Resource(
    group=AUTHORIZATION,
    kind="SelfSubjectRulesReview",
    plural="selfsubjectrulesreviews",
    schema="authorization.SelfSubjectRulesReview",
    namespaced=False,
    verbs=CREATE_ONLY,
)
