"""Checks of a whole configuration: keys that need or exclude one another. Pure."""

import re
from base64 import b64decode
from collections.abc import Iterator
from enum import StrEnum
from ipaddress import ip_network

from pileus.cloud.http import Tls
from pileus.providers.openstack.annotations import BARBICAN, node_selector
from pileus.providers.openstack.cloud_conf import Problem
from pileus.providers.openstack.config import (
    CLASS_SECTION,
    Auth,
    LoadBalancer,
    LoadBalancerClass,
    OpenStackConfig,
)
from pileus.providers.openstack.name_pattern import name_pattern

PROVIDERS = ("amphora", "octavia", "ovn", "f5", "amphorav2")


def problems(config: OpenStackConfig) -> Iterator[Problem]:
    """Yields what has to be fixed before this configuration can be used.

    Only what cannot work: with everything else the Go program starts, and so does this one.
    """
    for key, text in (*_auth(config.auth), *_tls(config.auth)):
        yield Problem("Global", key, text)
    if config.load_balancer.enabled:
        for key, text in _balancer(config.load_balancer):
            yield Problem("LoadBalancer", key, text)


def warnings(config: OpenStackConfig) -> Iterator[Problem]:
    """Yields what works, but probably not as it was meant, with what holds."""
    for key, text in (*_unused_credentials(config.auth), *_unused_tls(config.auth)):
        yield Problem("Global", key, text)
    for key, text in _networking(config.networking.address_sort_order):
        yield Problem("Networking", key, text)
    if not config.load_balancer.enabled:
        return
    for key, text in (*_unusual_balancer(config.load_balancer), *_networks(config.load_balancer)):
        yield Problem("LoadBalancer", key, text)
    for name, each in config.classes.items():
        for key, text in _networks(each):
            yield Problem(f'{CLASS_SECTION} "{name}"', key, text)


Found = Iterator[tuple[str, str]]
"""Keys and what is wrong with them."""


def _auth(auth: Auth) -> Found:
    if not auth.auth_url:
        yield "auth-url", "is missing. Fix: auth-url = https://HOST:5000/v3"
    elif not re.match(r"https?://[^/]", auth.auth_url):
        yield "auth-url", f'"{auth.auth_url}" is not a URL. Fix: auth-url = https://HOST:5000/v3'
    match method_of(auth):
        case Method.APPLICATION_CREDENTIAL:
            yield from _application_credential(auth)
        case Method.TOKEN:
            yield from _project(auth)
        case Method.PASSWORD:
            yield from _password(auth)


class Method(StrEnum):
    """How the process identifies itself to Keystone."""

    PASSWORD = "password"  # noqa: S105 -- a name of Keystone
    TOKEN = "token"  # noqa: S105
    APPLICATION_CREDENTIAL = "application_credential"


def method_of(auth: Auth) -> Method:
    """Returns which of several credentials are used: a user's password first, as in Go."""
    has_user = user_id_of(auth) or auth.username
    if has_user and password_of(auth):
        return Method.PASSWORD
    if (
        auth.application_credential_id
        or auth.application_credential_name
        or auth.application_credential_secret
    ):
        return Method.APPLICATION_CREDENTIAL
    return Method.TOKEN if auth.token and not auth.password else Method.PASSWORD


def user_id_of(auth: Auth) -> str:
    return (auth.trustee_id if auth.trust_id else "") or auth.user_id


def password_of(auth: Auth) -> str:
    return (auth.trustee_password if auth.trust_id else "") or auth.password


def _unused_credentials(auth: Auth) -> Found:
    used = method_of(auth)
    if used is Method.TOKEN:
        yield "token", "cannot be renewed. Fix: use an application credential"
    elif auth.token:
        yield "token", f"has no effect: the {_shown(used)} is used. Fix: remove one of them"
    if used is Method.APPLICATION_CREDENTIAL and auth.password:
        yield "password", f"has no effect: the {_shown(used)} is used. Fix: remove one of them"
    for key in ("id", "name", "secret"):
        if used is Method.PASSWORD and getattr(auth, f"application_credential_{key}"):
            yield (
                f"application-credential-{key}",
                "has no effect: the password is used. Fix: remove one of them",
            )
    for key, value in (
        ("trustee-id", auth.trustee_id),
        ("trustee-password", auth.trustee_password),
    ):
        if value and not auth.trust_id:
            yield key, "has no effect without a trust. Fix: set trust-id, or remove it"


