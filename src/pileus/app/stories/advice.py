"""What to do about each reason that a condition, an event or a plan may give.

The tables of the reference and of the guide on nodes that stay say the same; a test holds them
together.
"""

from collections.abc import Mapping

OTHERWISE = "see the message"

ADVICE: Mapping[str, str] = {
    "InstanceNotFound": "compare node name and provider ID with the cloud",
    "CloudUnavailable": "wait, or see the cloud's state",
    "CloudThrottled": "wait; raise the limit there",
    "CloudUnauthorized": "mend the credentials or their rights",
    "CloudLookupRejected": "mend what the message names",
    "CloudLookupFailed": "report it to the provider's authors",
    "ProvidedNodeIPRefused": "mend either",
    "NodeContested": "nothing: it is tried again",
    "NodeWriteForbidden": "see the guide",
    "InstanceStateUnknown": "wait, or see the cloud's state",
    "NeverInitialized": "delete it yourself, or approve it",
    "DeletionVetoed": "kubectl annotate node NAME pileus.dev/deletion-",
    "DeletionAnnotationUnknown": "kubectl annotate node NAME pileus.dev/deletion-",
    "NodeKeptByPolicy": "delete it yourself",
    "Misconfigured": "mend what the message names",
    "NoMembers": "see members",
    "Pending": "wait",
    "Rejected": "change the Service",
    "Unsupported": "change the Service",
    "QuotaExceeded": "free something, or ask for more",
    "Unauthorized": "mend them or their rights",
    "Contested": "stop one of them",
    "LoadBalancerNotFound": "make one, or name it with pileus.dev/adopt",
    "WaitsForFormer": "wait",
    "ServiceWriteForbidden": "see rights",
    "Throttled": "wait",
}
