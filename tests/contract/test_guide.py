"""What the guide for providers shows does work."""

import asyncio
import re
from pathlib import Path
from typing import Any

from pileus.cloud.connection import connected
from pileus.cloud.interface import ProviderConfig
from pileus.cloud.model import Absent, NodeName, NodeRef

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "write-a-provider.md"


async def test_the_smallest_provider_of_the_guide_works():
    text = await asyncio.to_thread(GUIDE.read_text)
    (source,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    module: dict[str, Any] = {"__name__": "acme_cloud"}
    exec(compile(source, str(GUIDE), "exec"), module)
    nodes = [NodeRef(name=NodeName("node-1")), NodeRef(name=NodeName("node-2"))]

    async with connected("acme", module["connect"], ProviderConfig()) as cloud:
        assert cloud.instances
        found = await cloud.instances.find(nodes, fresh=True)

    assert found[nodes[0].name].provider_id == "acme://i-17"  # type: ignore[union-attr]
    assert isinstance(found[nodes[1].name], Absent)
