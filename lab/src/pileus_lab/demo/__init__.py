"""A cluster, a cloud and the manager on this machine, and a scenario performed with them.

scenario.py     what is done, what must hold then, and how long it may take
environment.py  API server ▸ cloud ▸ kubelets ▸ manager, as nested blocks
manager.py      the manager, and its plans, shown before they are performed
state.py        what happened so far, and what is shown
view.py         a full screen, or plain lines
run.py          from the command's options to the exit code
"""
