"""``chipset report html|diff|matrix``: pages made of certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from chipset.commands.options import Json
from chipset.commands.report import reporting
from chipset.errors import ChipsetError

app = typer.Typer(help="Pages made of certificates.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(metavar="FILE", help="A certificate.json.")]


@app.command("html")
def html(
    certificate: File,
    out: Annotated[Path | None, typer.Option(help="Default: beside the certificate.")] = None,
    json: Json = False,
) -> None:
    """One chip's report, in one file."""
    with reporting(json) as report:
        read = _suite()
        path = out or certificate.with_name("report.html")
        _write(path, read.html(read.certificate(certificate)))
        report.result({"report": str(path)})
        report.note(str(path))


@app.command("matrix")
def matrix(
    certificates: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Certificates.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("matrix.html"),
    json: Json = False,
) -> None:
    """One page that compares many chips."""
    with reporting(json) as report:
        read = _suite()
        _write(out, read.compare([read.certificate(path) for path in certificates]))
        report.result({"report": str(out)})
        report.note(str(out))


@app.command("diff")
def diff(
    before: File,
    after: Annotated[Path, typer.Argument(metavar="FILE", help="The later certificate.")],
    json: Json = False,
) -> None:
    """What changed between two certificates; exit status 1 if anything got worse."""
    with reporting(json) as report:
        read = _suite()
        result = read.difference(read.certificate(before), read.certificate(after))
        report.result(result.model_dump(mode="json"))
        for title in ("regressions", "fixes", "other"):
            for change in getattr(result, title):
                report.note(f"{title}: {change.id}: {change.before} -> {change.after}")
        for key, (was, now) in result.ulps.items():
            report.note(f"error grew: {key}: {was:.3g} -> {now:.3g} ULP")
        report.note(
            f"{len(result.regressions)} worse, {len(result.fixes)} better, {len(result.other)} "
            f"otherwise; {len(result.added)} cases added, {len(result.removed)} removed"
        )
        if result.regressions:
            raise typer.Exit(1)


def _suite() -> Any:
    """What the commands need of the conformance suite, a package of its own."""
    try:
        from chipset_conformance.report import reading
    except ImportError as error:
        raise ChipsetError(
            f"the conformance suite cannot be loaded ({error}); "
            "it comes in chipset's own wheel: reinstall chipset"
        ) from None
    return reading


def _write(path: Path, text: str) -> None:
    """Under a temporary name first, so that a page is whole or not there."""
    scratch = path.with_name(path.name + ".new")
    scratch.write_text(text)
    scratch.replace(path)
