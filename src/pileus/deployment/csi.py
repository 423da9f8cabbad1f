"""The objects of the CSI driver: CSIDriver, controller with its sidecars, node plugin, rights.

The sidecars are those of the Kubernetes project. Their rights are what their versions below use.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from pileus.cloud.choice import CloudSettings
from pileus.deployment.choice import NODE as OWN_NODE
from pileus.deployment.choice import Choice, CsiChoice, Shape
from pileus.deployment.commented import Commented, Object
from pileus.deployment.rbac import account, roles
from pileus.objects.rights import KUBE_SYSTEM, Right
from pileus.objects.settings import ClusterSettings
from pileus.version import COMPONENT, PART_OF
from pileus.volumes.parameters import driver_name
from pileus.volumes.sidecars import sidecar_lease

CONTROLLER, NODE = "pileus-csi-controller", "pileus-csi-node"
IMAGES = {
    "csi-provisioner": "v5.3.0",
    "csi-attacher": "v4.9.0",
    "csi-resizer": "v1.14.0",
    "csi-snapshotter": "v8.3.0",
}
METRICS_PORTS = {CONTROLLER: 10290, NODE: 10291}
"""Ports of probes and metrics, on the hosts' network; on loopback without --monitoring."""
LOOPBACK = "127.0.0.1"
SOCKET_FOLDER = "/csi"
SOCKET = f"{SOCKET_FOLDER}/csi.sock"
READ = ("get", "list", "watch")
STORAGE, SNAPSHOTS, COORDINATION = (
    "storage.k8s.io",
    "snapshot.storage.k8s.io",
    "coordination.k8s.io",
)
PASSED = (
    "--cloud-provider=",
    "--cloud-config=",
    "--cluster-id=",
    "--cluster-name=",
    "--allow-untagged-cloud=",
    "--user-agent=",
    "--logging-format=",
    "--v=",
)
"""Flags of the manager that the controller gets as well."""
SMALL = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}
DRIVER = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
EXAMPLES = ("StorageClass", "VolumeSnapshotClass")
"""Kinds that users change or replace: they are not part of the driver."""
CONFINED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def csi_objects(choice: Choice, pod: Callable[[Choice], Object]) -> Iterator[Object]:
    """Yields the objects of the driver. `pod` returns the template of a manager's pods."""
    csi = choice.csi
    if csi is None:
        return
    for one in _objects(choice, csi, pod):
        labels: dict[str, str] = one["metadata"].setdefault("labels", {})
        labels[PART_OF] = "pileus"
        if one["kind"] not in EXAMPLES:
            labels[COMPONENT] = "csi"
        yield one


def _objects(choice: Choice, csi: CsiChoice, pod: Callable[[Choice], Object]) -> Iterator[Object]:
    cloud = choice.config[CloudSettings].clouds[0].name
    driver = driver_name(cloud)
    yield csi_driver(driver)
    if csi.sidecars:
        yield from _controller(choice, csi, pod)
    yield from _node(choice, csi)
    yield storage_class(cloud, driver)
    if csi.snapshots:
        yield snapshot_class(cloud, driver)


def csi_driver(driver: str) -> Object:
    return Commented(
        "kubelet changes the group of files in volumes (fsGroup) by itself.",
        {
            "apiVersion": f"{STORAGE}/v1",
            "kind": "CSIDriver",
            "metadata": {"name": driver},
            "spec": {
                "attachRequired": True,
                "podInfoOnMount": False,
                "fsGroupPolicy": "ReadWriteOnceWithFSType",
                "storageCapacity": False,
                "volumeLifecycleModes": ["Persistent"],
            },
        },
    )


def storage_class(cloud: str, driver: str) -> Object:
    return Commented(
        "An example. Parameters: docs/guides/volumes.md.",
        {
            "apiVersion": f"{STORAGE}/v1",
            "kind": "StorageClass",
            "metadata": {"name": cloud},
            "provisioner": driver,
            "parameters": {"csi.storage.k8s.io/fstype": "ext4"},
            "allowVolumeExpansion": True,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )


def snapshot_class(cloud: str, driver: str) -> Object:
    return Commented(
        "An example.",
        {
            "apiVersion": f"{SNAPSHOTS}/v1",
            "kind": "VolumeSnapshotClass",
            "metadata": {"name": cloud},
            "driver": driver,
            "deletionPolicy": "Delete",
        },
    )


# -- controller --------------------------------------------------------------------------------


def _controller(
    choice: Choice, csi: CsiChoice, of_manager: Callable[[Choice], Object]
) -> Iterator[Object]:
    own = replace(choice, name=CONTROLLER, shape=Shape.DEPLOYMENT)
    pod = of_manager(own)
    subject = account(CONTROLLER, choice.namespace, own.metadata()["labels"])
    yield subject
    yield from roles(CONTROLLER, _driver_rights(choice), subject, "The driver.")
    driver = driver_name(choice.config[CloudSettings].clouds[0].name)
    found = sidecar_rights(driver, choice.namespace, snapshots=csi.snapshots)
    for name, rights in found.items():
        yield from roles(f"{CONTROLLER}:{name}", rights, subject, f"{name}.")
    spec: Object = {
        **pod["spec"],
        "containers": [_driver(choice, pod), *_sidecars(csi)],
        "volumes": [*pod["spec"]["volumes"], {"name": "socket", "emptyDir": {}}],
    }
    yield Commented(
        "The driver and its sidecars, each of which has a Lease. One replica of each is at work. "
        "The image of the driver needs the extra csi: make image EXTRAS=csi.",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": own.metadata(),
            "spec": {
                "replicas": choice.replicas,
                "selector": {"matchLabels": own.labels()},
                "template": {"metadata": pod["metadata"], "spec": spec},
            },
        },
    )


