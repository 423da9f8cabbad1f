"""Typed resources with the fields that we need; unknown ones are skipped, and never sent back."""
