"""Settings of the HTTPS ports, with the Go program's defaults."""

from collections.abc import Iterator

from pileus.dataclass import dataclass
from pileus.server.ciphers import KNOWN_SUITES, KNOWN_VERSIONS, tls_problems
from pileus.settings.checks import no_blanks, not_negative
from pileus.settings.config import Config
from pileus.settings.declare import converted, nested, setting, switch
from pileus.settings.go_quote import quote
from pileus.settings.kinds import (
    DURATION,
    INT,
    INTS,
    IP,
    STRING,
    STRINGS,
    Kind,
    joined,
)
from pileus.version import PROGRAM

HIGHEST_PORT = 65535
_SERVING = "Secure serving"
_AUTHENTICATION, _AUTHORIZATION = "Authentication", "Authorization"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 -- upstream's default


@dataclass(frozen=True, slots=True)
class SniPair:
    """One `--tls-sni-cert-key`: a key pair for clients that ask for certain host names."""

    certificate_file: str
    key_file: str
    names: tuple[str, ...] = ()
    """Host names, `*.` for one leading label; empty: those in the certificate."""


def _parse_certificate(text: str) -> tuple[SniPair, ...]:
    files, colon, listed = text.partition(":")
    names = tuple(name.strip() for name in listed.split(",")) if listed.strip() else ()
    if colon and not names:
        raise ValueError("empty names list is not allowed")
    if not all(names):
        raise ValueError("a host name after the colon is empty")
    parts = [part.strip() for part in files.split(",")]
    if len(parts) != 2 or not all(parts):  # noqa: PLR2004 -- certificate and key
        raise ValueError("expected comma separated certificate and key file paths")
    return (SniPair(parts[0], parts[1], names),)


def _render_certificates(value: tuple[SniPair, ...]) -> str:
    return ";".join(
        f"{one.certificate_file},{one.key_file}" + (":" + ",".join(one.names) if one.names else "")
        for one in value
    )


CERTIFICATES: Kind[tuple[SniPair, ...]] = Kind(
    name="namedCertKey",
    parse=_parse_certificate,
    render=lambda value: f"[{_render_certificates(value)}]",
    join=joined,
    natural=(list, str),
)


