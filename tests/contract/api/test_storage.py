"""What is particular to volumes, claims, storage classes and attachments."""

from typing import Any

import pytest

from tests.contract.api.http import MERGE, Api, Namespace

STORAGE = "/apis/storage.k8s.io/v1"
VOLUMES = "/api/v1/persistentvolumes"
DRIVER = "local.csi.pileus.dev"


def volume(name: str, **spec: Any) -> dict[str, Any]:
    csi = {"driver": DRIVER, "volumeHandle": "vol-1"}
    given = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi}
    return {"metadata": {"name": name}, "spec": {**given, **spec}}


def storage_class(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "provisioner": DRIVER, **fields}


def claim(**spec: Any) -> dict[str, Any]:
    given = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": "data"}, "spec": {**given, **spec}}


def attachment(name: str, **spec: Any) -> dict[str, Any]:
    given = {"attacher": DRIVER, "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}}
    return {"metadata": {"name": name}, "spec": {**given, **spec}}


def removed(api: Api, path: str) -> None:
    api.patch(path, {"metadata": {"finalizers": None}})
    api.delete(path)


@pytest.fixture
def pv(api: Api, fresh: str) -> Any:
    made = api.post(VOLUMES, volume(fresh))
    assert made.status == 201, made
    yield made.body
    removed(api, f"{VOLUMES}/{fresh}")


class TestPersistentVolumes:
    def test_a_new_one_is_pending_protected_and_has_defaults(self, pv: dict[str, Any]) -> None:
        assert pv["status"]["phase"] == "Pending"
        assert pv["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
        assert pv["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
        assert pv["spec"]["volumeMode"] == "Filesystem"
        assert "generation" not in pv["metadata"]

    @pytest.mark.parametrize(
        ("spec", "causes"),
        [
            pytest.param(
                {"accessModes": []}, {("FieldValueRequired", "spec.accessModes")}, id="modes"
            ),
            pytest.param(
                {"accessModes": ["Whatever"]},
                {("FieldValueNotSupported", "spec.accessModes")},
                id="unknown-mode",
            ),
            pytest.param(
                {"capacity": {"storage": "0"}},
                {("FieldValueInvalid", "spec.capacity[storage]")},
                id="size",
            ),
            pytest.param({"csi": None}, {("FieldValueRequired", "spec")}, id="source"),
            pytest.param(
                {"csi": {"driver": DRIVER, "volumeHandle": ""}},
                {("FieldValueRequired", "spec.csi.volumeHandle")},
                id="handle",
            ),
        ],
    )
    def test_a_bad_one_is_invalid(
        self, api: Api, fresh: str, spec: dict[str, Any], causes: set[tuple[str, str]]
    ) -> None:
        answer = api.post(VOLUMES, volume(fresh, **spec))

        assert (answer.status, answer.causes) == (422, causes)

    def test_its_capacity_may_change_and_its_source_may_not(
        self, api: Api, pv: dict[str, Any]
    ) -> None:
        path = f"{VOLUMES}/{pv['metadata']['name']}"

        grown = api.patch(path, {"spec": {"capacity": {"storage": "2Gi"}}}, MERGE)
        moved = api.patch(path, {"spec": {"csi": {"volumeHandle": "vol-2"}}}, MERGE)

        assert grown.body["spec"]["capacity"] == {"storage": "2Gi"}
        assert moved.status == 422
        assert moved.causes == {("FieldValueForbidden", "spec.persistentvolumesource")}

    def test_a_new_phase_gets_a_time(self, api: Api, pv: dict[str, Any]) -> None:
        path = f"{VOLUMES}/{pv['metadata']['name']}/status"
        old = {"status": {"phase": "Pending", "lastPhaseTransitionTime": "2020-01-01T00:00:00Z"}}
        api.patch(path, old, MERGE)

        answer = api.patch(path, {"status": {"phase": "Released"}}, MERGE)

        assert answer.body["status"]["phase"] == "Released"
        assert answer.body["status"]["lastPhaseTransitionTime"] > "2021"

    def test_one_being_deleted_stays_until_its_finalizers_are_removed(
        self, api: Api, fresh: str
    ) -> None:
        api.post(VOLUMES, volume(fresh))

        deleted = api.delete(f"{VOLUMES}/{fresh}")
        released = api.patch(f"{VOLUMES}/{fresh}", {"metadata": {"finalizers": None}}, MERGE)

        assert "deletionTimestamp" in deleted.body["metadata"]
        assert released.status == 200
        assert api.get(f"{VOLUMES}/{fresh}").status == 404


class TestClaims:
    def test_a_new_one_is_pending_and_protected(self, namespace: Namespace) -> None:
        made = namespace.api.post(namespace.path("persistentvolumeclaims"), claim()).body

        assert made["status"] == {"phase": "Pending"}
        assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        assert made["spec"]["volumeMode"] == "Filesystem"

    @pytest.mark.parametrize(
        ("spec", "causes"),
        [
            pytest.param(
                {"resources": {"requests": {"storage": "0"}}},
                {("FieldValueInvalid", "spec.resources[storage]")},
                id="size-0",
            ),
            pytest.param(
                {"resources": {}}, {("FieldValueRequired", "spec.resources[storage]")}, id="no-size"
            ),
            pytest.param(
                {"accessModes": []}, {("FieldValueRequired", "spec.accessModes")}, id="modes"
            ),
            pytest.param(
                {"volumeMode": "Tape"}, {("FieldValueNotSupported", "spec.volumeMode")}, id="mode"
            ),
        ],
    )
    def test_a_bad_one_is_invalid(
        self, namespace: Namespace, spec: dict[str, Any], causes: set[tuple[str, str]]
    ) -> None:
        path = namespace.path("persistentvolumeclaims")

        answer = namespace.api.post(path, claim(**spec))

        assert (answer.status, answer.causes) == (422, causes)

    def test_a_bound_one_grows_if_its_class_allows_it_and_never_shrinks(
        self, namespace: Namespace, fresh: str
    ) -> None:
        api, path = namespace.api, namespace.path("persistentvolumeclaims", "data")
        api.post(f"{STORAGE}/storageclasses", storage_class(fresh, allowVolumeExpansion=True))
        spec = claim(storageClassName=fresh)
        api.post(namespace.path("persistentvolumeclaims"), spec)
        larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}

        unbound = api.patch(path, larger, MERGE)
        status = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
        api.patch(f"{path}/status", {"status": status}, MERGE)
        grown = _eventually_allowed(api, path, larger)
        shrunk = api.patch(path, {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}, MERGE)
        api.delete(f"{STORAGE}/storageclasses/{fresh}")

        assert (unbound.status, unbound.reason) == (422, "Invalid")
        assert grown.body["spec"]["resources"]["requests"]["storage"] == "2Gi"
        assert shrunk.causes == {("FieldValueForbidden", "spec.resources.requests.storage")}

    def test_one_whose_class_does_not_allow_it_does_not_grow(self, namespace: Namespace) -> None:
        api, path = namespace.api, namespace.path("persistentvolumeclaims", "data")
        api.post(namespace.path("persistentvolumeclaims"), claim(storageClassName="unknown"))
        api.patch(f"{path}/status", {"status": {"phase": "Bound"}}, MERGE)

        answer = api.patch(path, {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}, MERGE)

        assert (answer.status, answer.reason) == (403, "Forbidden")
        assert "only dynamically provisioned pvc can be resized" in answer.message

    def test_its_volume_is_named_once(self, namespace: Namespace) -> None:
        api, path = namespace.api, namespace.path("persistentvolumeclaims", "data")
        api.post(namespace.path("persistentvolumeclaims"), claim())

        first = api.patch(path, {"spec": {"volumeName": "pv-1"}}, MERGE)
        second = api.patch(path, {"spec": {"volumeName": "pv-2"}}, MERGE)

        assert first.status == 200
        assert second.causes == {("FieldValueForbidden", "spec")}


def _eventually_allowed(api: Api, path: str, body: dict[str, Any]) -> Any:
    """The real server learns of a new class a moment later."""
    answer = api.patch(path, body, MERGE)
    for _ in range(50):
        if answer.status == 200:
            break
        answer = api.patch(path, body, MERGE)
    return answer


class TestStorageClasses:
    def test_defaults(self, api: Api, fresh: str) -> None:
        made = api.post(f"{STORAGE}/storageclasses", storage_class(fresh)).body
        api.delete(f"{STORAGE}/storageclasses/{fresh}")

        assert (made["reclaimPolicy"], made["volumeBindingMode"]) == ("Delete", "Immediate")

    @pytest.mark.parametrize(
        ("fields", "causes"),
        [
            pytest.param(
                {"provisioner": ""}, {("FieldValueRequired", "provisioner")}, id="provisioner"
            ),
            pytest.param(
                {"reclaimPolicy": "Recycle"},
                {("FieldValueNotSupported", "reclaimPolicy")},
                id="policy",
            ),
            pytest.param(
                {"volumeBindingMode": "Soon"},
                {("FieldValueNotSupported", "volumeBindingMode")},
                id="binding",
            ),
        ],
    )
    def test_a_bad_one_is_invalid(
        self, api: Api, fresh: str, fields: dict[str, Any], causes: set[tuple[str, str]]
    ) -> None:
        answer = api.post(f"{STORAGE}/storageclasses", storage_class(fresh, **fields))

        assert (answer.status, answer.causes) == (422, causes)

    def test_its_parameters_are_immutable(self, api: Api, fresh: str) -> None:
        path = f"{STORAGE}/storageclasses/{fresh}"
        api.post(f"{STORAGE}/storageclasses", storage_class(fresh, parameters={"type": "a"}))

        answer = api.patch(path, {"parameters": {"type": "b"}}, MERGE)
        api.delete(path)

        assert answer.causes == {("FieldValueInvalid", "parameters")}


class TestVolumeAttachments:
    def test_a_new_one_is_not_attached(self, api: Api, fresh: str) -> None:
        body = {**attachment(fresh), "status": {"attached": True}}
        made = api.post(f"{STORAGE}/volumeattachments", body).body
        api.delete(f"{STORAGE}/volumeattachments/{fresh}")

        assert made["status"] == {"attached": False}

    @pytest.mark.parametrize(
        ("spec", "causes"),
        [
            pytest.param({"source": {}}, {("FieldValueRequired", "spec.source")}, id="source"),
            pytest.param({"attacher": ""}, {("FieldValueRequired", "spec.attacher")}, id="driver"),
        ],
    )
    def test_a_bad_one_is_invalid(
        self, api: Api, fresh: str, spec: dict[str, Any], causes: set[tuple[str, str]]
    ) -> None:
        answer = api.post(f"{STORAGE}/volumeattachments", attachment(fresh, **spec))

        assert (answer.status, answer.causes) == (422, causes)

    def test_its_spec_is_immutable(self, api: Api, fresh: str) -> None:
        path = f"{STORAGE}/volumeattachments/{fresh}"
        api.post(f"{STORAGE}/volumeattachments", attachment(fresh))

        answer = api.patch(path, {"spec": {"nodeName": "n2"}}, MERGE)
        api.delete(path)

        assert answer.causes == {("FieldValueInvalid", "spec")}

    def test_status_and_metadata_are_written_apart(self, api: Api, fresh: str) -> None:
        path = f"{STORAGE}/volumeattachments/{fresh}"
        api.post(f"{STORAGE}/volumeattachments", attachment(fresh))
        body = {"metadata": {"finalizers": ["a.b/c"]}, "status": {"attached": True}}

        through_status = api.patch(f"{path}/status", body, MERGE).body
        through_object = api.patch(path, {**body, "status": {"attached": False}}, MERGE).body
        removed(api, path)

        assert through_status["status"]["attached"] is True
        assert "finalizers" not in through_status["metadata"]
        assert through_object["metadata"]["finalizers"] == ["a.b/c"]
        assert through_object["status"]["attached"] is True
