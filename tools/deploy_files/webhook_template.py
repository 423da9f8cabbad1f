"""The chart's objects for admission webhooks: a Service and the webhook configurations."""

from tools.deploy_files.conditions import ACTS, either, flag, guarded, serves
from tools.deploy_files.rbac_template import HEADER, NAMESPACE, replaced

from pileus.admission.names import WEBHOOKS, Effect
from pileus.app.settings import TABLE, build_config
from pileus.deployment.choice import Choice
from pileus.deployment.commented import documents
from pileus.deployment.webhooks import configuration, secret, service, webhook
from pileus.settings.sources import gather
from pileus.version import PROGRAM

PORT = 65001


def webhook_template() -> str:
    config = build_config(gather(TABLE, PROGRAM, ("--cloud-provider=local",), {}).values)
    choice = Choice(config=config, namespace=NAMESPACE)
    where = f"{{{{ {flag('webhook-secure-port', '10260')} }}}}"
    served = replaced(documents([service(choice, PORT)]), str(PORT), where)
    text = guarded(either(map(serves, WEBHOOKS)), f"---\n{served}")
    stored = f"---\n{documents([secret()])}"
    text += guarded('(include "pileus.webhooks.managed" .)', stored)
    for effect in Effect:
        hooks = [each for each in WEBHOOKS if each.effect is effect]
        head = documents([configuration(choice, effect, [])])
        head = replaced(head, "webhooks: []", "webhooks:")
        listed = "".join(
            guarded(serves(each), _item(documents([{"webhooks": [webhook(choice, each)]}])))
            for each in hooks
        )
        text += guarded(either(map(serves, hooks)), f"---\n{head}{listed}")
    return HEADER + guarded(ACTS, text).replace(NAMESPACE, "{{ .Release.Namespace }}")


def _item(text: str) -> str:
    _, item = text.split("\n", 1)
    return item
