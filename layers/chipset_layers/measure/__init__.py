"""Measurements that put a device beside PyTorch's own CPU, both sides in one run."""
