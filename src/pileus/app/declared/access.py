"""Flags about who may ask the HTTPS server what."""

from pileus.app.flags import Flag, Group, switch
from pileus.app.kinds import DURATION, STRING, STRINGS

AUTHENTICATION_KUBECONFIG = Flag(
    "authentication-kubeconfig",
    STRING,
    "",
    "kubeconfig with the right to create token reviews; empty: in a cluster the pod's own "
    "credentials, elsewhere every request is anonymous.",
)
AUTHENTICATION_SKIP_LOOKUP = switch(
    "authentication-skip-lookup",
    "Do not look in the cluster for the certificate authorities that are not given by flag.",
)
AUTHENTICATION_TOLERATE_LOOKUP_FAILURE = switch(
    "authentication-tolerate-lookup-failure",
    "Start even if that look-up fails. Requests with certificates may then count as anonymous.",
)
AUTHENTICATION_CACHE_TTL = Flag(
    "authentication-token-webhook-cache-ttl",
    DURATION,
    10.0,
    "How long the answer of a token review is remembered.",
)
CLIENT_CA_FILE = Flag(
    "client-ca-file",
    STRING,
    "",
    "Certificate authorities whose client certificates are believed: the common name is the "
    "user, the organizations are the groups.",
)
REQUESTHEADER_CLIENT_CA_FILE = Flag(
    "requestheader-client-ca-file",
    STRING,
    "",
    "Certificate authorities of the proxies that may name the user in request headers.",
)
REQUESTHEADER_ALLOWED_NAMES = Flag(
    "requestheader-allowed-names",
    STRINGS,
    (),
    "Common names of those proxies; empty: any that the authorities vouch for.",
)
REQUESTHEADER_USERNAME_HEADERS = Flag(
    "requestheader-username-headers",
    STRINGS,
    ("x-remote-user",),
    "Request headers that name the user.",
)
REQUESTHEADER_UID_HEADERS = Flag(
    "requestheader-uid-headers",
    STRINGS,
    (),
    "Request headers that give the user's UID; must contain X-Remote-Uid if set.",
)
REQUESTHEADER_GROUP_HEADERS = Flag(
    "requestheader-group-headers",
    STRINGS,
    ("x-remote-group",),
    "Request headers that name the user's groups.",
)
REQUESTHEADER_EXTRA_HEADERS_PREFIX = Flag(
    "requestheader-extra-headers-prefix",
    STRINGS,
    ("x-remote-extra-",),
    "How request headers begin that say more about the user.",
)
AUTHENTICATION = Group(
    "Authentication",
    (
        AUTHENTICATION_KUBECONFIG,
        AUTHENTICATION_SKIP_LOOKUP,
        AUTHENTICATION_TOLERATE_LOOKUP_FAILURE,
        AUTHENTICATION_CACHE_TTL,
        CLIENT_CA_FILE,
        REQUESTHEADER_CLIENT_CA_FILE,
        REQUESTHEADER_ALLOWED_NAMES,
        REQUESTHEADER_USERNAME_HEADERS,
        REQUESTHEADER_UID_HEADERS,
        REQUESTHEADER_GROUP_HEADERS,
        REQUESTHEADER_EXTRA_HEADERS_PREFIX,
    ),
)

AUTHORIZATION_KUBECONFIG = Flag(
    "authorization-kubeconfig",
    STRING,
    "",
    "kubeconfig with the right to create subject access reviews; empty: in a cluster the pod's "
    "own credentials, elsewhere everything but the always allowed paths is refused.",
)
AUTHORIZATION_ALWAYS_ALLOW_PATHS = Flag(
    "authorization-always-allow-paths",
    STRINGS,
    ("/healthz", "/readyz", "/livez"),
    "Paths that anybody may get; a trailing * allows all that begin so.",
)
AUTHORIZATION_AUTHORIZED_TTL = Flag(
    "authorization-webhook-cache-authorized-ttl",
    DURATION,
    10.0,
    "How long the answer 'allowed' of an access review is remembered.",
)
AUTHORIZATION_UNAUTHORIZED_TTL = Flag(
    "authorization-webhook-cache-unauthorized-ttl",
    DURATION,
    10.0,
    "How long the answer 'refused' of an access review is remembered.",
)
AUTHORIZATION = Group(
    "Authorization",
    (
        AUTHORIZATION_KUBECONFIG,
        AUTHORIZATION_ALWAYS_ALLOW_PATHS,
        AUTHORIZATION_AUTHORIZED_TTL,
        AUTHORIZATION_UNAUTHORIZED_TTL,
    ),
)
