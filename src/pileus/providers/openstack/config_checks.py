"""Checks of a whole configuration: keys that need or exclude one another. Pure."""

import re
from base64 import b64decode
from collections.abc import Iterator
from ipaddress import ip_network

from pileus.cloud.selectors import parse_selector
from pileus.providers.openstack.cloud_conf import Problem
from pileus.providers.openstack.config import (
    CLASS_SECTION,
    Auth,
    LoadBalancer,
    LoadBalancerClass,
    OpenStackConfig,
)
from pileus.providers.openstack.name_pattern import name_pattern

CONTAINER = re.compile(r"https?://[^/]+(/[^/]+)*/v1/(containers|secrets)/[0-9a-fA-F-]{32,36}/?")


def problems(config: OpenStackConfig) -> Iterator[Problem]:
    """Yields what has to be fixed before this configuration can be used."""
    for key, text in (*_auth(config.auth), *_tls(config.auth)):
        yield Problem("Global", key, text)
    for key, text in _networking(config.networking.address_sort_order):
        yield Problem("Networking", key, text)
    if config.load_balancer.enabled:
        for key, text in (*_balancer(config.load_balancer), *_networks(config.load_balancer)):
            yield Problem("LoadBalancer", key, text)
    for name, each in config.classes.items():
        for key, text in _networks(each):
            yield Problem(f'{CLASS_SECTION} "{name}"', key, text)


def warnings(config: OpenStackConfig) -> Iterator[str]:
    """Yields what works, but probably not as it was meant."""
    balancer = config.load_balancer
    if config.auth.tls_insecure:
        yield (
            "[Global] tls-insecure: the certificates of the cloud are not verified, and everyone "
            "on the network path can read the credentials. Fix: set ca-file"
        )
    if config.auth.token and not config.auth.password:
        yield "[Global] token cannot be renewed. Fix: use an application credential"
    for key, value in (
        ("flavor-id", balancer.flavor_id),
        ("availability-zone", balancer.availability_zone),
    ):
        if value and balancer.lb_provider == "ovn":
            yield f"[LoadBalancer] {key} has no effect with lb-provider = ovn"
    for key in ("lb-provider", "container-store"):
        yield from _unknown(balancer, key)


def _unknown(balancer: LoadBalancer, key: str) -> Iterator[str]:
    known = {
        "lb-provider": ("amphora", "octavia", "ovn", "f5", "amphorav2"),
        "container-store": ("barbican", "external"),
    }[key]
    value = getattr(balancer, key.replace("-", "_"))
    if value not in known:
        yield f'[LoadBalancer] {key}: "{value}" is not one of {", ".join(known)}'


Found = Iterator[tuple[str, str]]
"""Keys and what is wrong with them."""


def _auth(auth: Auth) -> Found:
    if not auth.auth_url:
        yield "auth-url", "is missing. Fix: auth-url = https://HOST:5000/v3"
    elif not re.match(r"https?://[^/]", auth.auth_url):
        yield "auth-url", f'"{auth.auth_url}" is not a URL. Fix: auth-url = https://HOST:5000/v3'
    if has_application_credential(auth):
        yield from _application_credential(auth)
    elif auth.token and not auth.password:
        yield from _project(auth)
    else:
        yield from _password(auth)


def has_application_credential(auth: Auth) -> bool:
    return bool(
        auth.application_credential_id
        or auth.application_credential_name
        or auth.application_credential_secret
    )


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
    if auth.password:
        yield (
            "password",
            "is set, and an application credential, too. Fix: remove one of them",
        )
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
    user_id = auth.trustee_id or auth.user_id
    if not user_id and not auth.username:
        yield (
            "username",
            "is missing. Fix: set username, user-id, application-credential-id or token",
        )
    elif not user_id and not user_domain(auth):
        yield "username", "needs a domain. Fix: user-domain-name = Default"
    elif auth.user_id and auth.username and not auth.trustee_id:
        yield "username", "is set, and user-id, too. Fix: remove one of them"
    if not (auth.trustee_password or auth.password):
        yield "password", "is missing. Fix: set password, or use an application credential"
    if not auth.trust_id:
        yield from _without_trust(auth)
        yield from _project(auth)


