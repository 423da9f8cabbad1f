"""Kubernetes Events: what a user reads under `kubectl describe`."""

from typing import Protocol

from pileus.kube.model.core_v1 import ObjectReference


class Recorder(Protocol):
    def record(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        """Tell users of `about` what happened; `kind` is Normal or Warning.

        Never waits and never fails; the event is written later, if at all.
        """
        ...
