"""What all users of volumes share: the CSI driver, the volume controller and FlexVolume.

- `parameters`: the parameters of a StorageClass and the secrets that go with it;
- `operations`: changes of volumes in the cloud that wait until they are done;
- `busy`: one operation at a time for each volume;
- `sidecars`: the Leases of CSI sidecars;
- `devices`, `mounts`: the volume on a node.
"""
