"""An embedded Kubernetes API server that behaves like the real one, for the resources we need.

It knows nothing of controllers and nothing of the rest of Pileus. From the inside out:

schema/      which fields each kind has (tables of facts), and how JSON becomes such an object
resources/   one declaration per resource: names, defaults, validation, columns
store.py     objects by key, one version counter, recent changes for watches
verbs/       create, update, patch, delete, list, watch
api.py       one request in, one response out; no sockets
server.py    the same over HTTPS
"""
