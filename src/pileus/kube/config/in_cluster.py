"""The access that every pod has: environment variables and the mounted service account."""

from collections.abc import Mapping
from pathlib import Path

from pileus.clock import Clock
from pileus.dataclass import dataclass
from pileus.kube.access import Access
from pileus.kube.config.credentials import ANONYMOUS, ConfiguredCredentials, TokenFile
from pileus.kube.config.endpoint import bracketed, proxy_for, server_url
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.config.tls import InFile, TlsContexts, TlsSettings
from pileus.kube.errors import CredentialsError
from pileus.telemetry.log import Log

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class NotInCluster:
    """Why this process has not the access of a pod."""

    why: str


def in_cluster(
    environ: Mapping[str, str], clock: Clock, folder: Path = SERVICE_ACCOUNT
) -> Access | NotInCluster:
    """Return the pod's access, or why there is none."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        return NotInCluster("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    try:
        return _access(f"https://{bracketed(host)}:{port}", environ, clock, folder)
    except (CredentialsError, InvalidConfiguration) as e:
        return NotInCluster(str(e))


def _access(given: str, environ: Mapping[str, str], clock: Clock, folder: Path) -> Access:
    server = server_url(given, tls=True)
    settings = TlsSettings(authority=_authority(folder))
    token = TokenFile(folder / "token", clock)
    return Access(
        server=server,
        credentials=ConfiguredCredentials(token, TlsContexts(settings, clock)),
        proxy=proxy_for(server, None, environ),
        namespace=_namespace(folder),
        trust=settings.trust,
        refused=(
            f"the API server does not accept the service account token {folder / 'token'}: check "
            "that the pod's service account exists"
        ),
        anonymous=ConfiguredCredentials(ANONYMOUS, TlsContexts(settings, clock)),
    )


def _authority(folder: Path) -> InFile | None:
    """The cluster's own authority; without that file the system's, as in client-go."""
    file = InFile(f"certificate authority {folder / 'ca.crt'}", folder / "ca.crt")
    try:
        file.read()
    except InvalidConfiguration as e:
        _log.warning("No certificate authority of the cluster, using the system's", err=e)
        return None
    return file


def _namespace(folder: Path) -> str:
    try:
        return (folder / "namespace").read_text().strip() or "default"
    except (OSError, UnicodeDecodeError):
        return "default"
