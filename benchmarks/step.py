"""One fine-tuning step beside PyTorch's own CPU: the same as ``chipset bench step``."""

import sys

from chipset.cli import main

if __name__ == "__main__":
    main(["bench", "step", *sys.argv[1:]])
