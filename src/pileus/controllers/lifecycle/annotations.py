"""The annotations of a Node that the manager itself reads. Pure."""

from enum import StrEnum

from pileus.cloud.options import CORE_NAMESPACE, TEXT, Option, Options, one_of
from pileus.kube.model.core_v1 import Node

DELETION = f"{CORE_NAMESPACE}deletion"
OUT_OF_SERVICE_MARK = f"{CORE_NAMESPACE}out-of-service"


class Word(StrEnum):
    """A user's decision about a node whose machine is gone."""

    APPROVED = "approved"
    NEVER = "never"


ANNOTATIONS = Options(
    Option(
        DELETION,
        one_of(*Word),
        "",
        "Whether the Node may be deleted when its machine is gone: `approved` deletes it although "
        "a guard keeps it, `never` keeps it in any case.",
    ),
    Option(
        OUT_OF_SERVICE_MARK,
        TEXT,
        "",
        "Written by Pileus: the out-of-service taint on this Node is its own. The same taint set "
        "manually stays.",
    ),
    namespace=CORE_NAMESPACE,
)


def invalid_annotations(node: Node) -> str:
    """Return what is wrong with the annotations of ours and the command that fixes it, or ""."""
    given = node.metadata.annotations or {}
    problems = ANNOTATIONS.problems(given)
    if not problems:
        return ""
    fixes = " ".join(ANNOTATIONS.corrections(given))
    return (
        f"{'; '.join(problems)}. Fix: kubectl annotate node {node.metadata.name} --overwrite "
        f"{fixes}"
    )


def word_of(node: Node) -> str:
    return (node.metadata.annotations or {}).get(DELETION, "")
