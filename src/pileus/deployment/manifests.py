"""The objects of an installation, as plain dicts. `objects` is pure."""

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from pileus.deployment.choice import NODE, ApiServer, Choice, Shape
from pileus.deployment.commented import Commented, Object
from pileus.deployment.csi import csi_objects
from pileus.deployment.monitoring import monitoring_objects
from pileus.deployment.rbac import access_objects
from pileus.deployment.webhooks import webhook_objects
from pileus.objects.rights import KUBE_SYSTEM
from pileus.server.settings import ServerSettings
from pileus.version import PROGRAM

USER = 65532
"""User and group of the image's process."""
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
CONFIG_FOLDER = "/etc/cloud"
CONFIG_SECRET = "pileus-cloud-config"  # noqa: S105 -- the name of an object
CONFIG_VOLUME = "cloud-config"
PROBED = ("/livez", "/readyz")
"""Paths that kubelets ask for, without credentials."""
LOOPBACK = "127.0.0.1"
MIN_READY_SECONDS = 20
"""How long a new pod must be ready before an old one is deleted. While they share a port, a probe
of the new pod may be answered by the old one, before the new one competes for the Lease."""
_ANY = {"", "0.0.0.0", "::"}  # noqa: S104 -- compared with, not bound to


def objects(choice: Choice) -> tuple[Object, ...]:
    """Returns everything to apply, in an order in which it can be applied."""
    return tuple(_objects(choice))


def _objects(choice: Choice) -> Iterator[Object]:
    yield from _manager(choice)
    yield from webhook_objects(choice)
    yield from monitoring_objects(choice)
    yield from csi_objects(choice, pod)


def _manager(choice: Choice) -> Iterator[Object]:
    if choice.namespace != KUBE_SYSTEM and choice.shape is not Shape.EXTERNAL:
        yield _namespace(choice.namespace)
    yield from access_objects(choice)
    if choice.shape is Shape.EXTERNAL:
        return
    if choice.files:
        yield config_secret(choice)
    if choice.shape is Shape.DAEMON_SET:
        yield daemon_set(choice)
        return
    yield deployment(choice)
    if choice.replicas > 1:
        yield disruption_budget(choice)


def labels(choice: Choice) -> Object:
    return choice.labels()


def _metadata(choice: Choice, name: str = "") -> Object:
    return choice.metadata(name)


def _namespace(name: str) -> Object:
    return Commented(
        "Pods on the host network need the level privileged of the pod security standards.",
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
            },
        },
    )


def config_secret(choice: Choice) -> Object:
    data = {name: b64encode(content).decode() for name, content in choice.files.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(choice, CONFIG_SECRET),
        "type": "Opaque",
        "data": data,
    }


def deployment(choice: Choice) -> Object:
    return Commented(
        "One of the replicas is the leader. They share the secure port of the host, so that two "
        "of them can run on one node: on a cluster with one control-plane node, and while the "
        "Deployment is updated.",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _metadata(choice),
            "spec": {
                "replicas": choice.replicas,
                "minReadySeconds": MIN_READY_SECONDS,
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
                },
                "selector": {"matchLabels": labels(choice)},
                "template": pod(choice),
            },
        },
    )


def daemon_set(choice: Choice) -> Object:
    return Commented(
        "One pod on each control-plane node. One of them is the leader.",
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": _metadata(choice),
            "spec": {
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
                "selector": {"matchLabels": labels(choice)},
                "template": pod(choice),
            },
        },
    )


def disruption_budget(choice: Choice) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(choice),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels(choice)}},
    }


def pod(choice: Choice) -> Object:
    """Returns the template of the pods. They need no CNI, no cluster DNS and no other node."""
    metadata = _metadata(choice)
    return {
        "metadata": {"labels": metadata["labels"], **_checksum(choice)},
        "spec": {
            "serviceAccountName": choice.name,
            "hostNetwork": True,
            "dnsPolicy": "Default",
            "priorityClassName": "system-cluster-critical",
            "affinity": _affinity(choice),
            "tolerations": _tolerations(),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container(choice)],
            "volumes": _volumes(choice),
        },
    }


