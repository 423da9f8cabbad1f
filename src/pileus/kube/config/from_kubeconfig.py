"""The access that a kubeconfig's current context means."""

import base64
import functools
import os
import re
import stat
import string
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pileus.clock import Clock
from pileus.dataclass import dataclass
from pileus.kube.access import Access
from pileus.kube.config.credentials import (
    ANONYMOUS,
    Authorization,
    ConfiguredCredentials,
    Fixed,
    TokenFile,
    basic,
    bearer,
)
from pileus.kube.config.endpoint import login_of, proxy_for, server_url
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.config.exec import GROUP, ExecAuthorization, plugin
from pileus.kube.config.kubeconfig import (
    NOTHING,
    Cluster,
    Kubeconfig,
    Selection,
    User,
    read_kubeconfig,
    select,
)
from pileus.kube.config.tls import InFile, TlsContexts, TlsSettings, pem
from pileus.telemetry.log import Log

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a configuration is read: its folder, the environment, the time."""

    folder: Path
    environ: Mapping[str, str]
    clock: Clock


def kubeconfig_access(path: Path, master: str, place: Place) -> Access:
    """Return the access of the current context; `master`, if given, is the server instead.

    Errors: `InvalidConfiguration`, or `CredentialsError` for a token that is none; neither
    names the file, which is for the caller to do.
    """
    return config_access(read_kubeconfig(path), path, master, place)


def config_access(config: Kubeconfig, path: Path, master: str, place: Place) -> Access:
    """Returns the same for a kubeconfig that was read; `path` is the file of its user."""
    warn_if_world_readable(path, "kubeconfig")
    selected = select(config)
    if selected is None and not master:
        names = ", ".join(context.name for context in config.contexts or ()) or "none"
        raise InvalidConfiguration(f"current-context is not set; its contexts: {names}")
    access = _access(selected or NOTHING, master, place)
    return replace(
        access, trust=f"{access.trust} ({path})", refused=_refused(config, path, selected)
    )


def _refused(config: Kubeconfig, path: Path, selected: Selection | None) -> str:
    """What a 401, or a 403 for an anonymous user, means for the current context."""
    context = config.current_context or ""
    users = {
        each.name: (each.context and each.context.user) or "" for each in config.contexts or ()
    }
    check = f"kubectl --kubeconfig={path} --context={context} auth whoami"
    if not users.get(context):
        return f'context "{context}" of {path} has no user: add one with credentials'
    if selected is not None and not _has_credentials(selected.user):
        return (
            f'user "{users[context]}" (context "{context}" of {path}) has no credentials: add a '
            f"token, a client certificate or an exec plugin, then check with: {check}"
        )
    return (
        f'the API server does not accept the credentials of user "{users[context]}" '
        f'(context "{context}" of {path}): renew them, then check with: {check}'
    )


def _has_credentials(user: User) -> bool:
    given = (
        *(user.client_certificate, user.client_certificate_data),
        *(user.token, user.token_file, user.username, user.exec, user.auth_provider),
    )
    return any(given)


def bare_access(server: str, place: Place) -> Access:
    """Return the access to a server without any credentials."""
    refused = "there are no credentials: give --kubeconfig=FILE"
    return replace(_access(NOTHING, server, place), refused=refused)


def _access(selected: Selection, master: str, place: Place) -> Access:
    cluster, user = selected.cluster, selected.user
    trusting = _trust(cluster, place)
    settings = _identified(trusting, user, place)
    given = _server(cluster, master)
    server = server_url(given, tls=settings.given)
    proxy = proxy_for(server, cluster.proxy_url, place.environ)
    authorization = _authorization(user, cluster, server, place)
    if authorization is ANONYMOUS and (login := login_of(given)):
        _log.warning("Using the password in the server's URL: put it under `user`", server=server)
        authorization = Fixed(basic(*login))
    if server.startswith("http://"):
        if authorization is not ANONYMOUS:
            _log.warning("Sending credentials unencrypted over plain http", server=server)
        contexts, anonymous_contexts = None, None
    else:
        contexts = TlsContexts(settings, place.clock)
        anonymous_contexts = TlsContexts(trusting, place.clock)
    return Access(
        server=server,
        credentials=ConfiguredCredentials(authorization, contexts, impersonation(user)),
        proxy=proxy,
        # The name belongs to the server that the file names.
        server_name=None if master else cluster.tls_server_name or None,
        namespace=selected.namespace,
        trust=settings.trust,
        anonymous=ConfiguredCredentials(ANONYMOUS, anonymous_contexts),
    )


def _server(cluster: Cluster, master: str) -> str:
    if server := master or cluster.server:
        return server
    raise InvalidConfiguration("the current context's cluster names no server")


def _trust(cluster: Cluster, place: Place) -> TlsSettings:
    return TlsSettings(
        authority=pem(
            "certificate-authority",
            cluster.certificate_authority_data,
            cluster.certificate_authority,
            place.folder,
        ),
        insecure=bool(cluster.insecure_skip_tls_verify),
    )


def _identified(trusting: TlsSettings, user: User, place: Place) -> TlsSettings:
    key = pem("client-key", user.client_key_data, user.client_key, place.folder)
    if isinstance(key, InFile):
        warn_if_world_readable(key.path, "client-key")
    return TlsSettings(
        authority=trusting.authority,
        insecure=trusting.insecure,
        certificate=pem(
            "client-certificate",
            user.client_certificate_data,
            user.client_certificate,
            place.folder,
        ),
        key=key,
    )


def _authorization(user: User, cluster: Cluster, server: str, place: Place) -> Authorization:
    """Return how the user is proved; tokens and passwords win over exec, as in client-go."""
    if user.auth_provider:
        raise InvalidConfiguration(
            f"auth-provider {user.auth_provider.name or ''!r} was removed from Kubernetes in 1.26; "
            "use an exec plugin"
        )
    has_token = bool(user.token or user.token_file)
    if has_token and user.username:
        raise InvalidConfiguration("the user has a token and a username; only one is allowed")
    if user.token_file:
        path = place.folder / user.token_file
        warn_if_world_readable(path, "tokenFile")
        return TokenFile(path, place.clock, user.token or "")
    if user.token:
        return Fixed(bearer(user.token, "user"))
    if user.username:
        return Fixed(basic(user.username, user.password or ""))
    if user.exec:
        info = _cluster_info(cluster, server, place)
        return ExecAuthorization(plugin(user.exec, place.folder, place.environ, info), place.clock)
    return ANONYMOUS


def _cluster_info(cluster: Cluster, server: str, place: Place) -> dict[str, object]:
    """Returns the cluster information for a plugin that requests it."""
    authority = _trust(cluster, place).authority
    extensions = {e.name: e.extension for e in cluster.extensions or ()}
    info: dict[str, object] = {
        "server": server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": authority and base64.b64encode(authority.read()).decode(),
        "proxy-url": cluster.proxy_url,
        "disable-compression": cluster.disable_compression,
        "config": extensions.get(f"{GROUP}/exec"),
    }
    return {name: value for name, value in info.items() if value}


_LEGAL = frozenset(string.ascii_letters + string.digits + "!#$&'*+-.^_`|~")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def impersonation(user: User) -> tuple[tuple[str, str], ...]:
    """Return the headers, some of which may occur several times; none if there is no `as`."""
    if not user.impersonate:
        if user.impersonate_uid or user.impersonate_groups or user.impersonate_extra:
            raise InvalidConfiguration("as-uid, as-groups and as-user-extra need `as`")
        return ()
    headers = tuple(_headers(user))
    for name, value in headers:
        if _CONTROL.search(value):
            raise InvalidConfiguration(f"the value for {name} holds control characters")
    return headers


def _headers(user: User) -> Iterator[tuple[str, str]]:
    yield "Impersonate-User", user.impersonate or ""
    if user.impersonate_uid:
        yield "Impersonate-Uid", user.impersonate_uid
    for group in user.impersonate_groups or ():
        yield "Impersonate-Group", group
    for key, values in (user.impersonate_extra or {}).items():
        for value in values:
            yield f"Impersonate-Extra-{escaped(key)}", value


def escaped(key: str) -> str:
    """The key as part of a header's name: other bytes as %XX, which the server undoes."""
    return "".join(chr(byte) if chr(byte) in _LEGAL else f"%{byte:02X}" for byte in key.encode())


def warn_if_world_readable(path: Path, what: str) -> None:
    """Log a warning, once for each file, if others than owner and group can read it."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # reported by the read that follows
        return
    if mode & stat.S_IROTH:
        _warn(str(path), what, stat.S_IMODE(mode))


@functools.cache
def _warn(path: str, what: str, mode: int) -> None:
    _log.warning(
        "File with credentials is world-readable",
        file=path,
        content=what,
        mode=f"{mode:04o}",
        fix=f"chmod o-r {path} (for a volume of a pod: defaultMode: 0440)",
    )