def _shown(method: Method) -> str:
    return method.value.replace("_", " ")


def _application_credential(auth: Auth) -> Found:
    if not auth.application_credential_secret:
        yield (
            "application-credential-secret",
            "is missing. Fix: set it, or remove application-credential-id and -name",
        )
    elif not (auth.application_credential_id or auth.application_credential_name):
        yield (
            "application-credential-secret",
            "has no application credential. Fix: set application-credential-id",
        )
    elif not auth.application_credential_id:
        yield from _application_credential_by_name(auth)
    if auth.trust_id:
        yield "trust-id", "excludes an application credential. Fix: remove one of them"


def _application_credential_by_name(auth: Auth) -> Found:
    if not (auth.user_id or auth.username):
        yield (
            "application-credential-name",
            "needs its user. Fix: set user-id, or username and user-domain-name",
        )
    elif not auth.user_id and not user_domain(auth):
        yield "username", "needs a domain. Fix: user-domain-name = Default"


def _password(auth: Auth) -> Found:
    user_id = user_id_of(auth)
    if not user_id and not auth.username:
        yield (
            "username",
            "is missing. Fix: set username, user-id, application-credential-id or token",
        )
    elif not user_id and not user_domain(auth):
        yield "username", "needs a domain. Fix: user-domain-name = Default"
    elif auth.user_id and auth.username and user_id == auth.user_id:
        yield "username", "is set, and user-id, too. Fix: remove one of them"
    if not password_of(auth):
        yield "password", "is missing. Fix: set password, or use an application credential"
    if not auth.trust_id:
        yield from _project(auth)


def _project(auth: Auth) -> Found:
    if auth.tenant_name and not auth.tenant_id and not project_domain(auth):
        yield "tenant-name", "needs a domain. Fix: tenant-domain-name = Default"


def user_domain(auth: Auth) -> dict[str, str]:
    """Returns the domain of the user as Keystone takes it; empty if none is set."""
    return _domain((auth.user_domain_id, auth.user_domain_name), (auth.domain_id, auth.domain_name))


def project_domain(auth: Auth) -> dict[str, str]:
    """Returns the domain of the project as Keystone takes it; empty if none is set."""
    return _domain(
        (auth.tenant_domain_id, auth.tenant_domain_name), (auth.domain_id, auth.domain_name)
    )


def _domain(*choices: tuple[str, str]) -> dict[str, str]:
    for by_id, by_name in choices:
        if by_id:
            return {"id": by_id}
        if by_name:
            return {"name": by_name}
    return {}


def _tls(auth: Auth) -> Found:
    is_used = auth.ca_data and not auth.ca_file and not auth.tls_insecure
    if is_used and inline_ca(auth) is None:
        yield "ca-data", "is not a CA in PEM, encoded with base64. Fix: base64 -w0 ca.pem"


def _unused_tls(auth: Auth) -> Found:
    if auth.tls_insecure:
        fix = "remove it" if auth.ca_file or auth.ca_data else "set ca-file"
        yield (
            "tls-insecure",
            (
                "the certificates of the cloud are not verified, and everyone on the network path "
                f"can read the credentials. Fix: {fix}"
            ),
        )
    for key, value in (("ca-file", auth.ca_file), ("ca-data", auth.ca_data)):
        if value and auth.tls_insecure:
            yield key, "has no effect with tls-insecure. Fix: remove tls-insecure"
    if auth.ca_file and auth.ca_data and not auth.tls_insecure:
        yield "ca-data", "has no effect: ca-file is used. Fix: remove one of them"
    if auth.cert_file and not auth.key_file:
        yield "cert-file", "has no effect without its key. Fix: set key-file"
    if auth.key_file and not auth.cert_file:
        yield "key-file", "has no effect without its certificate. Fix: set cert-file"


def tls_of(auth: Auth) -> Tls:
    """Returns what is used of the keys about TLS."""
    has_pair = bool(auth.cert_file and auth.key_file)
    is_inline = not auth.ca_file and not auth.tls_insecure
    return Tls(
        ca_file="" if auth.tls_insecure else auth.ca_file,
        ca_pem=(inline_ca(auth) or "") if is_inline else "",
        certificate_file=auth.cert_file if has_pair else "",
        key_file=auth.key_file if has_pair else "",
        insecure=auth.tls_insecure,
    )


