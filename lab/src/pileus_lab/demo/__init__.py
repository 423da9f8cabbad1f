"""A cluster, a cloud and the manager on this machine, and a story told with them.

story.py    what is done, what must hold then, and how long it may take
stage.py    API server ▸ cloud ▸ kubelets ▸ manager, as nested blocks
plans.py    what the manager has in mind, told before it is done
board.py    what happened so far, and what there is to see
view.py     how that looks: a screen of a given size; `screen.py` and `plain.py` show it
show.py     from the command's options to the exit code
"""
