"""The address of an API server, checked and in one spelling."""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from pileus.kube.config.errors import InvalidConfiguration


def server_url(given: str, *, tls: bool) -> str:
    """Return scheme, host, port and path prefix, without a trailing slash.

    Without a scheme it is https if the configuration speaks of TLS, else http, as in client-go.
    """
    url = given if "://" in given else f"{'https' if tls else 'http'}://{given}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as e:
        raise InvalidConfiguration(f"server {_shown(given)} is no URL: {e}") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidConfiguration("server: a URL with a password in it; put that under `user`")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise InvalidConfiguration(
            f"server {_shown(given)}: expected https://HOST[:PORT][/PATH] or HOST:PORT"
        )
    host = bracketed(parts.hostname)
    at = "" if port is None else f":{port}"
    return f"{parts.scheme}://{host}{at}{parts.path.rstrip('/')}"


def bracketed(host: str) -> str:
    """The host as it stands in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _shown(url: str) -> str:
    """The URL for a message, without what stands before an @."""
    return repr(url.rpartition("@")[2])


_SCHEMES = {"http", "https"}
_PORTS = {"http": 80, "https": 443}


def proxy_for(server: str, proxy_url: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the proxy to reach the server (a whole URL) through; None to go straight there."""
    if proxy_url:
        return _checked(proxy_url, "proxy-url")
    parts = urlsplit(server)
    name = f"{parts.scheme}_proxy".upper()
    found = environ.get(name) or environ.get(name.lower()) or ""
    if not found or _direct(parts, environ.get("NO_PROXY") or environ.get("no_proxy") or ""):
        return None
    return _checked(found if "://" in found else f"http://{found}", name)


def _checked(url: str, name: str) -> str:
    try:
        parts = urlsplit(url)
        valid = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        raise InvalidConfiguration(f"{name} is no URL") from None
    if parts.scheme.startswith("socks"):
        raise InvalidConfiguration(
            f"{name}: {parts.scheme} is not supported; give an http:// or https:// proxy"
        )
    if parts.scheme not in _SCHEMES or not valid:
        raise InvalidConfiguration(f"{name}: expected http://HOST:PORT or https://HOST:PORT")
    return url


def _direct(server: SplitResult, no_proxy: str) -> bool:
    host = (server.hostname or "").rstrip(".").lower()
    if host == "localhost" or _is_loopback(host):
        return True
    port = server.port or _PORTS[server.scheme]
    rules = (rule.strip().lower() for rule in no_proxy.split(","))
    return any(_matches(rule, host, port) for rule in rules if rule)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _matches(rule: str, host: str, port: int) -> bool:
    """Whether one entry of NO_PROXY (host, domain, address, range; maybe with a port) means it."""
    if rule == "*":
        return True
    if "/" in rule:
        return _in_range(rule, host)
    name, wanted = _split_port(rule)
    if wanted is not None and wanted != port:
        return False
    if name.startswith("*."):
        name = name[1:]
    if name.startswith("."):
        return host.endswith(name)
    return host == name or host.endswith(f".{name}")


def _in_range(rule: str, host: str) -> bool:
    try:
        return ip_address(host) in ip_network(rule, strict=False)
    except ValueError:
        return False


def _split_port(rule: str) -> tuple[str, int | None]:
    if rule.startswith("["):
        name, _, rest = rule[1:].partition("]")
        port = rest.removeprefix(":")
    elif rule.count(":") == 1:
        name, _, port = rule.partition(":")
    else:
        name, port = rule, ""
    return name, int(port) if port.isdigit() else None
