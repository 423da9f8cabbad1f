"""`pileus plan`: what the manager would change now, in cluster and cloud. Changes nothing.

Exit codes: 0 nothing would change · 2 something would · 1 the plan is not whole, or an error.
"""

from collections.abc import Sequence

from pileus.app.flags import Group
from pileus.app.planning import Plan, Planner, looking
from pileus.cli.existing import check_exists
from pileus.cli.looking import FAILED, OUTPUT, Asked, Manual, Runs, look, scope_of
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
    def work(asked: Asked, run: Runs) -> int:
        scope = scope_of(program, asked.words)
        plan = run(_plan(asked, scope))
        text = as_json(plan) if asked.as_json else as_text(plan, scope, Style.of(terminal))
        terminal.out.write(text)
        return exit_code(plan)

    return look(program, MANUAL, arguments, terminal, work)


async def _plan(asked: Asked, scope: Scope) -> Plan:
    async with looking(asked.config, asked.world) as post:
        await check_exists(post, scope)
        return await Planner(post).plan(scope)


def exit_code(plan: Plan) -> int:
    if not plan.is_whole:
        return FAILED
    return CHANGES if plan.changes else 0
