"""Weight compression: int8 per output channel, stored in the compressed-tensors format."""
