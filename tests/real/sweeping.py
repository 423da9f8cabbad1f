"""Take away what tests leave on a control plane, so that none depends on which ran before it."""

from tests.contract.api.http import Answer, Api

DEFAULT = "/api/v1/namespaces/default"
SYSTEM = "/api/v1/namespaces/kube-system"
COLLECTIONS = (
    "/api/v1/nodes",
    f"{DEFAULT}/events",
    f"{SYSTEM}/events",
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
)


def sweep(api: Api) -> None:
    """Delete all nodes, Services, events and managers' leases; nothing is waited for."""
    for path in COLLECTIONS:
        _done(api.delete(path))
    for service in _done(api.get(f"{DEFAULT}/services")).body["items"]:
        if service["metadata"]["name"] != "kubernetes":
            _delete(api, f"{DEFAULT}/services/{service['metadata']['name']}")


def _delete(api: Api, path: str) -> None:
    """Whoever put a finalizer there is no longer around to take it off."""
    _done(api.patch(path, {"metadata": {"finalizers": None}}))
    _done(api.delete(path))


def _done(answer: Answer) -> Answer:
    assert answer.status in {200, 404}, answer  # 404: a finalizer was all that kept it
    return answer
