"""Weight compression, int8 or int4 in groups, in the compressed-tensors format."""
