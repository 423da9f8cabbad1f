"""`pileus plan`: what the manager would change now, in cluster and cloud. Changes nothing.

Exit codes: 0 nothing would change · 2 something would · 1 the plan is not whole, or an error.
"""

from collections.abc import Sequence

from pileus.app.plan import Plan, Planner, looking
from pileus.cli.existing import check_exists
from pileus.cli.looking import (
    CONTEXT,
    FAILED,
    NAMESPACE,
    OUTPUT,
    Asked,
    Manual,
    Runs,
    Takes,
    look,
)
from pileus.cli.plan_json import as_json
from pileus.cli.plan_text import as_text
from pileus.cli.style import Style
from pileus.cli.terminal import Terminal
from pileus.settings.flags import Group

CHANGES = 2
MANUAL = Manual(
    "Print what the manager would change in the cluster and the cloud. Changes nothing.\n\n"
    "Exit codes: 0 no changes, 2 changes, 1 the plan is incomplete or failed.",
    Group("Plan", (CONTEXT, NAMESPACE, OUTPUT), ours=True),
    Takes.PERHAPS_ONE,
)


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    def work(asked: Asked, run: Runs) -> int:
        plan = run(_plan(asked))
        text = as_json(plan) if asked.as_json else as_text(plan, asked.scope, Style.of(terminal))
        terminal.out.write(text)
        return exit_code(plan)

    return look(program, MANUAL, arguments, terminal, work)


async def _plan(asked: Asked) -> Plan:
    async with looking(asked.config, asked.world) as context:
        await check_exists(context, asked.scope)
        return await Planner(context).plan(asked.scope)


def exit_code(plan: Plan) -> int:
    if not plan.is_whole:
        return FAILED
    return CHANGES if plan.changes else 0
