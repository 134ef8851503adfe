"""The cases, a subject per file: ``l0_*`` Boots, ``l1_*`` Streams, ``l2_*`` Computes, and so on.

Levels 0 to 2 need no torch.
"""
