"""The explanation of an object of a scene, as data and as text."""

from pileus.app.explain.explain import explain
from pileus.app.explain.explanation import Explanation
from pileus.cli.cluster_command import check_exists
from pileus.cli.explain import as_text
from pileus.cli.terminal import Style
from pileus.objects.preview import Scope
from pileus.testing.virtual_time import LoopClock
from tests.unit.app.scene import Scene


async def explained(stage: Scene, scope: Scope, *flags: str) -> Explanation:
    """Explain the object; nothing is written for it, neither to the cluster nor to the cloud."""
    before = stage.cloud.state
    stage.kube.requests.clear()
    async with stage.looked_at(*flags) as context:
        found = await check_exists(context, scope)
        assert found
        explanation = await explain(context, found, scope)
    assert stage.writes() == []
    assert stage.cloud.state is before
    return explanation


def text(explanation: Explanation) -> str:
    return as_text(explanation, LoopClock().now(), Style())
