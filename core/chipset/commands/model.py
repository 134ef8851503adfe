"""``chipset model fetch|list``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from chipset.commands.options import Json
from chipset.commands.report import reporting
from chipset.fetch.cache import find_damage
from chipset.fetch.catalogue import MODELS
from chipset.fetch.models import STEPS, fetch_model, model_place

app = typer.Typer(help="Models by name.", no_args_is_help=True)


@app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(help="A name of 'chipset model list'.")],
    json: Json = False,
) -> None:
    """Download, verify, convert and cache a model."""
    with reporting(json) as out:
        place = model_place(name)
        if name in MODELS and place.exists() and (damage := find_damage(place)) is not None:
            out.note(f"the cached model '{name}' in '{place}' is damaged ({damage}); replacing it")
        with out.steps(STEPS) as step:
            folder, made = fetch_model(name, step)
        out.result({"name": name, "path": str(folder), "fetched": made})
        if not json:
            out.note(f"{folder}" + ("" if made else " (already there, checksums verified)"))


@app.command("list")
def list_models(json: Json = False) -> None:
    """List the models of the catalogue."""
    with reporting(json) as out:
        rows = [
            {
                "name": entry.name,
                "parameters": entry.parameters,
                "licence": entry.licence,
                "origin": entry.origin,
                "package": asdict(entry.package),
                "cached": model_place(entry.name).exists(),
            }
            for entry in MODELS.values()
        ]
        out.result(rows)
        if json:
            return
        table = Table("name", "parameters", "licence", "origin", "package", "cached")
        for entry, row in zip(MODELS.values(), rows, strict=True):
            package = f"{entry.package.name}=={entry.package.version}"
            cached = "yes" if row["cached"] else "no"
            table.add_row(
                entry.name, entry.parameters, entry.licence, entry.origin, package, cached
            )
        out.console.print(table)
