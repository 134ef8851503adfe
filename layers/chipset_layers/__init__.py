"""Training, compression and inference for language models, on any ``torch.device``.

Nothing here names a chip: a layer gets a ``torch.device`` and calls PyTorch and the few
``torch.ops.chipset.*`` operators that :mod:`chipset_layers.ops` defines for every device.
"""
