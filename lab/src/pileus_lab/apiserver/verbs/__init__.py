"""What can be done with objects: create, update, patch, delete, list, watch."""
