"""The systemd unit for a manager outside the cluster.

Files are given to the process as credentials (`LoadCredential`), so that only root needs to be able
to read them.
"""

from pileus.deployment.choice import Choice

KUBECONFIG = "/etc/pileus/kubeconfig"
PROGRAM = "/opt/pileus/bin/cloud-controller-manager"
ACCESS = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
CLOUD_CONFIG = "cloud-config"
_SERVICE = """\
DynamicUser=yes
Restart=always
RestartSec=5
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native
CapabilityBoundingSet=
UMask=0077
"""


def unit(choice: Choice) -> str:
    """Returns the text of cloud-controller-manager.service."""
    given = dict(argument[2:].split("=", 1) for argument in choice.arguments)
    kubeconfig = given.get("kubeconfig", KUBECONFIG)
    files = {"kubeconfig": kubeconfig, **_cloud_configs(given.get(CLOUD_CONFIG, ""))}
    places = {path: f"%d/{name}" for name, path in files.items()}
    flags = {name: _quoted(f"--{name}={value}") for name, value in given.items()}
    for name in ACCESS:
        flags[name] = f"--{name}={places[kubeconfig]}"
    if CLOUD_CONFIG in given:
        paths = given[CLOUD_CONFIG].split(",")
        flags[CLOUD_CONFIG] = f"--{CLOUD_CONFIG}={','.join(places.get(one, '') for one in paths)}"
    command = " \\\n  ".join((PROGRAM, *(flags[name] for name in sorted(flags))))
    credentials = "".join(f"LoadCredential={name}:{path}\n" for name, path in files.items())
    return (
        "[Unit]\n"
        "Description=Kubernetes cloud-controller-manager (Pileus)\n"
        "Wants=network-online.target\n"
        "After=network-online.target\n"
        "StartLimitIntervalSec=0\n"
        "\n[Service]\n"
        f"ExecStart={command}\n{credentials}{_SERVICE}"
        "\n[Install]\nWantedBy=multi-user.target\n"
    )


def _cloud_configs(listed: str) -> dict[str, str]:
    """Returns the paths by the name of their credential."""
    paths = [path for path in listed.split(",") if path]
    if len(paths) == 1:
        return {CLOUD_CONFIG: paths[0]}
    return {f"{CLOUD_CONFIG}-{number}": path for number, path in enumerate(paths, 1)}


def _quoted(argument: str) -> str:
    """Returns the argument as systemd reads it back."""
    text = argument.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    needs_quotes = any(sign in text for sign in " \"'\\;")
    return '"' + text.replace('"', '\\"') + '"' if needs_quotes else text
