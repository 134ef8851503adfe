"""Level 5, training over several chips, and state that moves from one chip to another.

What goes through PyTorch's distributed package needs a backend of it that calls the collectives of
the interface. While the bridge has none, those cases count as not run, and say why: the level is
not reached by what was not judged.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from chipset.registry import find_plugins
from chipset_conformance.case import OPTIONAL, Case, CaseFailure, NotRun, Unsupported, cases
from chipset_conformance.context import Context
from chipset_conformance.ranks import Rank, passing_gang

if TYPE_CHECKING:  # the cases of collectives start many processes, and torch starts slowly
    import torch

GROUP = "model"
LONG_S = 300.0
RATE = 1e-3
VOCABULARY, WIDTH = 61, 48
LOSS_BOUND = 1e-5  # float32: sums of another order
SCHEMES = {
    "data-parallel": "DistributedDataParallel gives the gradients of one rank with all the data",
    "fully-sharded": "FSDP2 gives the losses of one rank with all the parameters",
    "tensor-parallel": "column- and row-wise linear layers give the losses of one rank",
    "pipeline": "stages on different ranks give the losses of one rank",
    "checkpoint-reshard": "a state saved by 2 ranks is bit-equal when 4 ranks resume it",
}


@cases(level=5)
def scheme_cases() -> Iterator[Case]:
    for name, promise in SCHEMES.items():
        functions = ("all_reduce", "all_gather", "reduce_scatter")
        run = partial(check_scheme, promise=promise)
        yield Case(f"distributed/{name}", functions, run, group=GROUP, timeout_s=LONG_S)


@cases(level=5)
def checkpoint_cases() -> Iterator[Case]:
    for other in ("same-chip", "other-chip"):
        run = partial(check_checkpoint, other=other)
        tags = frozenset({OPTIONAL})
        yield Case(f"checkpoint/one-rank/{other}", (), run, tags, group=GROUP, timeout_s=LONG_S)


def check_scheme(ctx: Context, promise: str) -> None:
    """Not judged: there is nothing yet that brings the interface's collectives to torch."""
    device = ctx.device.torch.type
    raise NotRun(
        f"{promise}: torch.distributed has no backend for device type '{device}' that calls the "
        "interface's collectives, so that this cannot be judged yet"
    )


# ---- a checkpoint on one rank --------------------------------------------------------------------


def check_checkpoint(ctx: Context, other: str) -> None:
    """What one process saves, a second one on this or another chip resumes, bit by bit."""
    here = str(ctx.device)
    there = here if other == "same-chip" else _another(ctx.device.name)
    with passing_gang(ctx, 1) as first, passing_gang(ctx, 1, device=there) as second:
        saved, digest = first.run(train_and_save)[0]
        resumed, losses, end = second.run(resume, saved)[0]
        _, own_losses, own_end = first.run(resume, saved)[0]
    wrong = sorted(name for name in digest if resumed.get(name) != digest[name])
    if wrong or set(digest) != set(resumed):
        raise CaseFailure(f"saved on {here}, resumed on {there}: {wrong[:5]} of the state differ")
    if other == "same-chip" and end != own_end:
        raise CaseFailure(f"two processes on {here} resume one checkpoint and end in two states")
    worst = max(abs(a - b) for a, b in zip(losses, own_losses, strict=True))
    bound = 0.0 if other == "same-chip" else LOSS_BOUND
    ctx.check(worst <= bound, f"losses after resuming: {losses} on {there}, {own_losses} on {here}")


def _another(plugin: str) -> str:
    """Another plugin that can be launched."""
    for name, found in sorted(find_plugins().items()):
        if name != plugin and found.description is not None:
            return name
    raise Unsupported(f"no plugin but '{plugin}' is installed")


def train_and_save(rank: Rank) -> tuple[bytes, dict[str, bytes]]:
    """Step: two steps of AdamW; the checkpoint and the bits of its state."""
    import torch

    model, optimizer = _fresh(rank)
    _steps(rank, model, optimizer, 2)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    return file.getvalue(), _state_bits(_on_host(model, optimizer))


def resume(rank: Rank, saved: bytes) -> tuple[dict[str, bytes], list[float], dict[str, bytes]]:
    """Step: the bits of the state as resumed, losses of two more steps, the bits at the end."""
    import torch

    model, optimizer = _fresh(rank)
    state = torch.load(io.BytesIO(saved), map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    resumed = _state_bits(_on_host(model, optimizer))
    losses = _steps(rank, model, optimizer, 2)
    return resumed, losses, _state_bits(_on_host(model, optimizer))


def _fresh(rank: Rank) -> tuple[Any, torch.optim.Optimizer]:
    """A small language model of plain torch; importing a larger one would take longer."""
    import torch
    from torch import nn

    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Embedding(VOCABULARY, WIDTH),
        nn.LayerNorm(WIDTH),
        nn.Linear(WIDTH, 4 * WIDTH),
        nn.GELU(),
        nn.Linear(4 * WIDTH, WIDTH),
        nn.Linear(WIDTH, VOCABULARY),
    ).to(rank.device.torch)
    return model, torch.optim.AdamW(model.parameters(), lr=RATE)


def _steps(rank: Rank, model: Any, optimizer: torch.optim.Optimizer, count: int) -> list[float]:
    import torch
    from torch.nn.functional import cross_entropy

    ids = torch.arange(2 * 33).remainder(VOCABULARY).reshape(2, 33).to(rank.device.torch)
    losses = []
    for _ in range(count):
        loss = cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def _on_host(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The state as it is in this moment, copied to the host."""
    import torch

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().to("cpu", copy=True)
        if isinstance(value, dict):
            return {key: copied(item) for key, item in value.items()}
        return [copied(item) for item in value] if isinstance(value, list) else value

    return {"model": copied(dict(model.state_dict())), "optimizer": copied(optimizer.state_dict())}


def _state_bits(state: dict[str, Any], prefix: str = "") -> dict[str, bytes]:
    """Every tensor of a state by its path, as bytes."""
    import torch

    found: dict[str, bytes] = {}
    for key, value in state.items():
        name = f"{prefix}{key}"
        if isinstance(value, torch.Tensor):
            found[name] = value.reshape(-1).view(torch.uint8).numpy().tobytes()
        elif isinstance(value, dict):
            found |= _state_bits(value, f"{name}.")
    return found
