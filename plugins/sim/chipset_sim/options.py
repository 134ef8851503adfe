"""Launch options from ``CHIPSET_SIM``: a list of key=value and TOML files."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHIPS = Path(__file__).with_name("chips")


def launch_options(text: str | None = None) -> dict[str, str]:
    """The options as the library reads them.

    Args:
        text: ``"devices=4,chip=h100"``; an item without ``=`` that ends in ``.toml`` is a file
            with such options, and what follows it overrides it. By default the environment
            variable ``CHIPSET_SIM``. ``chip`` is a name of :func:`chips` or a file.

    Raises:
        ValueError: an item is no key=value, or a file cannot be read; the text names it.
    """
    given = os.environ.get("CHIPSET_SIM", "") if text is None else text
    options = _from_list(given)
    chip = options.pop("chip", None)
    if chip is not None:
        options = {**chip_options(chip), **options}
    return options


def chips() -> list[str]:
    """Names of the chips that come with the simulator."""
    return sorted(path.stem for path in CHIPS.glob("*.toml"))


def chip_options(chip: str) -> dict[str, str]:
    """The description of a chip, as options ``chip.*``; and its memory.

    Raises:
        ValueError: there is no such chip or file.
    """
    path = Path(chip) if chip.endswith(".toml") else CHIPS / f"{chip}.toml"
    if not path.exists():
        raise ValueError(f"CHIPSET_SIM: no chip '{chip}'; there are {', '.join(chips())}")
    table = _read(path)
    model = {f"chip.{key}": str(value) for key, value in table["model"].items()}
    return {"chip.name": str(table["name"]), "memory": str(table["memory"]), **model}


def _from_list(text: str) -> dict[str, str]:
    options = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = item.partition("=")
        if not equals and item.endswith(".toml"):
            options.update(_from_file(Path(item)))
            continue
        if not equals or not key.strip():
            raise ValueError(f"CHIPSET_SIM: '{item}' is not key=value")
        options[key.strip()] = value.strip()
    return options


def _from_file(path: Path) -> dict[str, str]:
    table = _read(path)
    model = table.pop("model", {})
    options = {key: _text(value) for key, value in table.items()}
    options.update({f"chip.{key}": _text(value) for key, value in model.items()})
    return options


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"CHIPSET_SIM: cannot read {path}: {error}") from None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, list):
        return ";".join(str(item) for item in value)
    if isinstance(value, Mapping):
        raise ValueError(f"CHIPSET_SIM: {value} is a table; only [model] may be one")
    return str(value)
