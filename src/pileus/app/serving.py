"""From the configuration to the HTTPS port: its options, and whom it asks about callers."""

from collections.abc import Mapping
from contextlib import AsyncExitStack

from pileus.app.clients import user_agent
from pileus.app.config import Authentication, Config, Serving
from pileus.kube.access import Access
from pileus.kube.client import Client
from pileus.kube.config.choose import load_delegated_access
from pileus.kube.http import HttpTransport
from pileus.server.delegation import delegates_of
from pileus.server.options import (
    AuthenticationOptions,
    AuthorizationOptions,
    RequestHeaderOptions,
    ServerOptions,
    ServingOptions,
    SniPair,
)
from pileus.server.review import Delegates
from pileus.telemetry.metrics import Metrics


def server_options(config: Config) -> ServerOptions:
    return ServerOptions(
        serving=_serving(config.serving),
        authentication=_authentication(config.authentication),
        authorization=AuthorizationOptions(
            always_allow_paths=config.authorization.always_allow_paths,
            authorized_ttl=config.authorization.authorized_ttl,
            unauthorized_ttl=config.authorization.unauthorized_ttl,
        ),
        profiling=config.generic.profiling,
    )


def delegates(
    config: Config, environ: Mapping[str, str], metrics: Metrics, stack: AsyncExitStack
) -> Delegates:
    """Whom to ask about tokens and rights; their connections are closed with the stack.

    Errors: `InvalidConfiguration`.
    """
    authentication = load_delegated_access(
        "--authentication-kubeconfig", config.authentication.kubeconfig, environ
    )
    authorization = load_delegated_access(
        "--authorization-kubeconfig", config.authorization.kubeconfig, environ
    )

    def client(access: Access | None, suffix: str) -> Client | None:
        if access is None:
            return None
        transport = HttpTransport(access)
        stack.push_async_exit(transport)
        agent = user_agent(suffix)
        return Client(transport, user_agent=agent, metrics=metrics, host=transport.host)

    return delegates_of(
        client(authentication, "delegated-authentication"),
        client(authorization, "delegated-authorization"),
    )


def _serving(serving: Serving) -> ServingOptions:
    return ServingOptions(
        bind_address=serving.bind_address,
        port=serving.port,
        cert_dir=serving.cert_dir,
        cert_file=serving.cert_file,
        key_file=serving.key_file,
        cipher_suites=serving.cipher_suites,
        curve_preferences=serving.curve_preferences,
        min_version=serving.min_version,
        sni=tuple(
            SniPair(each.certificate_file, each.key_file, each.names)
            for each in serving.sni_certificates
        ),
        permit_address_sharing=serving.reuse_address,
        permit_port_sharing=serving.reuse_port,
    )


def _authentication(given: Authentication) -> AuthenticationOptions:
    return AuthenticationOptions(
        skip_lookup=given.skip_lookup,
        tolerate_lookup_failure=given.tolerate_lookup_failure,
        token_cache_ttl=given.cache_ttl,
        client_ca_file=given.client_ca_file,
        request_header=RequestHeaderOptions(
            client_ca_file=given.requestheader_client_ca_file,
            allowed_names=given.requestheader_allowed_names,
            username_headers=given.requestheader_username_headers,
            uid_headers=given.requestheader_uid_headers,
            group_headers=given.requestheader_group_headers,
            extra_headers_prefix=given.requestheader_extra_headers_prefix,
        ),
    )
