"""One declaration per resource: names, defaults, validation, columns."""
