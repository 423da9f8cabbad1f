"""The reference page of annotations is generated, and the manager reads no undeclared one."""

import re
from pathlib import Path

from tools import annotations_reference

from pileus.controllers.lifecycle import annotations as node
from pileus.controllers.service import annotations as service

SOURCE = Path(__file__).parents[2] / "src" / "pileus"
NO_ANNOTATIONS = {"pileus.dev/instance-gone", "pileus.dev/managed-by"}
"""A taint and a label."""
PROVIDERS = SOURCE / "providers"
"""Their tags on objects in the cloud are on their own pages."""


def test_the_page_in_the_repository_is_what_the_declarations_say():
    shown = annotations_reference.PAGE.read_text(encoding="utf-8")

    assert shown == annotations_reference.page(), "run `make docs`"


def test_every_annotation_of_ours_that_the_code_names_is_declared():
    named = {
        name
        for path in SOURCE.rglob("*.py")
        if PROVIDERS not in path.parents
        for name in re.findall(
            r"(?<![\w./])pileus\.dev/[a-z][a-z-]*[a-z]", path.read_text(encoding="utf-8")
        )
    }
    declared = set(re.findall(r"`(pileus\.dev/[a-z-]+)`", annotations_reference.page()))

    assert "pileus.dev/ensured" in named
    assert named - NO_ANNOTATIONS <= declared


def test_everything_declared_is_in_our_namespace_so_that_misspelt_names_are_found():
    for options in (service.ANNOTATIONS, node.ANNOTATIONS):
        assert options.problems({"pileus.dev/no-such-annotation": "x"})
