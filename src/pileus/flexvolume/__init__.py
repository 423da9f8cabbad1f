"""The FlexVolume driver: one process per call of kubelet or kube-controller-manager."""
