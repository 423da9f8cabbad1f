"""Nodes behind the HTTP seam: list, watch, read and patch, for tests of the whole controller."""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from pileus.kube.patch import MergePatch, StrategicPatch
from pileus.kube.transport import Request
from pileus.testing.scripted import (
    Answer,
    Scripted,
    Silence,
    Stream,
    event,
    listing,
    refused,
    status,
)
from tests.unit.controllers.node.objects import Document, patched

ROOT = "/api/v1/nodes"
LAG = 0.5
"""Seconds by which the watch may be behind: passes often see an old state."""

OTHER_UID = status(422, "Invalid") | {
    "details": {"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]}
}


class ApiServer:
    """Answers requests for nodes; give its `respond` to a `ScriptedTransport`."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.version = 1
        self.documents: dict[str, Document] = {}
        self.patches: list[str] = []
        self.open = True
        """Whether lists are answered."""
        self.lag = LAG
        self.answer_takes = 0.01
        """Seconds between a patch's effect and its answer."""
        self.refuse: Callable[[Request], Scripted | None] = lambda request: None
        """What a patch is answered instead of being made; None: it is made."""
        self._log: list[tuple[str, Document]] = []
        for each in documents:
            self.put(each)

    def put(self, document: Document) -> Document:
        self.version += 1
        metadata: dict[str, object] = document["metadata"]  # type: ignore[assignment]
        stored = {**document, "metadata": {**metadata, "resourceVersion": str(self.version)}}
        name = str(metadata["name"])
        self._log.append(("MODIFIED" if name in self.documents else "ADDED", stored))
        self.documents[name] = stored
        return stored

    def remove(self, name: str) -> None:
        self.version += 1
        self._log.append(("DELETED", self.documents.pop(name)))

    def respond(self, request: Request) -> Scripted:
        name, _, subresource = request.path.removeprefix(ROOT).strip("/").partition("/")
        if name and name not in self.documents:
            return refused(404, "NotFound")
        match request.method:
            case "GET" if name:
                return Answer(200, self.documents[name])
            case "GET" if "watch" in request.query:
                return Stream(self._watch())
            case "GET":
                return self._list()
            case _:
                return self._patch(request, name, subresource)

    def _list(self) -> Scripted:
        if not self.open:
            return refused(503, "ServiceUnavailable")
        return Answer(200, listing(list(self.documents.values()), version=str(self.version)))

    def _watch(self) -> Iterator[object]:
        sent = len(self._log)
        while True:
            yield Silence(self.lag)
            new = self._log[sent:]
            sent += len(new)
            yield from (event(kind, document) for kind, document in new)

    def _patch(self, request: Request, name: str, subresource: str) -> Scripted:
        refusal = self.refuse(request)
        if refusal is not None:
            return refusal
        kinds = {kind.content_type: kind for kind in (MergePatch, StrategicPatch)}
        kind = kinds[request.headers["Content-Type"]]
        before = self.documents[name]
        after = patched(before, kind(msgspec.json.decode(request.body or b"")), subresource)
        if _meta(after, "uid") != _meta(before, "uid"):
            return Answer(422, OTHER_UID)
        if _meta(after, "resourceVersion") != _meta(before, "resourceVersion"):
            return refused(409, "Conflict", "the object has been modified")
        self.patches.append(f"{name}/{subresource}")
        return Answer(200, self.put(after), delay=self.answer_takes)


def _meta(document: Document, field: str) -> object:
    metadata: dict[str, object] = document["metadata"]  # type: ignore[assignment]
    return metadata[field]
