"""The ``chipset`` command. Each subcommand is a file in ``chipset.commands``.

Nothing here, and no ``--help``, imports torch: the commands import what they need when they run.
"""

from __future__ import annotations

import json
import sys

import typer

from chipset.commands import (
    bench,
    certify,
    chat,
    compress,
    data,
    demo,
    devices,
    generate,
    model,
    new_plugin,
    reports,
    train,
)

WRONG_CALL = 2  # the exit status of a wrong option or argument

app = typer.Typer(
    help="Train, compress and run language models on any AI chip, by name.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("devices")(devices.devices)
app.add_typer(model.app, name="model")
app.add_typer(data.app, name="data")
app.add_typer(train.app, name="train")
app.command("compress")(compress.compress)
app.command("generate")(generate.generate)
app.command("chat")(chat.chat)
app.add_typer(bench.app, name="bench")
app.command("certify")(certify.certify)
app.command("demo")(demo.demo)
app.command("new-plugin")(new_plugin.new_plugin)
app.add_typer(reports.app, name="report")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; 0 only on success, 2 for a wrong call, 130 for Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        app(arguments, prog_name="chipset")
    except SystemExit as request:
        if request.code == WRONG_CALL and "--json" in arguments:
            # The command never ran, so it is said here; the details are on standard error.
            print(json.dumps({"error": "wrong call: " + " ".join(["chipset", *arguments])}))
        raise


if __name__ == "__main__":
    main()