def inline_ca(auth: Auth) -> str | None:
    """Returns the PEM text of `ca-data`; None if it is none."""
    try:
        text = b64decode("".join(auth.ca_data.split()), validate=True).decode("ascii")
    except ValueError:
        return None
    return text if "-----BEGIN CERTIFICATE-----" in text or not auth.ca_data else None


def _networking(order: str) -> Found:
    for each in filter(None, (part.strip() for part in order.split(","))):
        try:
            ip_network(each if "/" in each else f"{each}/", strict=False)
        except ValueError:
            yield (
                "address-sort-order",
                (
                    f'"{each}" is not a CIDR and has no effect. '
                    "Fix: address-sort-order = 10.0.0.0/8, fd00::/8"
                ),
            )


def _balancer(balancer: LoadBalancer) -> Found:
    if balancer.lb_version not in {"", "v2"}:
        yield "lb-version", f'"{balancer.lb_version}" is not supported. Fix: lb-version = v2'
    is_amphora = balancer.lb_provider in {"amphora", "amphorav2", "octavia"}
    if balancer.lb_method == "SOURCE_IP_PORT" and is_amphora:
        yield (
            "lb-method",
            (
                f"lb-provider = {balancer.lb_provider} has no SOURCE_IP_PORT. "
                "Fix: lb-method = ROUND_ROBIN"
            ),
        )
    try:
        node_selector(balancer.node_selector)
    except ValueError as error:
        yield "node-selector", f'"{balancer.node_selector}" is not {error}'


def _unusual_balancer(balancer: LoadBalancer) -> Found:
    yield from _monitor(balancer)
    is_ovn = balancer.lb_provider == "ovn"
    if is_ovn and balancer.lb_method != "SOURCE_IP_PORT":
        yield (
            "lb-method",
            (
                f"lb-provider = ovn has no {balancer.lb_method}: SOURCE_IP_PORT is used. "
                "Fix: lb-method = SOURCE_IP_PORT"
            ),
        )
    for key, value in (
        ("flavor-id", balancer.flavor_id),
        ("availability-zone", balancer.availability_zone),
    ):
        if value and is_ovn:
            yield key, "has no effect with lb-provider = ovn"
    reference = balancer.default_tls_container_ref
    if reference and balancer.container_store == "barbican" and not BARBICAN.fullmatch(reference):
        yield (
            "default-tls-container-ref",
            (
                f'"{reference}" is not a reference of Barbican: Services without an annotation of '
                "that name get no listeners. "
                "Fix: https://HOST/v1/containers/UUID or https://HOST/v1/secrets/UUID"
            ),
        )
    for key, value, known in (
        ("lb-provider", balancer.lb_provider, PROVIDERS),
        ("container-store", balancer.container_store, ("barbican", "external")),
    ):
        if value not in known:
            yield key, f'"{value}" is not one of {", ".join(known)}'


def _monitor(balancer: LoadBalancer) -> Found:
    if not balancer.create_monitor:
        return
    for key, seconds in (
        ("monitor-delay", balancer.monitor_delay),
        ("monitor-timeout", balancer.monitor_timeout),
    ):
        used = whole_seconds(seconds)
        if seconds != used:
            yield key, f"Octavia takes whole seconds: {used}s is used. Fix: {key} = {used}s"
    if balancer.monitor_timeout > balancer.monitor_delay:
        yield (
            "monitor-timeout",
            (
                f"{balancer.monitor_timeout:g}s is longer than monitor-delay, and passed on: a "
                "check may begin before the last one ends. "
                f"Fix: monitor-timeout = {balancer.monitor_delay:g}s"
            ),
        )


def whole_seconds(seconds: float) -> int:
    """Returns the seconds of a health monitor: fractions are cut off, as in Go, 1 at least."""
    return max(1, int(seconds))


def _networks(networks: LoadBalancerClass) -> Found:
    try:
        name_pattern(networks.floating_subnet)
    except ValueError as error:
        yield (
            "floating-subnet",
            f"invalid pattern, new floating IPs cannot be created with it: {error}",
        )
