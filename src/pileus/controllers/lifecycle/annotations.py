"""The annotations of a Node that this controller reads and writes. Pure."""

from enum import StrEnum

from pileus.cloud.options import CORE_NAMESPACE, TEXT, Option, Options, one_of
from pileus.kube.model.core_v1 import Node

DELETION = f"{CORE_NAMESPACE}deletion"
OUT_OF_SERVICE_MARK = f"{CORE_NAMESPACE}out-of-service"


class DeletionDecision(StrEnum):
    """A user's decision about a node that has no machine."""

    APPROVED = "approved"
    NEVER = "never"


ANNOTATIONS = Options(
    Option(
        DELETION,
        one_of(*DeletionDecision),
        "",
        "Whether the Node may be deleted when its machine does not exist: `approved` deletes it "
        "even if a safeguard keeps it, `never` keeps it in any case.",
    ),
    Option(
        OUT_OF_SERVICE_MARK,
        TEXT,
        "",
        "Written by Pileus: it added the out-of-service taint to this Node. The same taint added "
        "manually is kept.",
    ),
    namespace=CORE_NAMESPACE,
)


def invalid_annotations(node: Node) -> str:
    """Returns what is invalid about our annotations, with the command that fixes it, or ""."""
    given = node.metadata.annotations or {}
    problems = ANNOTATIONS.problems(given)
    if not problems:
        return ""
    fixes = " ".join(ANNOTATIONS.corrections(given))
    return (
        f"{'; '.join(problems)}. Fix: kubectl annotate node {node.metadata.name} {fixes} "
        "--overwrite"
    )


def deletion_decision(node: Node) -> str:
    return (node.metadata.annotations or {}).get(DELETION, "")