def _without_trust(auth: Auth) -> Found:
    for key, value in (
        ("trustee-id", auth.trustee_id),
        ("trustee-password", auth.trustee_password),
    ):
        if value:
            yield key, "needs a trust. Fix: set trust-id, or remove it"


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
    if auth.cert_file and not auth.key_file:
        yield "cert-file", "needs its key. Fix: set key-file"
    if auth.key_file and not auth.cert_file:
        yield "key-file", "needs its certificate. Fix: set cert-file"
    if auth.tls_insecure and auth.ca_file:
        yield "tls-insecure", "excludes ca-file. Fix: remove tls-insecure"
    if auth.tls_insecure and auth.ca_data:
        yield "tls-insecure", "excludes ca-data. Fix: remove tls-insecure"
    if auth.ca_file and auth.ca_data:
        yield "ca-data", "excludes ca-file. Fix: remove one of them"
    if auth.ca_data and inline_ca(auth) is None:
        yield "ca-data", "is not a CA in PEM, encoded with base64. Fix: base64 -w0 ca.pem"


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
            ip_network(each, strict=False)
        except ValueError:
            yield (
                "address-sort-order",
                f'"{each}" is not a CIDR. Fix: address-sort-order = 10.0.0.0/8, fd00::/8',
            )


def _balancer(balancer: LoadBalancer) -> Found:
    yield from _monitor(balancer)
    is_ovn = balancer.lb_provider == "ovn"
    if is_ovn and balancer.lb_method != "SOURCE_IP_PORT":
        yield (
            "lb-method",
            f"lb-provider = ovn has no {balancer.lb_method}. Fix: lb-method = SOURCE_IP_PORT",
        )
    elif balancer.lb_method == "SOURCE_IP_PORT" and not is_ovn and _is_amphora(balancer):
        yield (
            "lb-method",
            (
                f"lb-provider = {balancer.lb_provider} has no SOURCE_IP_PORT. "
                "Fix: lb-method = ROUND_ROBIN"
            ),
        )
    try:
        parse_selector(balancer.node_selector)
    except ValueError as error:
        yield "node-selector", f'"{balancer.node_selector}" is not {error}'
    reference = balancer.default_tls_container_ref
    if reference and balancer.container_store == "barbican" and not CONTAINER.fullmatch(reference):
        yield (
            "default-tls-container-ref",
            (
                f'"{reference}" is not a reference of Barbican. '
                "Fix: https://HOST/v1/containers/UUID or https://HOST/v1/secrets/UUID"
            ),
        )


def _is_amphora(balancer: LoadBalancer) -> bool:
    return balancer.lb_provider in {"amphora", "amphorav2", "octavia"}


def _monitor(balancer: LoadBalancer) -> Found:
    if not balancer.create_monitor:
        return
    for key, seconds in (
        ("monitor-delay", balancer.monitor_delay),
        ("monitor-timeout", balancer.monitor_timeout),
    ):
        if seconds < 1 or seconds != int(seconds):
            yield key, f"Octavia takes whole seconds, 1 s at least. Fix: {key} = 5s"
    if balancer.monitor_timeout > balancer.monitor_delay:
        yield (
            "monitor-timeout",
            (
                f"{balancer.monitor_timeout:g}s is longer than monitor-delay. "
                f"Fix: monitor-timeout = {balancer.monitor_delay:g}s"
            ),
        )


def _networks(networks: LoadBalancerClass) -> Found:
    try:
        name_pattern(networks.floating_subnet)
    except ValueError as error:
        yield "floating-subnet", f"invalid pattern: {error}"
