"""The settings of the HTTPS port, with the defaults of the Go framework."""

from dataclasses import dataclass, field

from pileus.settings.kinds import Kind, joined
from pileus.version import PROGRAM


@dataclass(frozen=True, slots=True)
class SniPair:
    """One `--tls-sni-cert-key`: a key pair for certain host names."""

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
    word="namedCertKey",
    parse=_parse_certificate,
    render=lambda value: f"[{_render_certificates(value)}]",
    join=joined,
    natural=(list, str),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """Where and how to serve (`--bind-address`, `--secure-port`, `--tls-…`)."""

    bind_address: str = "0.0.0.0"  # noqa: S104 -- upstream's default
    port: int = 10258
    """0: not served."""
    cert_dir: str = ""
    pair_name: str = PROGRAM
    """Name, without suffix, of the files created in `cert_dir`."""
    cert_file: str = ""
    key_file: str = ""
    cipher_suites: tuple[str, ...] = ()
    curve_preferences: tuple[int, ...] = ()
    min_version: str = ""
    sni: tuple[SniPair, ...] = ()
    permit_address_sharing: bool = False
    """No effect: SO_REUSEADDR is always set, as in Go."""
    permit_port_sharing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeaderOptions:
    """Proxies that may name the user of a request (`--requestheader-…`)."""

    client_ca_file: str = ""
    allowed_names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ("x-remote-user",)
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ("x-remote-group",)
    extra_headers_prefix: tuple[str, ...] = ("x-remote-extra-",)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationOptions:
    """Authentication (`--authentication-…`, `--client-ca-file`)."""

    skip_lookup: bool = False
    tolerate_lookup_failure: bool = False
    token_cache_ttl: float = 10.0
    client_ca_file: str = ""
    request_header: RequestHeaderOptions = RequestHeaderOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationOptions:
    """Authorization (`--authorization-…`)."""

    always_allow_paths: tuple[str, ...] = ("/healthz", "/readyz", "/livez")
    """Exact paths; a trailing `*` makes a prefix."""
    authorized_ttl: float = 10.0
    unauthorized_ttl: float = 10.0

    def misread_paths(self) -> tuple[str, ...]:
        """Returns the paths with a `*` that is not at the end."""
        return tuple(path for path in self.always_allow_paths if "*" in path[:-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """All settings of the HTTPS port."""

    serving: ServingOptions = field(default_factory=ServingOptions)
    authentication: AuthenticationOptions = field(default_factory=AuthenticationOptions)
    authorization: AuthorizationOptions = field(default_factory=AuthorizationOptions)
