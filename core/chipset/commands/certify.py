"""``chipset certify DEVICE``: the conformance suite, level by level, and a certificate.

The suite is a package of its own (``chipset_conformance``); without it this command says so.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from chipset.commands.options import Json
from chipset.commands.report import reporting
from chipset.errors import ChipsetError

Device = Annotated[
    str | None, typer.Argument(metavar="DEVICE", help="NAME[:INDEX]; 'chipset devices' lists them.")
]
Level = Annotated[
    str | None,
    typer.Option(
        "--level",
        help="0 to 5, endures or performs. Default: 4, the highest in reach; of a self-test: all.",
    ),
]
Only = Annotated[
    str | None, typer.Option("--only", help="A group, a function, or a glob over case ids.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where a run in --out ended.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Processes that run cases.")]
Seed = Annotated[int, typer.Option("--seed", help="Of everything random.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="Folder to write to. Default: certify-DEVICE.")
]
Declarations = Annotated[
    Path | None,
    typer.Option("--declarations", help="What the backend declares; see its conformance.toml."),
]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0.1, help="Seconds until a case counts as hung, for every case."),
]
Soak = Annotated[
    float | None,
    typer.Option("--soak", min=1, help="Seconds of the soak of level endures. Default: a few."),
]
Verify = Annotated[
    Path | None,
    typer.Option("--verify", help="Check a certificate: its hash, and a random sample again."),
]
SelfTest = Annotated[
    bool, typer.Option("--self-test", help="Judge the suite: run chips with one fault each.")
]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Of the good chip in a self-test.")]
Write = Annotated[
    Path | None, typer.Option("--write", help="Where a self-test writes its page of mutants.")
]


def certify(
    device: Device = None,
    level: Level = None,
    only: Only = None,
    resume: Resume = False,
    jobs: Jobs = 2,
    seed: Seed = 0,
    out: Out = None,
    declarations: Declarations = None,
    timeout: Timeout = None,
    soak: Soak = None,
    verify: Verify = None,
    self_test: SelfTest = False,
    seeds: Seeds = 1,
    write: Write = None,
    json: Json = False,
) -> None:
    """Judge a chip: exit status 0 only if the level asked is reached."""
    with reporting(json) as report:
        if (device is not None) + (verify is not None) + self_test != 1:
            raise ChipsetError("give a DEVICE to certify, or --verify FILE, or --self-test")
        try:
            from chipset_conformance import command
        except ImportError as error:
            raise ChipsetError(
                f"the conformance suite cannot be loaded ({error}); "
                "run 'pip install chipset[conformance]'"
            ) from None
        if soak is not None:  # inherited by the processes that run the cases
            os.environ["CHIPSET_CONFORMANCE_SOAK_S"] = str(soak)
        if self_test:
            outcome = command.run_self_test(
                report.console, level, only or "", range(seed, seed + seeds), jobs, write
            )
            report.result(outcome.model_dump(mode="json", exclude={"verdicts"}))
            good = not outcome.missed and not outcome.false_alarms
        elif verify is not None:
            result = command.run_verification(report.console, verify, declarations)
            report.result(
                {
                    "hash_matches": result.hash_matches,
                    "libraries": result.libraries,
                    "sampled": len(result.sampled),
                    "differences": result.differences,
                }
            )
            good = result.good
        else:
            document = command.run(
                report.console,
                str(device),
                level,
                only,
                resume,
                jobs,
                seed,
                out,
                declarations,
                timeout,
            )
            report.result(document)
            good = document["reached"]
        if not good:
            raise typer.Exit(1)
