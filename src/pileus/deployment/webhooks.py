"""The objects that register the admission webhooks: a Service and the webhook configurations.

Both webhooks have the failure policy Ignore: a manager that is down must not block the cluster.
What a missing label costs, the label controller repairs; what a missing check of a size costs,
the resize itself reports. The CA is missing here: the leader writes it.
"""

from base64 import b64encode
from collections.abc import Iterator

from pileus.admission.names import NAME, OWNER_LABEL, TIMEOUT, Effect, WebhookNames
from pileus.admission.settings import WebhookSettings
from pileus.app.settings import ManagerSettings
from pileus.deployment.choice import Choice, Shape
from pileus.deployment.commented import Commented, Object
from pileus.objects.rights import KUBE_SYSTEM
from pileus.version import COMPONENT, PART_OF

PORT = "webhooks"
LABELS = {COMPONENT: "webhooks"}
"""Of all objects here: `kubectl apply --selector` uses them."""
_REGISTRATION = "admissionregistration.k8s.io/v1"
_POLICY = {
    Effect.MUTATING: (
        "New PersistentVolumes get zone, region and node affinity. While no manager answers, they "
        "are created without, and persistentvolume-label-controller adds them later."
    ),
    Effect.VALIDATING: (
        "Sizes of claims that their volumes can never have are refused. While no manager answers, "
        "sizes are not checked."
    ),
}


def _labelled(metadata: Object) -> Object:
    return {**metadata, "labels": metadata["labels"] | LABELS}


def webhook_objects(choice: Choice) -> Iterator[Object]:
    """Yields the Service and the configurations, if the settings enable webhooks."""
    settings = choice.config[WebhookSettings]
    hooks = settings.chosen() if settings.serving.port else ()
    if not hooks or choice.config[ManagerSettings].dry_run:
        return
    if choice.shape is not Shape.EXTERNAL and not choice.webhook_url:
        yield service(choice, settings.serving.port)
    if settings.is_managed:
        yield secret()
    for effect in Effect:
        if chosen := [each for each in hooks if each.effect is effect]:
            yield configuration(choice, effect, chosen)


def service(choice: Choice, port: int) -> Object:
    return Commented(
        "API servers reach the webhooks of all replicas here.",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _labelled(choice.metadata(NAME)),
            "spec": {
                "selector": choice.labels(),
                "ports": [{"name": PORT, "port": 443, "targetPort": port}],
            },
        },
    )


def secret() -> Object:
    return Commented(
        "The leader stores the certificates of the webhooks here. The Secret is created empty, so "
        "that the manager needs no right to create Secrets, with which it could request tokens.",
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": NAME,
                "namespace": KUBE_SYSTEM,
                "labels": {PART_OF: "pileus", **LABELS, **OWNER_LABEL},
            },
        },
    )


def configuration(choice: Choice, effect: Effect, hooks: list[WebhookNames]) -> Object:
    metadata = _labelled(choice.metadata(NAME))
    del metadata["namespace"]
    return Commented(
        _POLICY[effect],
        {
            "apiVersion": _REGISTRATION,
            "kind": effect.value,
            "metadata": metadata,
            "webhooks": [webhook(choice, each) for each in hooks],
        },
    )


def webhook(choice: Choice, names: WebhookNames) -> Object:
    conditions = [{"name": name, "expression": text} for name, text in names.conditions.items()]
    return {
        "name": names.full_name,
        "clientConfig": _client(choice, names),
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": [names.resource],
                "operations": list(names.operations),
                "scope": names.scope,
            }
        ],
        **({"matchConditions": conditions} if conditions else {}),
        "failurePolicy": "Ignore",
        "timeoutSeconds": TIMEOUT,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }


def _client(choice: Choice, names: WebhookNames) -> Object:
    given = {"caBundle": b64encode(choice.webhook_ca).decode()} if choice.webhook_ca else {}
    if choice.webhook_url:
        return {"url": f"{choice.webhook_url}{names.path}", **given}
    where = {"namespace": choice.namespace, "name": NAME, "path": names.path}
    return {"service": where, **given}
