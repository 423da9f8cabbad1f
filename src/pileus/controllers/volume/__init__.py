"""Claims get volumes of the cloud, which are attached, grown and deleted with them."""
