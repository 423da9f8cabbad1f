"""A provider in the classic shape on a real control plane, with the rights of Kubernetes itself."""

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import Lab, eventually, running
from tests.real.test_services import add_nodes, add_services, address, services

FLAGS = ("--cloud-provider=lab-ported", "--use-service-account-credentials")
NAMES = ("one", "three", "two")


def calls(lab: Lab) -> list[str]:
    file = lab.folder / "balancer-calls"
    return sorted(file.read_text().splitlines()) if file.exists() else []


def notes(cluster: ControlPlane) -> dict[str, str]:
    return {
        name: service["metadata"].get("annotations", {}).get("pileus.dev/ensured", "")
        for name, service in services(cluster).items()
    }


def test_after_a_restart_unchanged_services_are_not_ensured_and_new_nodes_are_an_update(
    clean: ControlPlane, lab: Lab
) -> None:
    add_nodes(clean, "a", "b")
    add_services(clean, *NAMES)
    with running(clean, lab, *FLAGS):
        for name in NAMES:
            eventually("an address", lambda name=name: address(clean, name))
        eventually("notes", lambda: all(notes(clean).values()))
    assert calls(lab) == [f"ensure {name}" for name in NAMES]
    before = notes(clean)

    with running(clean, lab, *FLAGS):
        add_nodes(clean, "c")
        eventually("updates", lambda: len(calls(lab)) == 6)
        eventually("other notes", lambda: not before.items() & notes(clean).items())
        clean.kubectl("delete", "service", "two", "--timeout=60s")

    made = [*(f"ensure {name}" for name in NAMES), *(f"update {name}" for name in NAMES)]
    assert calls(lab) == sorted([*made, "get two", "delete two", "get two"])
