"""Whom the HTTPS port asks about its callers: API servers, each with a connection of its own."""

from collections.abc import Mapping
from contextlib import AsyncExitStack

from pileus.app.clients import user_agent
from pileus.app.config import Delegation
from pileus.kube.access import Access, Server
from pileus.kube.client import Client
from pileus.kube.config.choose import load_delegated_access
from pileus.kube.http import HttpTransport
from pileus.server.delegation import delegates_of
from pileus.server.review import Delegates
from pileus.telemetry.metrics import Metrics


def delegates(
    config: Delegation, environ: Mapping[str, str], metrics: Metrics, stack: AsyncExitStack
) -> Delegates:
    """Whom to ask about tokens and rights; their connections are closed with the stack.

    Errors: `InvalidConfiguration`.
    """
    authentication = load_delegated_access(
        "--authentication-kubeconfig", config.authentication_kubeconfig, environ
    )
    authorization = load_delegated_access(
        "--authorization-kubeconfig", config.authorization_kubeconfig, environ
    )

    def client(access: Access | None, suffix: str) -> Client | None:
        if access is None:
            return None
        transport = HttpTransport(access)
        stack.push_async_exit(transport)
        agent = user_agent(suffix)
        server = Server(transport.host, access.refused)
        return Client(transport, user_agent=agent, metrics=metrics, server=server)

    return delegates_of(
        client(authentication, "delegated-authentication"),
        client(authorization, "delegated-authorization"),
    )
