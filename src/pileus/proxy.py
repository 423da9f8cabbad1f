"""The HTTP proxy for a server: as configured, or from the environment by the rules of Go."""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

_SCHEMES = {"http", "https"}
_PORTS = {"http": 80, "https": 443}


class InvalidProxy(ValueError):
    """The URL of a proxy cannot be used; the text names where it was given."""


def proxy_for(server: str, proxy_url: str | None, environ: Mapping[str, str]) -> str | None:
    """Returns the URL of the proxy for a server (a whole URL); None to connect directly.

    Raises `InvalidProxy` if the URL of the proxy cannot be used.
    """
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
        raise InvalidProxy(f"{name} is not a URL") from None
    if parts.scheme.startswith("socks"):
        raise InvalidProxy(
            f"{name}: {parts.scheme} is not supported; give an http:// or https:// proxy"
        )
    if parts.scheme not in _SCHEMES or not valid:
        raise InvalidProxy(f"{name}: expected http://HOST:PORT or https://HOST:PORT")
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
    """Whether an entry of NO_PROXY (host, domain, address, range; port optional) matches."""
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
