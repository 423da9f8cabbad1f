"""What all controllers say, read and remember of the cluster's objects."""
