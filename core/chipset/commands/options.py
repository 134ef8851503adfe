"""The options that several commands share, and the device that ``--device`` names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document; all else goes to standard error.")
]
DeviceName = Annotated[
    str,
    typer.Option(
        "--device",
        envvar="CHIPSET_DEVICE",
        metavar="NAME[:INDEX]",
        help="The chip to run on; 'chipset devices' lists them.",
    ),
]
Model = Annotated[
    str,
    typer.Option("--model", help="A catalogue name, a model folder, or a hub name owner/name."),
]
Data = Annotated[str, typer.Option("--data", help="A catalogue name or a .json or .jsonl file.")]
Output = Annotated[Path, typer.Option("--output", help="The folder to write to.")]
Dtype = Annotated[str, typer.Option("--dtype", help="Of weights and activations: bf16, f32, f16.")]
Seed = Annotated[int, typer.Option("--seed", help="Of everything random.")]

DEFAULT_DEVICE = "cpu"
DEFAULT_MODEL = "smollm2-135m"


def select_device(name: str) -> Any:
    """The ``chipset.Device`` called ``name``, with the counters of host fallbacks at zero."""
    import chipset

    device = chipset.select(name)
    _ = device.torch  # loads torch and the bridge; fails here, not in the middle of the work
    chipset.reset_fallbacks()
    return device


def ran_on(device: Any) -> dict[str, Any]:
    """What ran where: the part that every command's document has in common."""
    import chipset

    fallbacks = chipset.fallbacks()
    return {
        "device": f"{device.name}:{device.index}",
        "torch_device": str(device.torch),
        "fallbacks": fallbacks,
        "fallback_calls": sum(entry["count"] for entry in fallbacks.values()),
    }
