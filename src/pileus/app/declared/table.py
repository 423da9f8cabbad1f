"""All flags together, in the order of help."""

from pileus.app.declared import access, controllers, generic, inspection, pileus, process, serving
from pileus.settings.flags import Table

TABLE = Table((
    inspection.DEBUGGING,
    inspection.MIGRATION,
    generic.GROUP,
    controllers.CLOUD_NODE,
    controllers.CLOUD_NODE_LIFECYCLE,
    controllers.SERVICE_LB,
    controllers.NODE_IPAM,
    serving.WEBHOOK_GROUP,
    serving.WEBHOOK_SERVING,
    serving.SECURE_SERVING,
    access.AUTHENTICATION,
    access.AUTHORIZATION,
    process.MISC,
    pileus.PILEUS,
    pileus.NODE_LIFECYCLE,
    pileus.SERVICES,
    pileus.SSH_KEYS,
    pileus.ROUTES,
    process.GLOBAL,
))