def _checksum(choice: Choice) -> Object:
    """Returns an annotation that changes with the files, so that an update restarts the pods."""
    if not choice.files:
        return {}
    lines = (f"{name}:{sha256(choice.files[name]).hexdigest()}\n" for name in sorted(choice.files))
    checksum = sha256("".join(lines).encode()).hexdigest()
    return {"annotations": {"checksum/cloud-config": checksum}}


def _affinity(choice: Choice) -> Object:
    terms = [{"matchExpressions": [{"key": CONTROL_PLANE, "operator": "Exists"}]}]
    node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    if choice.shape is Shape.DAEMON_SET:
        return {"nodeAffinity": node}
    apart = {
        "weight": 100,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": labels(choice)},
        },
    }
    return {
        "nodeAffinity": node,
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]},
    }


def _tolerations() -> list[Object]:
    return [
        Commented(
            "The taint that the manager removes.",
            {
                "key": "node.cloudprovider.kubernetes.io/uninitialized",
                "operator": "Exists",
                "effect": "NoSchedule",
            },
        ),
        {"key": CONTROL_PLANE, "operator": "Exists"},
        Commented(
            "Nodes are not ready before the CNI plugin runs, which may wait for the manager.",
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
        ),
        Commented(
            "Set until node-route-controller has created the node's route.",
            {
                "key": "node.kubernetes.io/network-unavailable",
                "operator": "Exists",
                "effect": "NoSchedule",
            },
        ),
    ]


def container(choice: Choice) -> Object:
    serving = choice.config[ServerSettings].serving
    return {
        "name": PROGRAM,
        "image": choice.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [PROGRAM],
        "args": list(choice.arguments),
        **_variables(choice.variables),
        **_environment(choice.api_server),
        **_probes(serving.bind_address, serving.port),
        "resources": {
            "requests": {"cpu": "50m", "memory": "128Mi"},
            "limits": {"memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": _mounts(choice),
    }


def _variables(name: str) -> Object:
    return {"envFrom": [{"configMapRef": {"name": name}}]} if name else {}


def _environment(server: ApiServer | None) -> Object:
    """Returns variables that replace those of the kubelet, which name the service IP."""
    if server is None:
        return {}
    own = {"valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
    host: Object = own if server.host == NODE else {"value": server.host}
    return {
        "env": [
            {"name": "KUBERNETES_SERVICE_HOST", **host},
            {"name": "KUBERNETES_SERVICE_PORT", "value": server.port},
        ]
    }


def _probes(address: str, port: int) -> Object:
    if not port:
        return {}
    host = LOOPBACK if address in _ANY else address

    def probe(path: str, **timing: int) -> Object:
        get: dict[str, Any] = {"host": host, "path": path, "port": port, "scheme": "HTTPS"}
        return {"httpGet": get, "timeoutSeconds": 10, **timing}

    return {
        "livenessProbe": probe(PROBED[0], initialDelaySeconds=15),
        "readinessProbe": probe(PROBED[1]),
    }


def _mounts(choice: Choice) -> list[Object]:
    config = {"name": CONFIG_VOLUME, "mountPath": CONFIG_FOLDER, "readOnly": True}
    scratch = {"name": "scratch", "mountPath": "/tmp"}  # noqa: S108 -- inside the container
    return [config, scratch] if choice.files or choice.secret else [scratch]


def _volumes(choice: Choice) -> list[Object]:
    secret = {"secretName": choice.secret or CONFIG_SECRET}
    config = {"name": CONFIG_VOLUME, "secret": secret}
    scratch = Commented(
        "Serving keys pass through it on their way into OpenSSL.",
        {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
    )
    return [config, scratch] if choice.files or choice.secret else [scratch]
