"""The address of an API server, and the HTTP proxy to reach it."""

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from pileus import proxy
from pileus.kube.config.errors import InvalidConfiguration


def server_url(given: str, *, tls: bool) -> str:
    """Return scheme, host, port and path prefix, without a trailing slash and user information.

    Without a scheme it is https if the configuration has TLS settings, else http, as in client-go.
    """
    url = given if "://" in given else f"{'https' if tls else 'http'}://{given}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as e:
        raise InvalidConfiguration(f"server {_shown(given)} is not a URL: {e}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise InvalidConfiguration(
            f"server {_shown(given)}: expected https://HOST[:PORT][/PATH] or HOST:PORT"
        )
    host = bracketed(parts.hostname)
    at = "" if port is None else f":{port}"
    return f"{parts.scheme}://{host}{at}{parts.path.rstrip('/')}"


def login_of(given: str) -> tuple[str, str] | None:
    """Returns user and password of a valid server URL; None if it has none."""
    parts = urlsplit(given if "://" in given else f"//{given}")
    if parts.username is None:
        return None
    return unquote(parts.username), unquote(parts.password or "")


def bracketed(host: str) -> str:
    """Returns the host for a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _shown(url: str) -> str:
    """Returns the URL for a message, without user information."""
    return repr(url.rpartition("@")[2])


def proxy_for(server: str, proxy_url: str | None, environ: Mapping[str, str]) -> str | None:
    """Returns the URL of the proxy; None to connect directly. Raises `InvalidConfiguration`."""
    try:
        return proxy.proxy_for(server, proxy_url, environ)
    except proxy.InvalidProxy as error:
        raise InvalidConfiguration(str(error)) from None
