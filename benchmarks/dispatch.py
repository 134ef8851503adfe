"""What one small operator costs on a chip: the same as ``chipset bench dispatch``.

Bar: 1.15 times the cost on PyTorch's own CPU for add, mul and mm.
"""

import sys

from chipset.cli import main

if __name__ == "__main__":
    main(["bench", "dispatch", *sys.argv[1:]])
