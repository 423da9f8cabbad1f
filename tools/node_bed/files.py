"""The configuration files of a bed's programs, and the scripts that prepare its namespaces."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.node_bed.prepare import BUSYBOX

CLOUD = Path("/run/pileus-cloud")
"""Folder of the local cloud, which pods mount from the host."""
ENDPOINT = f"{CLOUD}/cloud.sock"
CLOUD_CONFIG = f"{CLOUD}/cloud.yaml"
KUBELET = Path("/var/lib/kubelet")
"""Folder of the kubelet, on every node."""
IMAGE_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin", "LANG": "C.UTF-8"}
CLOUD_SETTINGS = {
    "endpoint": ENDPOINT,
    "internalPool": "10.77.0.0/24",
    "volumeFolder": "/volumes",
    "volumeKind": "loop",
}
"""The folder of volumes is in the bed's own, so that their devices are known by its name."""
SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
"""What a kubelet demands of the kernel. It reads files instead: the machine is not changed."""
WRITES = ["create", "update", "patch", "delete", "deletecollection"]
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Request", "resources": [{"group": "coordination.k8s.io"}]},
        {"level": "Metadata", "verbs": WRITES},
        {"level": "None"},
    ],
}


def network_script(addresses: Iterable[str]) -> str:
    """Returns a script that gives the namespace loopback and the addresses of the nodes."""
    lines = [
        "ip link set lo up",
        "ip link add nodes type bridge",
        "ip link set nodes up",
        *(f"ip address add {address}/24 dev nodes" for address in addresses),
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start",
    ]
    return "\n".join(lines)


def mount_script(folder: Path) -> str:
    """Returns a script that hides the machine's folders and kernel settings from its node."""
    lines = ["mount -t tmpfs tmpfs /run", "mount -t tmpfs tmpfs /var/log"]
    layers = f"lowerdir=/var/lib,upperdir={folder}/var-lib,workdir={folder}/var-lib-work"
    lines += [
        f"mkdir {folder}/var-lib {folder}/var-lib-work {folder}/sysctl",
        f"mount -t overlay overlay -o {layers} /var/lib",
    ]
    lines += [f"echo {value} > {_setting(folder, name)}" for name, value in SYSCTLS.items()]
    return "\n".join(lines)


def machine_script(home: Path, pid_file: Path) -> str:
    """Returns the first process of a node: its mounts are its own, and shared with its pods.

    Its process ID is read before /proc is that of its own namespace.
    """
    binds = [f"mount --bind {_setting(home.parent, name)} /proc/sys/{name}" for name in SYSCTLS]
    lines = [
        "read -r pid _ < /proc/self/stat",
        "mount -t proc proc /proc",
        *binds,
        f"mkdir -p {KUBELET}",
        f"mount --bind {home}/kubelet {KUBELET}",
        "mount --make-rshared /",
        f"echo $pid > {pid_file}.new",
        f"mv {pid_file}.new {pid_file}",
        "while true; do sleep 1000; done",
    ]
    return "\n".join(lines)


def _setting(folder: Path, name: str) -> str:
    return f"{folder}/sysctl/{name.replace('/', '.')}"


def api_server_arguments(folder: Path, audit_log: Path) -> tuple[str, ...]:
    own = folder / "control-plane"
    return (
        "--enable-admission-plugins=NodeRestriction",
        f"--audit-policy-file={folder}/audit-policy.json",
        f"--audit-log-path={audit_log}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={own}/admin.pem",
        f"--kubelet-client-key={own}/admin.pem",
    )


def write_audit_policy(folder: Path) -> None:
    (folder / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY))


def write_cloud_files() -> None:
    """Writes the configuration of the local cloud."""
    CLOUD.mkdir(mode=0o711)
    Path(CLOUD_CONFIG).write_text(json.dumps(CLOUD_SETTINGS))


def write_node_files(home: Path, number: int, debian: Path, settings: Mapping[str, str]) -> None:
    """Writes the configuration of containerd, the pod network and the kubelet."""
    for name in ("cni", "kubelet", "plugins", "static"):
        (home / name).mkdir(parents=True)
    (home / "cni" / "10-bed.conflist").write_text(json.dumps(_pod_network(number, home)))
    (home / "containerd.toml").write_text(_containerd(home, number, debian))
    (home / "kubelet.yaml").write_text(json.dumps({**_kubelet(home, number), **settings}))


def proxy_config(kubeconfig: Path) -> str:
    """Returns the configuration of kube-proxy. It leaves the limits of the kernel alone."""
    unchanged = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s"}
    return json.dumps({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "mode": "nftables",
        "nodePortAddresses": ["10.77.0.0/24"],
        "clusterCIDR": "10.244.0.0/16",
        "conntrack": {**unchanged, "tcpCloseWaitTimeout": "0s"},
    })


def _pod_network(number: int, home: Path) -> dict[str, object]:
    ranges = [[{"subnet": f"10.244.{number}.0/24"}]]
    routes = [{"dst": "0.0.0.0/0"}]
    bridge = {
        "type": "bridge",
        "bridge": f"pods-{number}",
        "isGateway": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "dataDir": f"{home}/ipam",
            "ranges": ranges,
            "routes": routes,
        },
    }
    return {"cniVersion": "0.4.0", "name": "bed", "plugins": [bridge]}


def _kubelet(home: Path, number: int) -> dict[str, object]:
    authority = str(home.parent / "control-plane" / "ca.crt")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": f"10.77.0.{number}",
        "port": 10250,
        "healthzPort": 0,
        "readOnlyPort": 0,
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "containerRuntimeEndpoint": f"unix:///run/containerd-{number}/containerd.sock",
        "makeIPTablesUtilChains": False,
        "protectKernelDefaults": True,
        "registerNode": True,
        "volumePluginDir": str(home / "plugins"),
        "podLogsDir": f"/var/log/pods-{number}",
        "resolvConf": "",
        "localStorageCapacityIsolation": False,
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "nodeStatusUpdateFrequency": "5s",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": authority},
        },
        "authorization": {"mode": "Webhook"},
    }


def _containerd(home: Path, number: int, debian: Path) -> str:
    """Returns the configuration of containerd 1.6.

    `restrict_oom_score_adj`: a machine may not let even root lower it.
    """
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""\
version = 2
root = "{home}/containerd"
state = "/run/containerd-{number}"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
  address = "/run/containerd-{number}/containerd.sock"
[{cri}]
  sandbox_image = "{BUSYBOX}"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
[{cri}.cni]
  bin_dir = "{debian}/usr/lib/cni"
  conf_dir = "{home}/cni"
[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
  BinaryName = "{debian}/usr/sbin/runc"
  SystemdCgroup = false
"""
