"""Between a manager and its surroundings: what can be lost, late, doubled or wrong."""
