"""``chipset chat``: a conversation in the terminal, or one streamed answer."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from chipset.commands.generate import MaxNewTokens, Temperature, TopK, TopP, make_engine
from chipset.commands.options import (
    DEFAULT_DEVICE,
    DEFAULT_MODEL,
    DeviceName,
    Dtype,
    Json,
    Model,
    Seed,
    ran_on,
    select_device,
)
from chipset.commands.report import Reporter, reporting


def chat(
    device: DeviceName = DEFAULT_DEVICE,
    model: Model = DEFAULT_MODEL,
    prompt: Annotated[
        str | None, typer.Option("--prompt", help="Ask this, stream the answer, and end.")
    ] = None,
    system: Annotated[str | None, typer.Option("--system", help="The system message.")] = None,
    max_new_tokens: MaxNewTokens = 256,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    seed: Seed = 0,
    dtype: Dtype = "bf16",
    json: Json = False,
) -> None:
    """Talk to a model; the answer appears as it is made. End with Ctrl-D or an empty line."""
    with reporting(json) as out:
        from chipset_layers.inference.sequence import SamplingParams

        params = SamplingParams(max_new_tokens, temperature, top_p, top_k, seed)
        chip = select_device(device)
        engine = make_engine(chip, model, dtype)
        messages = [] if system is None else [{"role": "system", "content": system}]
        questions = [prompt] if prompt is not None else _questions(out)
        for question in questions:
            messages.append({"role": "user", "content": question})
            answer = stream_answer(engine, messages, params, out)
            messages.append({"role": "assistant", "content": answer})
        out.result(
            {"messages": messages, "captured": engine.runner.uses_graphs}
            | engine.timing.to_dict()
            | ran_on(chip)
        )


def stream_answer(engine: Any, messages: list[dict[str, str]], params: Any, out: Reporter) -> str:
    """Write the answer to ``messages`` piece by piece and return it."""
    from chipset_layers.inference.engine import stream_text

    pieces = []
    for piece in stream_text(engine.tokenizer, engine.stream(engine.encode_chat(messages), params)):
        out.write(piece)
        pieces.append(piece)
    out.write("\n")
    return "".join(pieces)


def _questions(out: Reporter) -> Any:
    while True:
        out.write("> " if sys.stdin.isatty() else "")
        line = sys.stdin.readline().strip()
        if not line:
            return
        yield line
