"""`pileus plan`: what the manager would change now, in cluster and cloud. Changes nothing.

Exit codes: 0 nothing would change · 2 something would · 1 the plan is not whole, or an error.
"""

from collections.abc import Awaitable, Sequence

from pileus.app.flags import Group
from pileus.app.planning import Plan, Planner, looking
from pileus.cli.existing import check_exists
from pileus.cli.looking import FAILED, OUTPUT, Asked, Manual, look, scope_of
from pileus.cli.plan_json import as_json
from pileus.cli.plan_text import as_text
from pileus.cli.style import Style
from pileus.cli.terminal import Terminal
from pileus.objects.planned import Scope

CHANGES = 2
MANUAL = Manual(
    "[node NAME | service NAMESPACE/NAME]",
    "Print what the manager would change now, in cluster and cloud, and change nothing.\n\n"
    "Exit codes: 0 nothing would change, 2 something would, 1 the plan is not whole.",
    Group("Plan", (OUTPUT,), ours=True),
)


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    def work(asked: Asked) -> Awaitable[int]:
        return _plan(asked, scope_of(program, asked.words), terminal)

    return look(program, MANUAL, arguments, terminal, work)


async def _plan(asked: Asked, scope: Scope, terminal: Terminal) -> int:
    async with looking(asked.config, asked.world) as post:
        await check_exists(post, scope)
        plan = await Planner(post).plan(scope)
    terminal.out.write(as_json(plan) if asked.as_json else as_text(plan, scope, Style.of(terminal)))
    return exit_code(plan)


def exit_code(plan: Plan) -> int:
    if not plan.is_whole:
        return FAILED
    return CHANGES if plan.changes else 0
