"""The control plane that the other tests here rely on."""

import json

from pileus.testing.control_plane import ControlPlane


def test_it_is_the_release_that_we_speak_for(control_plane: ControlPlane) -> None:
    told = json.loads(control_plane.kubectl("version", "--output=json"))

    assert told["serverVersion"]["gitVersion"] == "v1.37.1"


def test_it_keeps_its_objects_when_it_is_killed_and_started_again(
    control_plane: ControlPlane,
) -> None:
    control_plane.kubectl("create", "namespace", "kept")

    control_plane.end("kube-apiserver", at_once=True)
    control_plane.start_api_server()

    assert control_plane.kubectl("get", "namespace", "kept", "--output=name") == "namespace/kept\n"
