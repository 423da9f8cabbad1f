"""Flags about who may ask the HTTPS server what."""

from pileus.settings.flags import Flag, Group, switch
from pileus.settings.kinds import DURATION, STRING, STRINGS

AUTHENTICATION_KUBECONFIG = Flag(
    "authentication-kubeconfig",
    STRING,
    "",
    "Kubeconfig that may create TokenReviews; empty: the pod's service account, or none "
    "outside a cluster.",
    details="Without credentials, every request is anonymous.",
)
AUTHENTICATION_SKIP_LOOKUP = switch(
    "authentication-skip-lookup",
    "Do not read missing client CAs from the cluster.",
)
AUTHENTICATION_TOLERATE_LOOKUP_FAILURE = switch(
    "authentication-tolerate-lookup-failure",
    "Start even if the client CAs cannot be read from the cluster.",
)
AUTHENTICATION_CACHE_TTL = Flag(
    "authentication-token-webhook-cache-ttl",
    DURATION,
    10.0,
    "Cache duration of token reviews.",
)
CLIENT_CA_FILE = Flag(
    "client-ca-file",
    STRING,
    "",
    "CA bundle for client certificates: the common name is the user, the organizations "
    "are the groups.",
)
REQUESTHEADER_CLIENT_CA_FILE = Flag(
    "requestheader-client-ca-file",
    STRING,
    "",
    "CA bundle of proxies that may name the user in request headers.",
)
REQUESTHEADER_ALLOWED_NAMES = Flag(
    "requestheader-allowed-names",
    STRINGS,
    (),
    "Common names of those proxies; empty: all that the CA bundle has signed.",
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
    "Prefixes of request headers with further user attributes.",
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
    "Kubeconfig that may create SubjectAccessReviews; empty: the pod's service account, "
    "or none outside a cluster.",
    details="Without credentials, only the always allowed paths are served.",
)
AUTHORIZATION_ALWAYS_ALLOW_PATHS = Flag(
    "authorization-always-allow-paths",
    STRINGS,
    ("/healthz", "/readyz", "/livez"),
    "Paths that are served without authorization; a trailing * allows all paths with that prefix.",
)
AUTHORIZATION_AUTHORIZED_TTL = Flag(
    "authorization-webhook-cache-authorized-ttl",
    DURATION,
    10.0,
    "Cache duration of positive access reviews.",
)
AUTHORIZATION_UNAUTHORIZED_TTL = Flag(
    "authorization-webhook-cache-unauthorized-ttl",
    DURATION,
    10.0,
    "Cache duration of negative access reviews.",
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
