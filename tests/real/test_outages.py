"""What the manager lives through: a server that dies, a watch that is cut, a token that changes."""

import json

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import Lab, eventually, is_initialized, register, running


def test_a_killed_api_server_is_found_again(clean: ControlPlane, lab: Lab) -> None:
    patience = ("--leader-elect-lease-duration=120s", "--leader-elect-renew-deadline=90s")
    with running(clean, lab, *patience) as manager:
        manager.wait_leading()
        register(clean, "before")
        eventually("initialized", lambda: is_initialized(clean, "before"))

        clean.end("kube-apiserver", at_once=True)
        clean.start_api_server()
        register(clean, "after")

        eventually("initialized", lambda: is_initialized(clean, "after"))
        assert manager.is_alive()


def test_a_rotated_token_is_picked_up(clean: ControlPlane, lab: Lab) -> None:
    account = ("serviceaccount", "rotating", "--namespace=kube-system")
    clean.kubectl("create", *account)
    clean.kubectl(
        "create",
        "clusterrolebinding",
        "rotating",
        "--clusterrole=cluster-admin",
        "--serviceaccount=kube-system:rotating",
    )
    token_file = lab.folder / "token"
    token_file.write_text(bound_token(clean, "first"))
    kubeconfig = clean.token_user("rotating", "")
    config = json.loads(kubeconfig.read_text())
    config["users"][0]["user"] = {"tokenFile": str(token_file)}
    kubeconfig.write_text(json.dumps(config))

    with running(clean, lab, kubeconfig=kubeconfig) as manager:
        manager.wait_leading()
        token_file.write_text(bound_token(clean, "second"))
        clean.kubectl("delete", "secret", "first", "--namespace=kube-system")
        register(clean, "rotated")

        eventually("initialized", lambda: is_initialized(clean, "rotated"))
        assert manager.is_alive()


def bound_token(cluster: ControlPlane, secret: str) -> str:
    """A token that dies with a Secret."""
    cluster.kubectl("create", "secret", "generic", secret, "--namespace=kube-system")
    return cluster.kubectl(
        "create",
        "token",
        "rotating",
        "--namespace=kube-system",
        "--bound-object-kind=Secret",
        f"--bound-object-name={secret}",
    ).strip()