def _driver(choice: Choice, pod: Object) -> Object:
    (manager,) = pod["spec"]["containers"]
    flags = [one for one in choice.arguments if one.startswith(PASSED)]
    kept = {key: manager[key] for key in ("envFrom", "env") if key in manager}
    return {
        "name": "driver",
        "image": choice.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["pileus", "csi"],
        "args": [
            "--mode=controller",
            f"--endpoint=unix://{SOCKET}",
            _http(choice, CONTROLLER),
            *flags,
        ],
        **kept,
        **_probes(CONTROLLER),
        "resources": DRIVER,
        "securityContext": CONFINED,
        "volumeMounts": [*manager["volumeMounts"], {"name": "socket", "mountPath": SOCKET_FOLDER}],
    }


def _http(choice: Choice, name: str) -> str:
    """Returns the address of probes and metrics. Only the node reaches it without --monitoring."""
    host = "" if choice.monitoring is not None else LOOPBACK
    return f"--http-endpoint={host}:{METRICS_PORTS[name]}"


def _probes(name: str) -> Object:
    def probe(path: str, **timing: int) -> Object:
        get = {"host": LOOPBACK, "path": path, "port": METRICS_PORTS[name]}
        return {"httpGet": get, "timeoutSeconds": 10, **timing}

    return {
        "livenessProbe": probe("/healthz", initialDelaySeconds=15),
        "readinessProbe": probe("/readyz"),
    }


def _sidecars(csi: CsiChoice) -> Iterator[Object]:
    found: dict[str, Sequence[str]] = {
        "csi-provisioner": ("--feature-gates=Topology=true", "--extra-create-metadata=true"),
        "csi-attacher": (),
        "csi-resizer": (),
    }
    if csi.snapshots:
        found["csi-snapshotter"] = ()
    for name, flags in found.items():
        common = (f"--csi-address={SOCKET}", "--leader-election=true", "--timeout=90s")
        yield _sidecar(csi, name, (*common, *flags))


def _sidecar(csi: CsiChoice, name: str, flags: Sequence[str]) -> Object:
    return {
        "name": name,
        "image": f"{csi.registry}/{name}:{IMAGES[name]}",
        "imagePullPolicy": "IfNotPresent",
        "args": list(flags),
        "resources": SMALL,
        "securityContext": CONFINED,
        "volumeMounts": [{"name": "socket", "mountPath": SOCKET_FOLDER}],
    }


def _driver_rights(choice: Choice) -> tuple[Right, ...]:
    if choice.config[ClusterSettings].id:
        return ()
    purpose = "The UID of kube-system is the ID of the cluster in the marks of volumes."
    names = (KUBE_SYSTEM,)
    return (Right(purpose=purpose, resources=("namespaces",), names=names, verbs=("get",)),)


def sidecar_rights(
    driver: str, namespace: str, *, snapshots: bool
) -> Mapping[str, tuple[Right, ...]]:
    """Returns the rights of each sidecar, by its name."""
    own = {
        "csi-provisioner": _provisioner(),
        "csi-attacher": _attacher(),
        "csi-resizer": _resizer(),
    }
    if snapshots:
        own["csi-snapshotter"] = _snapshotter()
    return {
        name: (*rights, *_common(name.replace("csi-", "external-"), driver, namespace))
        for name, rights in own.items()
    }


def _right(purpose: str, group: str, verbs: Sequence[str], *resources: str) -> Right:
    return Right(purpose=purpose, group=group, resources=resources, verbs=tuple(verbs))


