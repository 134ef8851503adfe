"""``chipset data fetch|list``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from chipset.commands.options import Json
from chipset.commands.report import Reporter, reporting
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
        with out.steps(len(wanted)) as step:
            for name in wanted:
                step(name)
                rows.append(_fetch_one(name, out))
        out.result(rows)


def _fetch_one(name: str, out: Reporter) -> dict[str, Any]:
    place = data_place(name)
    if name in DATA and place.exists() and (damage := find_damage(place)) is not None:
        out.note(f"the cached data set '{name}' is damaged ({damage}); replacing it")
    file, made = fetch_data(name)
    if not out.json:
        out.note(f"{file}" + ("" if made else " (already there, checksums verified)"))
    return {"name": name, "path": str(file), "fetched": made}


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
