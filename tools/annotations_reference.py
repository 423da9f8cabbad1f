"""Write docs/reference/annotations.md from the declarations of the manager's own annotations."""

from pathlib import Path

from tools.reference_page import write

from pileus.controllers.lifecycle import annotations as node
from pileus.controllers.service import annotations as service

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "annotations.md"
TEXT = """# Annotations

The annotations under `pileus.dev/` on Services and Nodes. `make docs` generates this page.
A provider documents its own annotations; the local cloud's are [here](local-cloud.md).

Names and values are checked. An unknown name or value under `pileus.dev/` may be a misspelt
request for protection, so it protects: nothing is done for such a Service, and such a Node is
not deleted. A Warning event on the object names the mistake, the nearest valid name or value, and
the command that fixes it.

## On a Service

{service}
See [who owns a load balancer](services.md#who-owns-a-load-balancer) for what each mode does.

## On a Node

{node}
See [deletion of nodes](node-deletion.md).
"""


def page() -> str:
    return TEXT.format(service=service.ANNOTATIONS.reference(), node=node.ANNOTATIONS.reference())


if __name__ == "__main__":
    write(PAGE, page())
