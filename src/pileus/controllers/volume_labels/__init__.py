"""The PersistentVolume label controller."""
