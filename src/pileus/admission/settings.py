"""Settings of the admission webhooks, with the Go program's flags."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pileus.admission.names import NAME, WEBHOOKS, WebhookNames, chosen
from pileus.server.settings import HIGHEST_PORT, ServerSettings, ServingOptions
from pileus.settings.config import Config
from pileus.settings.declare import nested, setting, shared
from pileus.settings.feature_gates import WEBHOOK, Gates
from pileus.settings.kinds import STRINGS

_WEBHOOK = "Webhook serving"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Which admission webhooks are served, and where."""

    entries: tuple[str, ...] = setting(
        "webhooks",
        STRINGS,
        (),
        "Webhooks to serve, written like --controllers. Needs the feature gate "
        "CloudControllerManagerWebhook.",
        details="Known: " + ", ".join(each.name for each in WEBHOOKS) + ".",
        section="Webhook",
    )
    serving: ServingOptions = nested(
        ServingOptions,
        prefix="webhook-",
        section=_WEBHOOK,
        changes={
            "port": {
                "default": 10260,
                "help": "Port of the admission webhooks; 0: not served.",
            },
            "cert_dir": {
                "help": f"Folder of {NAME}.crt and .key, created if absent; empty: a "
                "certificate that the leader creates and rotates."
            },
            "pair_name": {"default": NAME},
        },
        omit=("http2_max_streams", "permit_address_sharing", "permit_port_sharing"),
    )

    gates: Gates = shared(Gates)

    def chosen(self) -> tuple[WebhookNames, ...]:
        """Returns the webhooks that `--webhooks` enables; none without the feature gate."""
        return chosen(self.entries) if self.gates.enabled(WEBHOOK) else ()

    def warnings(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        if self.entries and not self.gates.enabled(WEBHOOK):
            yield (
                "Serving no webhooks, because their feature gate is off",
                {"webhooks": ",".join(self.entries), "fix": f"--feature-gates={WEBHOOK.name}=true"},
            )

    @property
    def is_managed(self) -> bool:
        """Whether the manager creates the certificate of the port, because the flags name none."""
        given = self.serving
        return not (given.cert_file or given.key_file or given.cert_dir)

    def problems(self, config: Config) -> Iterator[str]:
        port = self.serving.port
        if not 0 <= port <= HIGHEST_PORT:
            yield (
                f"--webhook-secure-port {port} must be between 0 and {HIGHEST_PORT}, inclusive. "
                "A value of 0 disables the webhook endpoint entirely."
            )
        yield from self.serving.tls_problems("webhook-")
        if port and port == config[ServerSettings].serving.port:
            yield "--webhook-secure-port cannot be the same value as --secure-port"

    def configz(self) -> dict[str, object]:
        return {"Webhook.Webhooks": list(self.entries) or None}
