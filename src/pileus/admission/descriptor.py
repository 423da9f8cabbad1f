"""The webhook certificate controller, as the manager knows it."""

from typing import TYPE_CHECKING

from pileus.admission.names import NAME
from pileus.admission.settings import WebhookSettings
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerDescriptor,
    ControllerNames,
    Skipped,
)
from pileus.objects.rights import KUBE_SYSTEM, Right, events

if TYPE_CHECKING:
    from pileus.admission.certificate_controller import CertificateController

CERTIFICATES = ControllerNames(
    canonical="webhook-certificate-controller",
    alias="webhook-certificate",
    event_source="webhook-certificate-controller",
    metric="webhook-certificate",
    identity="webhook-certificate-controller",
)


def rights(settings: WebhookSettings) -> tuple[Right, ...]:
    """Returns the rights to write the Secret, and the CA of the webhook configurations."""
    if _idle(settings):
        return ()
    return (
        Right(
            purpose="The certificates of the webhook port.",
            resources=("secrets",),
            names=(NAME,),
            namespace=KUBE_SYSTEM,
            verbs=("get", "patch"),
            planning=("get",),
        ),
        Right(
            purpose="The CA in the configurations of the webhooks.",
            group="admissionregistration.k8s.io",
            resources=("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
            names=(NAME,),
            verbs=("get", "patch"),
            planning=("get",),
        ),
        events("Events about the certificates of webhooks."),
    )


def build(
    context: ControllerContext, settings: WebhookSettings
) -> "CertificateController | Skipped":
    if why := _idle(settings):
        return Skipped(why, is_news=False)
    from pileus.admission.certificate_controller import (  # noqa: PLC0415 -- not needed by help
        CertificateController,
    )

    return CertificateController(context, settings.chosen(), KUBE_SYSTEM)


def _idle(settings: WebhookSettings) -> str:
    if not settings.chosen():
        return "--webhooks enables none"
    if not settings.serving.port:
        return "--webhook-secure-port=0 serves no webhook"
    if not settings.is_managed:
        return "the flags name the certificate of the webhook port"
    return ""


DESCRIPTOR = ControllerDescriptor(
    names=CERTIFICATES,
    settings=WebhookSettings,
    build=build,
    rights=rights,
    per_cloud=False,
)
