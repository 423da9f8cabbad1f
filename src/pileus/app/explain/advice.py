"""Advice and a command for each reason of a condition, an event or a plan.

The tables of the reference and of the guide on nodes repeat them; a test compares both.
"""

from collections.abc import Mapping

from pileus.fix import fix_in
from pileus.kube.model.core_v1 import ObjectReference

OTHERWISE = "see the message"

ADVICE: Mapping[str, str] = {
    "InstanceNotFound": "compare node name and provider ID with the cloud",
    "CloudUnavailable": "wait, or check the cloud's status",
    "CloudThrottled": "wait, or raise the cloud's API limit",
    "CloudUnauthorized": "fix the credentials or their permissions",
    "CloudLookupRejected": "fix what the message names",
    "CloudLookupFailed": "report it to the provider's maintainers",
    "ProvidedNodeIPRefused": "fix --node-ip of the kubelet, or the machine's addresses",
    "NodeContested": "nothing: it is retried",
    "NodeWriteForbidden": "see the guide",
    "InstanceStateUnknown": "wait, or check the cloud's status",
    "NeverInitialized": "wait 30 minutes (--node-deletion-unidentified-grace), delete it "
    "with kubectl, or approve the deletion",
    "DeletionVetoed": "kubectl annotate node NAME pileus.dev/deletion-",
    "DeletionAnnotationUnknown": "kubectl annotate node NAME pileus.dev/deletion-",
    "NodeKeptByPolicy": "delete it with kubectl",
    "NodeInSeveralClouds": "set the provider ID of the node, or delete one of the machines",
    "NodeNotAssigned": "wait, or check the cloud's status",
    "UnknownLoadBalancerClass": "create the Service again with a known class",
    "Misconfigured": "fix what the message names",
    "NoMembers": "see members",
    "WaitsForMembers": "wait, or fix what the message names",
    "Pending": "wait",
    "Rejected": "change the Service",
    "Unsupported": "change the Service",
    "QuotaExceeded": "free something, or request a higher limit",
    "Unauthorized": "fix the credentials or their permissions",
    "Contested": "stop one of them",
    "LoadBalancerNotFound": "create one, or name it with pileus.dev/adopt",
    "WaitsForFormer": "wait",
    "ServiceWriteForbidden": "see rights",
    "Throttled": "wait",
    "ProvisioningFailed": "fix what the message names",
    "VolumeResizeFailed": "fix what the message names",
    "VolumeFailedDelete": "fix what the message names",
    "VolumeShared": "delete one of the PersistentVolumes, with reclaim policy Retain",
    "VolumeMissing": "restore the volume, or delete the claim",
    "VolumeAttachedElsewhere": "unmount it on that machine, and detach it in the cloud",
    "VolumeUnknown": "wait, or check the cloud's status",
    "FailedAttachVolume": "wait, or fix what the message names",
    "FailedDetachVolume": "stop the machine, or wait until its pods end",
}

_AGAIN = "pileus explain {words}"
_EDIT = "kubectl edit {object}"
_RIGHTS = "kubectl get clusterrolebindings --output=wide"
_COMMANDS: Mapping[str, str] = {
    "InstanceNotFound": "kubectl get {object} --output=custom-columns=NAME:.metadata.name,"
    "ID:.spec.providerID",
    "CloudUnavailable": _AGAIN,
    "CloudThrottled": _AGAIN,
    "CloudUnauthorized": _AGAIN,
    "NodeContested": _AGAIN,
    "NodeWriteForbidden": _RIGHTS,
    "InstanceStateUnknown": _AGAIN,
    "NeverInitialized": "kubectl delete {object}",
    "DeletionVetoed": "kubectl annotate {object} pileus.dev/deletion-",
    "DeletionAnnotationUnknown": "kubectl annotate {object} pileus.dev/deletion-",
    "NodeKeptByPolicy": "kubectl delete {object}",
    "NodeNotAssigned": _AGAIN,
    "Misconfigured": _EDIT,
    "NoMembers": "kubectl get nodes --show-labels",
    "WaitsForMembers": "kubectl get nodes --output=wide",
    "Pending": _AGAIN,
    "Rejected": _EDIT,
    "Unsupported": _EDIT,
    "QuotaExceeded": "pileus orphans",
    "Unauthorized": _AGAIN,
    "Contested": "kubectl get leases --all-namespaces",
    "LoadBalancerNotFound": "kubectl annotate {object} pileus.dev/adopt=ID",
    "WaitsForFormer": _AGAIN,
    "ServiceWriteForbidden": _RIGHTS,
    "Throttled": _AGAIN,
    "VolumeShared": "kubectl get persistentvolumes",
    "VolumeUnknown": _AGAIN,
    "FailedAttachVolume": "kubectl get volumeattachments",
    "FailedDetachVolume": "kubectl get nodes --output=wide",
}
_OTHERWISE = "kubectl describe {object}"


def command_for(about: ObjectReference, reason: str = "", message: str = "") -> str:
    """Returns the command to run for a reason: the fix at the end of the message, if it has one."""
    return fix_in(message) or _COMMANDS.get(reason, _OTHERWISE).format(
        object=_kubectl(about), words=_words(about)
    )


def again(about: ObjectReference) -> str:
    return _AGAIN.format(words=_words(about))


def _kubectl(about: ObjectReference) -> str:
    where = f" --namespace={about.namespace}" if about.namespace else ""
    return f"{about.kind.lower()} {about.name}{where}"


def _words(about: ObjectReference) -> str:
    name = f"{about.namespace}/{about.name}" if about.namespace else about.name
    return f"{about.kind.lower()} {name}"
