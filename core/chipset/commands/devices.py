"""``chipset devices``: every plugin, and why one is not available."""

from __future__ import annotations

from rich.table import Table

from chipset.commands.options import Json
from chipset.commands.report import reporting

FIELDS = ("name", "available", "reason", "count", "torch_device", "emulated", "version")


def devices(json: Json = False) -> None:
    """List the chips that this installation knows."""
    with reporting(json) as out:
        import chipset

        rows = [_row(entry) for entry in chipset.devices()]
        out.result(rows)
        if json:
            return
        table = Table(*FIELDS)
        for row in rows:
            table.add_row(*(_cell(row[field]) for field in FIELDS))
        out.console.print(table)


def _row(entry: object) -> dict[str, object]:
    fields = entry if isinstance(entry, dict) else vars(entry)
    return {field: fields.get(field) for field in FIELDS}


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
