"""Settings of the API clients (`--kubeconfig`, `--master`, `--kube-api-…`)."""

from collections.abc import Iterator, Mapping

from pileus.dataclass import dataclass
from pileus.settings.config import Config
from pileus.settings.declare import optional, setting, switch
from pileus.settings.kinds import FLOAT, INT32, STRING

DEFAULT_QPS, DEFAULT_BURST = 20.0, 30
"""What one of the two flags means if only the other is given."""
ZERO_QPS, ZERO_BURST = 5.0, 10
"""What 0 means in the Go framework."""
_GENERIC, _MISC = "Generic", "Misc"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How the API server is reached."""

    kubeconfig: str = setting(
        "kubeconfig",
        STRING,
        "",
        "Kubeconfig file; empty: the pod's service account.",
        section=_MISC,
        configz="Generic.ClientConnection.kubeconfig",
    )
    master: str = setting(
        "master", STRING, "", "URL of the API server; overrides the kubeconfig.", section=_MISC
    )
    qps: float | None = optional(
        "kube-api-qps",
        FLOAT,
        DEFAULT_QPS,
        "Maximum requests per second of each API client; not set: no limit, the API server's "
        "priority and fairness applies.",
        section=_GENERIC,
        configz="Generic.ClientConnection.qps",
    )
    """None: no fixed rate. Less than zero: the user wants none."""
    burst: int | None = optional(
        "kube-api-burst",
        INT32,
        DEFAULT_BURST,
        "Requests that may exceed --kube-api-qps in a burst.",
        section=_GENERIC,
        configz="Generic.ClientConnection.burst",
    )
    content_type: str = setting(
        "kube-api-content-type",
        STRING,
        "application/vnd.kubernetes.protobuf",
        "Accepted for compatibility: requests are sent as JSON.",
        section=_GENERIC,
        configz="Generic.ClientConnection.contentType",
    )
    own_service_accounts: bool = switch(
        "use-service-account-credentials",
        "Run each controller with its own service account.",
        section=_GENERIC,
        configz="KubeCloudShared.UseServiceAccountCredentials",
    )

    def problems(self, _config: Config) -> Iterator[str]:
        if self.burst is not None and self.burst < 0:
            yield f"kube-api-burst must not be negative, but got {self.burst}"

    def warnings(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        zeros = (
            ("--kube-api-qps", self.qps, f"{ZERO_QPS:g}"),
            ("--kube-api-burst", self.burst, f"{ZERO_BURST}"),
        )
        for flag, given, used in zeros:
            if given == 0:
                yield (
                    "Using a low request rate, because the flag is 0; leave it out for no limit",
                    {"flag": flag, "used": used},
                )

    def configz(self) -> dict[str, object]:
        return {"Generic.ClientConnection.acceptContentTypes": ""}
