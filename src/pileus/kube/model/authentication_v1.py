"""Authentication API group: tokens for service accounts."""

from datetime import datetime

from pileus.kube.model.meta import KubeObject, Resource, Wire


class TokenRequestStatus(Wire, frozen=True):
    token: str = ""
    expiration_timestamp: datetime | None = None

    def __repr__(self) -> str:  # the token is a secret
        return f"TokenRequestStatus(expiration_timestamp={self.expiration_timestamp})"


class TokenRequest(KubeObject, frozen=True):
    status: TokenRequestStatus | None = None


SERVICE_ACCOUNT_TOKENS = Resource(TokenRequest, "TokenRequest", "serviceaccounts")
"""Created as subresource `token` of a service account; the request itself names its own group."""