def _common(sidecar: str, driver: str, namespace: str) -> tuple[Right, ...]:
    lease = _right("Its Lease.", COORDINATION, ("get", "update"), "leases")
    first = "The first start. RBAC cannot limit `create` to names."
    return (
        _right("Events.", "", ("list", "watch", "create", "update", "patch"), "events"),
        replace(lease, namespace=namespace, names=(sidecar_lease(sidecar, driver),)),
        replace(_right(first, COORDINATION, ("create",), "leases"), namespace=namespace),
    )


def _provisioner() -> tuple[Right, ...]:
    return (
        _right("Volumes of claims.", "", (*READ, "create", "patch", "delete"), "persistentvolumes"),
        _right("Claims.", "", (*READ, "update"), "persistentvolumeclaims"),
        _right("Where pods can run.", "", READ, "nodes"),
        _right(
            "Classes, and where volumes are needed.",
            STORAGE,
            READ,
            *("storageclasses", "csinodes", "volumeattachments", "volumeattributesclasses"),
        ),
        _right(
            "Volumes from snapshots.",
            SNAPSHOTS,
            ("get", "list"),
            *("volumesnapshots", "volumesnapshotcontents"),
        ),
    )


def _attacher() -> tuple[Right, ...]:
    return (
        _right("Their finalizer.", "", (*READ, "patch"), "persistentvolumes"),
        _right("IDs of nodes.", STORAGE, READ, "csinodes"),
        _right("What to attach.", STORAGE, (*READ, "patch"), "volumeattachments"),
        _right("What is attached.", STORAGE, ("patch",), "volumeattachments/status"),
    )


def _resizer() -> tuple[Right, ...]:
    return (
        _right("Their size.", "", (*READ, "patch"), "persistentvolumes"),
        _right(
            "What is to grow, and which pods use it.", "", READ, "persistentvolumeclaims", "pods"
        ),
        _right("Conditions of claims.", "", ("patch",), "persistentvolumeclaims/status"),
        _right("Classes.", STORAGE, READ, "storageclasses", "volumeattributesclasses"),
    )


def _snapshotter() -> tuple[Right, ...]:
    contents = "volumesnapshotcontents"
    return (
        _right("Classes.", SNAPSHOTS, READ, "volumesnapshotclasses"),
        _right("Snapshots.", SNAPSHOTS, (*READ, "update", "patch"), contents),
        _right("Their state.", SNAPSHOTS, ("update", "patch"), f"{contents}/status"),
    )


# -- node --------------------------------------------------------------------------------------


def _node(choice: Choice, csi: CsiChoice) -> Iterator[Object]:
    own = replace(choice, name=NODE)
    subject = account(NODE, choice.namespace, own.metadata()["labels"])
    yield subject
    right = _right("The provider ID and the zone of the node.", "", ("get",), "nodes")
    yield from roles(NODE, (right,), subject, "The driver on nodes.")
    yield Commented(
        "The driver on every node. It registers itself with the kubelet, and formats and mounts "
        "volumes, as root; it has no credentials of the cloud. The image needs the extra csi: make "
        "image EXTRAS=csi.",
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": own.metadata(),
            "spec": {
                "updateStrategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": "10%"},
                },
                "selector": {"matchLabels": own.labels()},
                "template": {
                    "metadata": {"labels": own.metadata()["labels"]},
                    "spec": _node_pod(choice, csi),
                },
            },
        },
    )


def _node_pod(choice: Choice, csi: CsiChoice) -> Object:
    return {
        "serviceAccountName": NODE,
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "containers": [_node_driver(choice, csi)],
        "volumes": [_host_path("kubelet", csi.kubelet), _host_path("dev", "/dev")],
    }


def _host_path(name: str, path: str) -> Object:
    return {"name": name, "hostPath": {"path": path, "type": "Directory"}}


def _node_driver(choice: Choice, csi: CsiChoice) -> Object:
    flags = [one for one in choice.arguments if one.startswith(("--cloud-provider=", "--v="))]
    names = [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    server = choice.api_server
    if server is not None and server.host != OWN_NODE:
        names += [
            {"name": "KUBERNETES_SERVICE_HOST", "value": server.host},
            {"name": "KUBERNETES_SERVICE_PORT", "value": server.port},
        ]
    return {
        "name": "driver",
        "image": csi.node_image or choice.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["pileus", "csi"],
        "args": [
            "--mode=node",
            f"--kubelet-dir={csi.kubelet}",
            _http(choice, NODE),
            *flags,
        ],
        "env": names,
        **_probes(NODE),
        "resources": DRIVER,
        "securityContext": Commented(
            "Mounts have to appear on the host, and devices to be used.",
            {"privileged": True, "runAsUser": 0, "runAsGroup": 0},
        ),
        "volumeMounts": [
            {
                "name": "kubelet",
                "mountPath": csi.kubelet,
                "mountPropagation": "Bidirectional",
            },
            {"name": "dev", "mountPath": "/dev"},
        ],
    }
