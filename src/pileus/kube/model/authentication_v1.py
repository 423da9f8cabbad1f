"""Authentication API group: tokens for service accounts, and token reviews."""

from pileus.kube.model.meta import KubeObject, Resource, Time, Wire


class TokenRequestStatus(Wire, frozen=True):
    token: str = ""
    expiration_timestamp: Time | None = None

    def __repr__(self) -> str:  # the token is a secret
        return f"TokenRequestStatus(expiration_timestamp={self.expiration_timestamp})"


class TokenRequest(KubeObject, frozen=True):
    status: TokenRequestStatus | None = None


class UserInfo(Wire, frozen=True):
    username: str = ""
    uid: str | None = None
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class TokenReviewSpec(Wire, frozen=True):
    token: str = ""

    def __repr__(self) -> str:  # the token is a secret
        return "TokenReviewSpec()"


class TokenReviewStatus(Wire, frozen=True):
    authenticated: bool | None = None
    user: UserInfo | None = None
    error: str | None = None


class TokenReview(KubeObject, frozen=True):
    spec: TokenReviewSpec | None = None
    status: TokenReviewStatus | None = None


SERVICE_ACCOUNT_TOKENS = Resource(TokenRequest, "TokenRequest", "serviceaccounts")
"""Created as subresource `token` of a service account; the request itself names its own group."""
TOKEN_REVIEWS = Resource(
    TokenReview, "TokenReview", "tokenreviews", group="authentication.k8s.io", namespaced=False
)
