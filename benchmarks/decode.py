"""Greedy decode at batch 1 beside transformers: the same as ``chipset bench decode``."""

import sys

from chipset.cli import main

if __name__ == "__main__":
    main(["bench", "decode", *sys.argv[1:]])
