"""Learns: whole models train, compress and generate as they do on the reference.

The reference is torch's own CPU in the same process. Tiny models of 15 families need nothing but
``transformers``; the cases of SmolLM2-135M need the model in the cache
(``chipset model fetch smollm2-135m``) and fail without it.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy, log_softmax, logsigmoid

from chipset_conformance import families
from chipset_conformance.case import Case, CaseFailure, cases
from chipset_conformance.context import Context

GROUP = "model"
LONG_S = 600.0
SMOLLM = "smollm2-135m"
# float32: of a loss, after a few steps; the sums of a small model differ in their order only.
LOSS_BOUND = 1e-5
STEPS = 3
TEXT = (
    "Every chip computes the same sums in another order. A model that was trained on one of them "
    "must answer on all of them as it did there, or nobody can trust any of them."
)


@cases(level=4)
def family_cases() -> Iterator[Case]:
    for family in families.FAMILIES:
        for name, run in (
            ("training", check_training),
            ("greedy", check_greedy),
            ("sampling", check_sampling),
            ("bf16-autocast", check_autocast),
        ):
            case = f"learns/{family}/{name}"
            yield Case(case, (), partial(run, family=family), group=GROUP, timeout_s=LONG_S)


@cases(level=4)
def step_cases() -> Iterator[Case]:
    yield Case("learns/dpo-step", (), check_dpo, group=GROUP, timeout_s=LONG_S)


@cases(level=4)
def smollm_cases() -> Iterator[Case]:
    for name, run in (
        ("loss-and-gradients", check_smollm_gradients),
        ("sft-curve", check_smollm_curve),
        ("greedy", check_smollm_greedy),
        ("int8", partial(check_smollm_compressed, weights="int8", most_loss=0.01, most_bytes=0.3)),
        # Plain rounding to four bits costs this model 7 % of the loss; the table stays in float32.
        ("int4", partial(check_smollm_compressed, weights="int4", most_loss=0.1, most_bytes=0.33)),
        ("int4-layer", check_smollm_int4),
    ):
        yield Case(f"learns/{SMOLLM}/{name}", (), run, group=GROUP, timeout_s=LONG_S)


# ---- tiny models of 15 families ------------------------------------------------------------------


def counted(context: Context) -> None:
    """Keeps how often the host computed; a level-4 chip may fall back, but not in silence."""
    import chipset

    for name, entry in chipset.fallbacks().items():
        context.count(f"host {name}", int(entry["count"]))
    chipset.reset_fallbacks()


def near(context: Context, found: list[float], expected: list[float], bound: float) -> None:
    worst = max(abs(f - e) for f, e in zip(found, expected, strict=True))
    context.check(
        worst <= bound, f"losses {found} differ from {expected} by {worst:.3g}, bound {bound:.3g}"
    )


def check_training(context: Context, family: str) -> None:
    ids = families.prompt()
    expected = families.train(families.model_of(family), ids, STEPS)
    device = context.device.torch
    found = families.train(families.model_of(family).to(device), ids.to(device), STEPS)
    near(context, found, expected, LOSS_BOUND)
    context.check(found[-1] < found[0], f"the loss does not fall: {found}")
    counted(context)


def check_greedy(context: Context, family: str) -> None:
    ids = families.prompt()
    device = context.device.torch
    expected = families.generate(families.model_of(family), ids, do_sample=False)
    found = families.generate(families.model_of(family).to(device), ids.to(device), do_sample=False)
    context.check(found == expected, f"tokens {found}, the reference has {expected}")
    counted(context)


def check_sampling(context: Context, family: str) -> None:
    device = context.device.torch
    model, ids = families.model_of(family).to(device), families.prompt().to(device)
    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append(families.generate(model, ids, do_sample=True, top_k=20, top_p=0.9))
    context.check(draws[0] == draws[1], "one seed gives two samples")
    context.check(draws[0] != draws[2], "two seeds give one sample")
    counted(context)


def check_autocast(context: Context, family: str) -> None:
    """The chip's bf16 is as near to f32 as twice torch's own, and a rounding of the loss."""
    ids = families.prompt()
    device = context.device.torch
    exact = families.train(families.model_of(family), ids, STEPS)
    rounded = families.train(families.model_of(family), ids, STEPS, autocast=True)
    found = families.train(
        families.model_of(family).to(device), ids.to(device), STEPS, autocast=True
    )
    own = max(abs(r - e) for r, e in zip(rounded, exact, strict=True))
    near(context, found, exact, 2 * own + max(exact) * torch.finfo(torch.bfloat16).eps)
    counted(context)


# ---- preference optimisation ---------------------------------------------------------------------


def dpo_loss(policy: Any, reference: Any, chosen: torch.Tensor, rejected: torch.Tensor) -> Any:
    """The loss of Rafailov et al., arXiv:2305.18290, equation 7, with beta 0.1."""

    def score(model: Any, ids: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=ids).logits[:, :-1].float()
        chosen_logs = log_softmax(logits, -1).gather(-1, ids[:, 1:, None])
        return chosen_logs.sum((1, 2))

    with torch.no_grad():
        anchor = score(reference, chosen) - score(reference, rejected)
    margin = score(policy, chosen) - score(policy, rejected) - anchor
    return -logsigmoid(0.1 * margin).mean()


def dpo_steps(device: torch.device | str) -> list[float]:
    policy, reference = families.model_of("llama").to(device), families.model_of("llama").to(device)
    generator = torch.Generator().manual_seed(2)
    pair = [torch.randint(3, 128, (2, 12), generator=generator).to(device) for _ in range(2)]
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    losses = []
    for _ in range(STEPS):
        loss = dpo_loss(policy, reference, *pair)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.item()))
    return losses


def check_dpo(context: Context) -> None:
    found = dpo_steps(context.device.torch)
    near(context, found, dpo_steps("cpu"), LOSS_BOUND)
    context.check(found[-1] < found[0], f"the loss does not fall: {found}")
    counted(context)


# ---- SmolLM2-135M --------------------------------------------------------------------------------


def smollm_folder() -> Path:
    from chipset.fetch.models import model_place

    folder = model_place(SMOLLM)
    if not folder.exists():
        raise CaseFailure(
            f"{SMOLLM} is not in the cache: run 'chipset model fetch {SMOLLM}' and certify again"
        )
    return folder


def smollm(device: torch.device | str, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    from chipset_layers.models import load_model, load_tokenizer

    folder = str(smollm_folder())
    model = load_model(folder, torch.device(device), dtype)
    return model, load_tokenizer(folder)


def text_ids(tokenizer: Any) -> torch.Tensor:
    ids: torch.Tensor = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    return ids


def check_smollm_gradients(context: Context) -> None:
    norms, losses = [], []
    for device in ("cpu", context.device.torch):
        model, tokenizer = smollm(device)
        ids = text_ids(tokenizer).to(device)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        losses.append(float(loss.item()))
        norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).cpu())
        del model
    near(context, [losses[1]], [losses[0]], 10 * LOSS_BOUND)
    worst = float(((norms[1] - norms[0]).abs() / norms[0]).max())
    context.check(worst < 1e-3, f"a gradient's norm differs by {worst:.3g} of itself")
    counted(context)


def check_smollm_curve(context: Context) -> None:
    curves = []
    for device in ("cpu", context.device.torch):
        model, tokenizer = smollm(device)
        ids = text_ids(tokenizer).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        curve = []
        for _ in range(4):
            loss = cross_entropy(model(input_ids=ids).logits[0, :-1].float(), ids[0, 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            curve.append(float(loss.item()))
        curves.append(curve)
        del model, optimizer
    context.note(f"loss of each step: reference {curves[0]}, chip {curves[1]}")
    # Adam divides by the root of a tiny square at first, which makes roundings grow with the steps.
    near(context, curves[1], curves[0], 1e-3)
    context.check(curves[1][-1] < curves[1][0], f"the loss does not fall: {curves[1]}")
    counted(context)


def check_smollm_greedy(context: Context) -> None:
    tokens = []
    for device in ("cpu", context.device.torch):
        model, tokenizer = smollm(device)
        ids = text_ids(tokenizer).to(device)
        with torch.no_grad():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False
            )
        tokens.append(out[0, ids.shape[1] :].tolist())
        del model
    context.check(
        tokens[1] == tokens[0], f"greedy tokens {tokens[1]}, the reference has {tokens[0]}"
    )
    counted(context)


def check_smollm_compressed(
    context: Context, weights: str, most_loss: float, most_bytes: float
) -> None:
    """What ``chipset compress`` does: quantised and stored on the chip, loaded and scored on it.

    It costs at most ``most_loss`` of the loss, the file has at most ``most_bytes`` of the float32
    bytes, and means on the chip what it means to the reference.
    """
    from chipset_layers.compression.compress import CompressConfig, compress_model
    from chipset_layers.compression.perplexity import perplexity
    from chipset_layers.models import load_model, load_tokenizer

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / weights
        result = compress_model(
            CompressConfig(
                model=str(smollm_folder()),
                output=folder,
                device=context.device.torch,
                dtype=torch.float32,
                weights=weights,
                eval_text=TEXT,
            )
        )
        stored = load_model(str(folder), torch.device("cpu"), torch.float32)
        expected = perplexity(stored, load_tokenizer(str(folder)), TEXT).value
    if result.perplexity_before is None or result.perplexity_after is None:
        raise CaseFailure("the compressed model was not scored")
    before, after = math.log(result.perplexity_before), math.log(result.perplexity_after)
    context.note(
        f"loss {before:.5f} in float32, {after:.5f} with {weights} weights, reference "
        f"{math.log(expected):.5f}; the file has {result.ratio:.3f} of the float32 bytes"
    )
    context.check(
        abs(after - before) <= most_loss * before, f"{weights} moves the loss {before} to {after}"
    )
    context.check(
        result.ratio < most_bytes, f"the file has {result.ratio:.3f} of the float32 bytes"
    )
    near(context, [after], [math.log(expected)], 10 * LOSS_BOUND)
    counted(context)


def check_smollm_int4(context: Context) -> None:
    """A real layer in 4 bits, groups of 32: the chip's product is that of its own weights.

    Through the interface: ``chipset compress`` rounds with PyTorch, here the chip quantises.
    """
    import numpy as np

    from chipset._interface import Dtype

    context.need("quantize", "dequantize", "gemm_quantized")
    model, _ = smollm("cpu")
    weight = model.model.layers[0].mlp.down_proj.weight.detach().numpy()[:64]
    rows, columns = weight.shape
    chip, group = context.chip, 32
    x = context.rng.standard_normal((3, columns)).astype(np.float32)
    source, packed = chip.array(weight), chip.empty((rows, columns), Dtype.I4)
    scale = chip.empty((rows, columns // group))
    restored, product = chip.empty((rows, columns)), chip.empty((3, rows))
    chip.call("quantize", group_size=group, x=source, q=packed, scale=scale)
    chip.call("dequantize", group_size=group, x=restored, q=packed, scale=scale)
    chip.call(
        "gemm_quantized", group_size=group, x=chip.array(x), w=packed, w_scale=scale, d=product
    )
    back = restored.numpy().astype(np.float64)
    step = np.repeat(scale.numpy(), group, axis=1)
    context.check(
        bool((np.abs(back - weight) <= 0.5001 * step).all()), "rounded by over half a step"
    )
    exact = x.astype(np.float64) @ back.T
    bound = columns * np.finfo(np.float32).eps * (np.abs(x) @ np.abs(back).T) + 1e-30
    worst = float((np.abs(product.numpy() - exact) / bound).max())
    context.check(worst <= 1, f"the product is off by {worst:.3g} times the bound")
