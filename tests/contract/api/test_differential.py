"""The same random requests to both servers: the same answers, and the same watch streams."""

import os
import re
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.contract.api.conftest import BINARIES, embedded
from tests.contract.api.generated import Step, steps
from tests.contract.api.http import Answer, Api

GROUPS = {"leases": "/apis/coordination.k8s.io/v1"}
LENGTH = 150
pytestmark = [
    pytest.mark.real_cluster,
    pytest.mark.xdist_group("api-both"),
    pytest.mark.skipif(not os.environ.get(BINARIES), reason=f"{BINARIES} is not set"),
    pytest.mark.skipif(
        not find_spec("pileus_lab.cli.apiserver"), reason="there is only one server"
    ),
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Api]]:
    binaries, folder = Path(os.environ[BINARIES]), tmp_path_factory.mktemp("both")
    (folder / "embedded").mkdir()
    with ControlPlane(binaries, folder / "real") as cluster:
        for ours in embedded(folder / "embedded"):
            yield Api.of_kubeconfig(cluster.admin), ours


class Player:
    """Plays a script on one server, and tells what came back without what must differ."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._versions: dict[tuple[str, str], list[str]] = {}
        made = api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        assert made.status == 201, made
        self._start = {
            plural: api.get(self._path(plural, "")).body["metadata"]["resourceVersion"]
            for plural in ("configmaps", "services", "leases")
        }

    def play(self, step: Step) -> tuple[int, Any]:
        path = self._path(step.plural, self._named(step.plural, step.name))
        path += f"/{step.subresource}" if step.subresource else ""
        answer = self._api.send(
            step.method,
            path,
            self._filled(step),
            content_type=step.content_type,
            **self._query(step),
        )
        self._remember(step, answer)
        return answer.status, self._normal(answer.body)

    def watched(self, plural: str) -> list[tuple[str, Any]]:
        path = self._path(plural, "")
        with self._api.watch(path, resourceVersion=self._start[plural], timeoutSeconds=1) as events:
            return [(event["type"], self._normal(event["object"])) for event in events]

    def end(self) -> None:
        for plural in ("nodes", "configmaps", "services", "leases"):
            for name in ("alpha", "beta", "gamma"):
                path = self._path(plural, self._named(plural, name))
                self._api.patch(path, {"metadata": {"finalizers": None}})
                self._api.delete(path)
        self._api.delete(f"/api/v1/namespaces/{self._namespace}")

    def _path(self, plural: str, name: str) -> str:
        root = GROUPS.get(plural, "/api/v1")
        scope = "" if plural == "nodes" else f"/namespaces/{self._namespace}"
        return f"{root}{scope}/{plural}" + (f"/{name}" if name else "")

    def _named(self, plural: str, name: str) -> str:
        return f"{self._namespace}-{name}" if plural == "nodes" and name else name

    def _query(self, step: Step) -> dict[str, Any]:
        if step.plural == "nodes" and step.method == "GET" and not step.name:
            return {"fieldSelector": f"metadata.name={self._namespace}-alpha", **step.query}
        return step.query

    def _filled(self, step: Step) -> Any:
        if not isinstance(step.body, dict):
            return step.body
        body = dict(step.body)
        meta = dict(body.get("metadata", {}))
        name = step.name or meta.get("name", "")
        if "name" in meta:
            meta["name"] = self._named(step.plural, name)
        if "resourceVersion" in meta:
            meta["resourceVersion"] = self._version(step, name)
        if meta:
            body["metadata"] = meta
        if "preconditions" in body:
            body["preconditions"] = {"resourceVersion": self._version(step, name)}
        return body

    def _version(self, step: Step, name: str) -> str:
        known = self._versions.get((step.plural, name), ["1"])
        return known[-2] if step.stale and len(known) > 1 else known[-1]

    def _remember(self, step: Step, answer: Answer) -> None:
        if not isinstance(answer.body, dict) or answer.body.get("kind") in {"Status", None}:
            return
        meta = answer.body["metadata"]
        if "name" in meta:
            name = meta["name"].removeprefix(f"{self._namespace}-")
            known = self._versions.setdefault((step.plural, name), [])
            if not known or known[-1] != meta["resourceVersion"]:
                known.append(meta["resourceVersion"])

    def _normal(self, body: Any) -> Any:
        match body:
            case dict():
                return {
                    key: self._normal(value)
                    for key, value in sorted(body.items())
                    if key not in DIFFERENT
                }
            case list():
                return [self._normal(item) for item in body]
            case str():
                return UNIQUE.sub("#", body.replace(self._namespace, "ns"))
            case _:
                return body


DIFFERENT = {
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "managedFields",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "healthCheckNodePort",
    "timeAdded",
}
"""What a server chooses by itself, or by its clock."""
UNIQUE = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|(?<=\D)\d{2,}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(6))
def test_both_servers_answer_alike(both: tuple[Api, Api], seed: int) -> None:
    namespace = f"diff-{uuid.uuid4().hex[:8]}"
    real, ours = (Player(api, namespace) for api in both)
    try:
        for number, step in enumerate(steps(seed, LENGTH)):
            expected = real.play(step)
            assert ours.play(step) == expected, f"seed {seed}, step {number}: {step}"
        for plural in ("configmaps", "services", "leases"):
            assert ours.watched(plural) == real.watched(plural)
    finally:
        real.end()
        ours.end()
