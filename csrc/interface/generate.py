"""Generates everything that is derived from the interface table.

    python csrc/interface/generate.py            write the header, the docs page, the Python view
    python csrc/interface/generate.py --check    fail if a file differs or the ABI broke
    python csrc/interface/generate.py --freeze   write the ABI snapshot of the present version

A released version's snapshot (abi-MAJOR.MINOR.json) is never rewritten: raise `minor` in
types.toml, append, and freeze a new one.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import python_view
import table as tables
from header import abi_check, function_list, header, pointer_fields
from markdown import page

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOTS = Path(__file__).resolve().parent

OUTPUTS: dict[str, Callable[[tables.Table], str]] = {
    "csrc/include/chipset/chipset.h": header,
    "csrc/include/chipset/abi_check.h": abi_check,
    "csrc/include/chipset/functions.inc": function_list,
    "csrc/include/chipset/pointers.inc": pointer_fields,
    "docs/interfaces.md": page,
    "core/chipset/_interface.py": python_view.module,
}


def snapshot_path(table: tables.Table) -> Path:
    return SNAPSHOTS / f"abi-{table.major}.{table.minor}.json"


def broken_promises(table: tables.Table) -> list[str]:
    """Differences from every committed snapshot of this major version that are not appends."""
    new = tables.snapshot(table)
    faults = []
    for path in sorted(SNAPSHOTS.glob(f"abi-{table.major}.*.json")):
        old = json.loads(path.read_text())
        faults += [f"{path.name}: {text}" for text in tables.incompatibilities(old, new)]
    return faults


def abi_faults(table: tables.Table) -> list[str]:
    """What must not be committed: broken promises, and a version that is not frozen as it is."""
    new = tables.snapshot(table)
    faults = broken_promises(table)
    current = snapshot_path(table)
    if not current.exists():
        faults.append(f"{current.name} is missing; run generate.py --freeze and commit it")
    elif json.loads(current.read_text()) != new:
        faults.append(f"{current.name} differs from the table; raise `minor` and freeze anew")
    return faults


def freeze(table: tables.Table) -> list[str]:
    """Writes the snapshot of a version that has none; the faults that forbid it otherwise."""
    path = snapshot_path(table)
    faults = abi_faults(table) if path.exists() else broken_promises(table)
    if not faults and not path.exists():
        path.write_text(json.dumps(tables.snapshot(table), indent=1) + "\n")
        print(f"froze {path.name}")
    return faults


def report(faults: list[str]) -> int:
    for text in faults:
        print(f"error: {text}", file=sys.stderr)
    return 1 if faults else 0


def write(table: tables.Table) -> None:
    for name, make in OUTPUTS.items():
        path = ROOT / name
        text = make(table)
        if path.exists() and path.read_text() == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"wrote {name}")


def check(table: tables.Table) -> list[str]:
    faults = abi_faults(table)
    for name, make in OUTPUTS.items():
        path = ROOT / name
        if not path.exists() or path.read_text() != make(table):
            faults.append(f"{name} is not what the table generates; run generate.py")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail on drift")
    parser.add_argument("--freeze", action="store_true", help="write the ABI snapshot")
    arguments = parser.parse_args()
    table = tables.load()
    if arguments.freeze and (status := report(freeze(table))):
        return status
    if arguments.check:
        return report(check(table))
    write(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
