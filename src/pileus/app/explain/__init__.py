"""`pileus explain`: the state of one object, its pending changes, messages and next steps."""
