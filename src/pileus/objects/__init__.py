"""What all controllers share about objects of the cluster: reading, writing, events, previews."""
