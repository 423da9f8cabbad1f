"""A plan as programs read it; docs/reference/plan.md says what each field means."""

import msgspec

from pileus.app.plan import Plan
from pileus.cloud.balancer import Effect
from pileus.kube.model.core_v1 import ObjectReference
from pileus.objects.preview import Planned, Trouble

VERSION = 1
"""Raised when a field changes its meaning or goes; not when one is added."""


def as_json(plan: Plan) -> str:
    document = {
        "version": VERSION,
        "summary": {
            **{effect.name.lower(): plan.count(effect) for effect in Effect},
            "waiting": plan.waiting,
            "whole": plan.is_whole,
        },
        "changes": [change_document(name, change) for name, change in plan.changes],
        "troubles": [trouble_document(name, trouble) for name, trouble in plan.troubles],
        "failures": [{"controller": name, "message": it} for name, it in plan.failures.items()],
        "skipped": [{"controller": name, "why": why} for name, why in plan.skipped.items()],
    }
    return written(document)


def written(document: object) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def change_document(controller: str, change: Planned) -> dict[str, object]:
    return {
        "controller": controller,
        "object": reference(change.about),
        "place": change.place.value,
        "action": change.effect.name.lower(),
        "summary": change.summary,
        "details": list(change.details),
        "waitsFor": change.waits_for,
    }


def trouble_document(controller: str, trouble: Trouble) -> dict[str, object]:
    return {
        "controller": controller,
        "object": reference(trouble.about),
        "reason": trouble.reason,
        "message": trouble.message,
    }


def reference(about: ObjectReference) -> dict[str, str]:
    return {
        "kind": about.kind,
        "namespace": about.namespace,
        "name": about.name,
        "uid": about.uid,
    }
