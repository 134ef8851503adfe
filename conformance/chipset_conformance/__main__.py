"""``python -m chipset_conformance schema`` prints the JSON schema of a certificate;
``python -m chipset_conformance cases [LEVEL]`` lists the cases.
"""

from __future__ import annotations

import json
import sys

from chipset_conformance.case import LEVELS, load
from chipset_conformance.command import level_of
from chipset_conformance.results import schema

_USAGE = 2


def main(arguments: list[str]) -> int:
    if arguments == ["schema"]:
        print(json.dumps(schema(), indent=1))
        return 0
    if arguments[:1] == ["cases"]:
        wanted = [level_of(text) for text in arguments[1:]] or list(LEVELS)
        for case in load(wanted):
            tags = " ".join(sorted(case.tags))
            print(f"{case.level}\t{case.id}\t{','.join(case.functions)}\t{case.rule or ''}\t{tags}")
        return 0
    print(__doc__.strip(), file=sys.stderr)
    return _USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
