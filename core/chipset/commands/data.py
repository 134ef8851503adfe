"""``chipset data fetch|list``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from chipset.commands.options import Json
from chipset.commands.report import reporting
from chipset.fetch.cache import find_damage
from chipset.fetch.catalogue import DATA
from chipset.fetch.datasets import data_place, fetch_data

app = typer.Typer(help="Data sets by name.", no_args_is_help=True)


@app.command("fetch")
def fetch(
    names: Annotated[list[str], typer.Argument(help="Names of 'chipset data list', or 'all'.")],
    json: Json = False,
) -> None:
    """Download, verify and cache data sets."""
    with reporting(json) as out:
        wanted = list(DATA) if names == ["all"] else names
        rows = []
        for name in wanted:
            place = data_place(name)
            if name in DATA and place.exists() and (damage := find_damage(place)) is not None:
                out.note(f"the cached data set '{name}' is damaged ({damage}); replacing it")
            with out.console.status(f"fetching {name} …"):
                file, made = fetch_data(name)
            rows.append({"name": name, "path": str(file), "fetched": made})
            if not json:
                out.note(f"{file}" + ("" if made else " (already there, checksums verified)"))
        out.result(rows)


@app.command("list")
def list_data(json: Json = False) -> None:
    """List the data sets of the catalogue with licence and origin."""
    with reporting(json) as out:
        rows = [
            {
                "name": entry.name,
                "kind": entry.kind,
                "rows": entry.rows,
                "licence": entry.licence,
                "origin": entry.origin,
                "package": asdict(entry.package),
                "cached": data_place(entry.name).exists(),
            }
            for entry in DATA.values()
        ]
        out.result(rows)
        if json:
            return
        table = Table("name", "kind", "rows", "licence", "origin", "cached")
        for row in rows:
            cells = [str(row[column]) for column in ("name", "kind", "rows", "licence", "origin")]
            table.add_row(*cells, "yes" if row["cached"] else "no")
        out.console.print(table)
