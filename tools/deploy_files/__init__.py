"""Writes what is generated under `deploy`, from the code of `pileus manifests`."""
