"""Operations on objects: create, update, patch, delete, list, watch."""
