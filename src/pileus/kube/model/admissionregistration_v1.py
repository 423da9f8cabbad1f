"""API group admissionregistration.k8s.io: which webhooks the API server asks, and where."""

from pileus.kube.model.meta import Int32, KubeObject, Resource, Wire

GROUP = "admissionregistration.k8s.io"


class ServiceReference(Wire, frozen=True):
    namespace: str = ""
    name: str = ""


class WebhookClient(Wire, frozen=True):
    service: ServiceReference | None = None
    url: str | None = None
    ca_bundle: bytes | None = None


class WebhookRule(Wire, frozen=True):
    api_groups: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None
    operations: tuple[str, ...] | None = None


class Webhook(Wire, frozen=True):
    name: str = ""
    client_config: WebhookClient = WebhookClient()
    failure_policy: str | None = None
    rules: tuple[WebhookRule, ...] | None = None
    timeout_seconds: Int32 | None = None


class WebhookConfiguration(KubeObject, frozen=True):
    webhooks: tuple[Webhook, ...] | None = None


VALIDATING = Resource(
    WebhookConfiguration,
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    group=GROUP,
    namespaced=False,
)
MUTATING = Resource(
    WebhookConfiguration,
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    group=GROUP,
    namespaced=False,
)