def _address(_name: str, given: str) -> str:
    return given or ANY_ADDRESS


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """Where and how to serve (`--bind-address`, `--secure-port`, `--tls-…`)."""

    bind_address: str = converted(
        _address,
        "bind-address",
        IP,
        ANY_ADDRESS,
        "IP address of --secure-port; 0.0.0.0 or :: for all addresses.",
        section=_SERVING,
    )
    port: int = setting(
        "secure-port", INT, 10258, "Port of the HTTPS server; 0: not served.", section=_SERVING
    )
    cert_dir: str = setting(
        "cert-dir",
        STRING,
        "",
        f"Folder of {PROGRAM}.crt and .key, created if absent; empty: a self-signed certificate "
        "in memory.",
        details="Ignored if --tls-cert-file is set.",
        section=_SERVING,
    )
    pair_name: str = PROGRAM
    """Name, without suffix, of the files created in `cert_dir`."""
    cert_file: str = setting(
        "tls-cert-file",
        STRING,
        "",
        "Certificate of the server, followed by its issuers; reloaded when it changes.",
        section=_SERVING,
    )
    key_file: str = setting(
        "tls-private-key-file", STRING, "", "Private key of --tls-cert-file.", section=_SERVING
    )
    cipher_suites: tuple[str, ...] = setting(
        "tls-cipher-suites",
        STRINGS,
        (),
        "IANA names of the server's cipher suites; empty: safe ones.",
        details="Known: " + ", ".join(KNOWN_SUITES) + ".",
        section=_SERVING,
    )
    curve_preferences: tuple[int, ...] = setting(
        "tls-curve-preferences",
        INTS,
        (),
        "Numbers of the server's key exchange groups; empty: safe ones.",
        details=(
            "Known: 23 (P-256), 24 (P-384), 25 (P-521), 29 (X25519); accepted but left to "
            "OpenSSL: 4587, 4588, 4589 (hybrids with ML-KEM)."
        ),
        section=_SERVING,
    )
    min_version: str = setting(
        "tls-min-version",
        STRING,
        "",
        "Minimum TLS version: " + ", ".join(KNOWN_VERSIONS) + "; empty: VersionTLS12.",
        section=_SERVING,
    )
    sni: tuple[SniPair, ...] = setting(
        "tls-sni-cert-key",
        CERTIFICATES,
        (),
        "Further certificate as CERT,KEY[:NAME,...]; without names, those of the certificate "
        "apply. Repeatable.",
        details=(
            "'*.' in a name stands for one label. "
            "Examples: 'a.crt,a.key' or 'b.crt,b.key:*.b.example,b.example'."
        ),
        section=_SERVING,
    )
    disable_http2: bool = switch(
        "disable-http2-serving",
        "Accepted for compatibility: HTTP/2 is not served.",
        section=_SERVING,
    )
    http2_max_streams: int = setting(
        "http2-max-streams-per-connection",
        INT,
        0,
        "Accepted for compatibility: HTTP/2 is not served.",
        section=_SERVING,
    )
    permit_address_sharing: bool = switch(
        "permit-address-sharing",
        "Open the port with SO_REUSEADDR, so that it can be reused at once after a restart.",
        section=_SERVING,
    )
    """No effect: addresses are always shared so, as in Go."""
    permit_port_sharing: bool = switch(
        "permit-port-sharing",
        "Open the port with SO_REUSEPORT, so that several processes can share it.",
        section=_SERVING,
    )

    def tls_problems(self, prefix: str = "") -> Iterator[str]:
        """Yields what is wrong with the TLS flags; `prefix` is that of their names."""
        if bool(self.cert_file) != bool(self.key_file):
            yield (
                f"--{prefix}tls-cert-file and --{prefix}tls-private-key-file must be given together"
            )
        yield from tls_problems(self, prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeaderOptions:
    """Which proxies may name the user on whose behalf they ask (`--requestheader-…`)."""

    client_ca_file: str = setting(
        "requestheader-client-ca-file",
        STRING,
        "",
        "CA bundle of proxies that may name the user in request headers.",
        section=_AUTHENTICATION,
    )
    allowed_names: tuple[str, ...] = setting(
        "requestheader-allowed-names",
        STRINGS,
        (),
        "Common names of those proxies; empty: all that the CA bundle has signed.",
        section=_AUTHENTICATION,
        check=no_blanks,
    )
    username_headers: tuple[str, ...] = setting(
        "requestheader-username-headers",
        STRINGS,
        ("x-remote-user",),
        "Request headers that name the user.",
        section=_AUTHENTICATION,
        check=no_blanks,
    )
    uid_headers: tuple[str, ...] = setting(
        "requestheader-uid-headers",
        STRINGS,
        (),
        "Request headers that give the user's UID; must contain X-Remote-Uid if set.",
        section=_AUTHENTICATION,
        check=no_blanks,
    )
    group_headers: tuple[str, ...] = setting(
        "requestheader-group-headers",
        STRINGS,
        ("x-remote-group",),
        "Request headers that name the user's groups.",
        section=_AUTHENTICATION,
        check=no_blanks,
    )
    extra_headers_prefix: tuple[str, ...] = setting(
        "requestheader-extra-headers-prefix",
        STRINGS,
        ("x-remote-extra-",),
        "Prefixes of request headers with further user attributes.",
        section=_AUTHENTICATION,
        check=no_blanks,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationOptions:
    """How callers are identified (`--authentication-…`, `--client-ca-file`)."""

    kubeconfig: str = setting(
        "authentication-kubeconfig",
        STRING,
        "",
        "Kubeconfig that may create TokenReviews; empty: the pod's service account, or none "
        "outside a cluster.",
        details="Without credentials, every request is anonymous.",
        section=_AUTHENTICATION,
    )
    skip_lookup: bool = switch(
        "authentication-skip-lookup",
        "Do not read missing client CAs from the cluster.",
        section=_AUTHENTICATION,
    )
    tolerate_lookup_failure: bool = switch(
        "authentication-tolerate-lookup-failure",
        "Start even if the client CAs cannot be read from the cluster.",
        section=_AUTHENTICATION,
    )
    token_cache_ttl: float = setting(
        "authentication-token-webhook-cache-ttl",
        DURATION,
        10.0,
        "Cache duration of token reviews.",
        section=_AUTHENTICATION,
        check=not_negative,
    )
    client_ca_file: str = setting(
        "client-ca-file",
        STRING,
        "",
        "CA bundle for client certificates: the common name is the user, the organizations "
        "are the groups.",
        section=_AUTHENTICATION,
    )
    request_header: RequestHeaderOptions = nested(RequestHeaderOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationOptions:
    """What callers may read (`--authorization-…`)."""

    kubeconfig: str = setting(
        "authorization-kubeconfig",
        STRING,
        "",
        "Kubeconfig that may create SubjectAccessReviews; empty: the pod's service account, "
        "or none outside a cluster.",
        details="Without credentials, only the always allowed paths are served.",
        section=_AUTHORIZATION,
    )
    always_allow_paths: tuple[str, ...] = setting(
        "authorization-always-allow-paths",
        STRINGS,
        ("/healthz", "/readyz", "/livez"),
        "Paths that are served without authorization; a trailing * allows all paths with that "
        "prefix.",
        section=_AUTHORIZATION,
    )
    """Exact paths; a trailing `*` makes a prefix."""
    authorized_ttl: float = setting(
        "authorization-webhook-cache-authorized-ttl",
        DURATION,
        10.0,
        "Cache duration of positive access reviews.",
        section=_AUTHORIZATION,
        check=not_negative,
    )
    unauthorized_ttl: float = setting(
        "authorization-webhook-cache-unauthorized-ttl",
        DURATION,
        10.0,
        "Cache duration of negative access reviews.",
        section=_AUTHORIZATION,
        check=not_negative,
    )

    def misread_paths(self) -> tuple[str, ...]:
        """Returns the paths with a `*` that is not at the end, where it has no meaning."""
        return tuple(path for path in self.always_allow_paths if "*" in path[:-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Everything about the HTTPS port."""

    serving: ServingOptions = nested(ServingOptions)
    authentication: AuthenticationOptions = nested(AuthenticationOptions)
    authorization: AuthorizationOptions = nested(AuthorizationOptions)

    def problems(self, _config: Config) -> Iterator[str]:
        port = self.serving.port
        if not 0 <= port <= HIGHEST_PORT:
            yield (
                f"--secure-port {port} must be between 0 and {HIGHEST_PORT}, inclusive. "
                "0 for turning off secure port"
            )
        yield from self.serving.tls_problems()
        uid = self.authentication.request_header.uid_headers
        if uid and "x-remote-uid" not in {header.lower() for header in uid}:
            yield (
                "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid "
                "header - API aggregation will not work"
            )
        for path in self.authorization.misread_paths():
            yield f"--authorization-always-allow-paths: only trailing * allowed in {quote(path)}"
