"""Supervised fine-tuning, from top to bottom: :func:`train_sft`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from chipset_layers.errors import LayerError
from chipset_layers.files import prepare_output, whole_folder
from chipset_layers.models import load_model, load_tokenizer
from chipset_layers.training.batches import Batch, Batches
from chipset_layers.training.checkpoint import (
    checkpoints,
    load_state,
    restore_random_state,
    save_checkpoint,
    save_model,
)
from chipset_layers.training.conversations import (
    IGNORED,
    Example,
    encode_all,
    read_conversations,
)
from chipset_layers.training.curve import draw_loss_curve
from chipset_layers.training.not_finite import first_bad_gradient, first_bad_module

# name -> dtype of the weights, dtype of autocast (None: no autocast)
PRECISIONS: dict[str, tuple[torch.dtype, torch.dtype | None]] = {
    "bf16": (torch.bfloat16, None),
    "f32": (torch.float32, None),
    "bf16-autocast": (torch.float32, torch.bfloat16),
}
SCHEDULES = ("cosine", "linear", "constant")
METRICS_FILE = "metrics.jsonl"
CURVE_FILE = "loss.png"
FINAL_FOLDER = "final"


@dataclass(frozen=True)
class SftConfig:
    """All settings of a fine-tuning.

    ``steps`` counts optimizer steps of ``batch_size`` rows of at most ``max_length`` tokens;
    ``warmup`` is a fraction of them. ``save_every`` 0 writes no checkpoint. The last
    ``eval_examples`` of the data are not trained on; the loss on them is measured before and
    after.
    """

    model: str
    data: Path
    output: Path
    device: torch.device
    steps: int = 100
    batch_size: int = 1
    max_length: int = 1024
    learning_rate: float = 5e-5
    weight_decay: float = 0.0
    schedule: str = "cosine"
    warmup: float = 0.05
    clip_norm: float = 1.0
    precision: str = "bf16"
    packed: bool = True
    seed: int = 0
    save_every: int = 0
    eval_examples: int = 0
    resume: bool = False

    def check(self) -> None:
        """Raise :class:`LayerError` for a value that makes no sense."""
        _one_of("precision", self.precision, PRECISIONS)
        _one_of("schedule", self.schedule, SCHEDULES)
        for name in ("steps", "batch_size"):
            if getattr(self, name) < 1:
                raise LayerError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_length < 2:
            raise LayerError(f"max_length must be at least 2 tokens, not {self.max_length}")
        if not self.learning_rate > 0:
            raise LayerError(f"the learning rate must be positive, not {self.learning_rate}")

    def settings(self, examples_digest: str) -> dict[str, Any]:
        """What must be equal for a continuation to be exact."""
        named = asdict(self)
        kept = ("model", "data", "output", "device", "resume", "save_every")
        return {k: v for k, v in named.items() if k not in kept} | {"examples": examples_digest}


@dataclass(frozen=True)
class StepRecord:
    """One line of ``metrics.jsonl``; ``loss`` in nats per assistant token."""

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens: int
    seconds: float


@dataclass(frozen=True)
class SftResult:
    """What a training left behind.

    ``first_loss`` and ``last_loss`` are means of up to 10 steps, each of other rows;
    ``eval_loss_before`` and ``eval_loss_after`` are of the same held-out examples (None: not
    measured; before: also None after a continuation).
    """

    model: str | None
    checkpoint: str | None
    metrics: str
    loss_curve: str
    steps: int
    examples: int
    first_loss: float
    last_loss: float
    eval_loss_before: float | None
    eval_loss_after: float | None
    tokens: int
    seconds: float
    tokens_per_second: float
    interrupted: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def train_sft(
    config: SftConfig, on_step: Callable[[StepRecord], None] = lambda record: None
) -> SftResult:
    """Fine-tune, and write model, checkpoints, metrics and a loss curve into ``config.output``.

    The first Ctrl-C ends the training after the current step, with a checkpoint; a second one
    at once. Either way the last checkpoint is whole.

    Raises:
        LayerError: bad settings, data or output folder (before anything is trained), or a loss
            that is not finite (naming the step and the layer).
    """
    config.check()
    prepare_output(config.output)
    tokenizer = load_tokenizer(config.model)
    examples = encode_all(tokenizer, read_conversations(config.data), config.max_length)
    examples, held_out = _split(examples, config.eval_examples)
    settings = config.settings(_digest([example.ids for example in examples]))
    batches = Batches(
        examples,
        config.batch_size,
        config.max_length,
        tokenizer.pad_token_id,
        config.seed,
        config.packed,
    )

    torch.manual_seed(config.seed)
    last = _last_checkpoint(config)
    weights = PRECISIONS[config.precision][0]
    model = load_model(str(last or config.model), config.device, weights)
    if not all(parameter.is_floating_point() for parameter in model.parameters()):
        raise LayerError(f"model '{config.model}' has quantised weights; train the original")
    model.train()
    optimizer = _make_optimizer(model, config)
    done = 0
    if last is not None:
        state = load_state(last, settings)
        optimizer.load_state_dict(state["optimizer"])
        restore_random_state(config.device, state["random"])
        done = state["step"]

    eval_before = _eval_loss(model, held_out, config, tokenizer) if done == 0 else None
    records = _kept_records(config.output / METRICS_FILE, done)
    started_at = len(records)
    with _stop_requests() as stop, (config.output / METRICS_FILE).open("a") as log:
        while done < config.steps and not stop.is_set():
            record = _train_step(model, optimizer, batches.batch(done), config, done)
            done += 1
            records.append(record)
            log.write(json.dumps(asdict(record)) + "\n")
            log.flush()
            on_step(record)
            at_interval = config.save_every > 0 and done % config.save_every == 0
            if at_interval or (stop.is_set() and done < config.steps):
                last = save_checkpoint(config.output, done, model, tokenizer, optimizer, settings)

        finished = done >= config.steps
        eval_after = _eval_loss(model, held_out, config, tokenizer) if finished else None
        if finished:
            with whole_folder(config.output / FINAL_FOLDER) as folder:
                save_model(model, tokenizer, folder)
    losses = [record.loss for record in records]
    draw_loss_curve([r.step for r in records], losses, config.output / CURVE_FILE)
    ran = records[started_at:]
    tokens, seconds = sum(r.tokens for r in ran), sum(r.seconds for r in ran)
    return SftResult(
        model=str(config.output / FINAL_FOLDER) if finished else None,
        checkpoint=None if last is None else str(last),
        metrics=str(config.output / METRICS_FILE),
        loss_curve=str(config.output / CURVE_FILE),
        steps=done,
        examples=len(examples),
        first_loss=_mean(losses[: min(10, len(losses) // 2 or 1)]),
        last_loss=_mean(losses[-min(10, len(losses) // 2 or 1) :]),
        eval_loss_before=eval_before,
        eval_loss_after=eval_after,
        tokens=tokens,
        seconds=seconds,
        tokens_per_second=tokens / seconds if seconds else 0.0,
        interrupted=not finished,
    )


def sft_loss(model: Any, batch: Batch, device: torch.device) -> Tensor:
    """Mean cross-entropy over the batch's labels, f32; logits only where a label is."""
    logits = model(
        input_ids=batch.ids.to(device),
        position_ids=batch.positions.to(device),
        use_cache=False,
        logits_to_keep=batch.kept.to(device),
    ).logits
    targets = batch.targets.to(device)
    total = F.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total / batch.targets_count


def _split(examples: list[Example], held_out: int) -> tuple[list[Example], list[Example]]:
    if held_out >= len(examples):
        raise LayerError(
            f"{held_out} examples are to be held out and there are only {len(examples)}"
        )
    cut = len(examples) - held_out
    return examples[:cut], examples[cut:]


def _eval_loss(
    model: Any, examples: list[Example], config: SftConfig, tokenizer: Any
) -> float | None:
    """Mean loss per label over ``examples``, each in a row of its own, without gradients."""
    if not examples:
        return None
    rows = Batches(examples, 1, config.max_length, tokenizer.pad_token_id, 0, packed=False)
    total, count = 0.0, 0
    model.eval()
    with torch.no_grad(), _autocast(config):
        for number in range(len(examples)):
            batch = rows.batch(number)
            total += sft_loss(model, batch, config.device).item() * batch.targets_count
            count += batch.targets_count
    model.train()
    return total / count


def learning_rate(config: SftConfig, step: int) -> float:
    """The rate of step ``step`` (from 0): linear warm-up, then the schedule down to zero."""
    warm = max(1, round(config.steps * config.warmup))
    if step < warm:
        return config.learning_rate * (step + 1) / warm
    progress = (step - warm) / max(1, config.steps - warm)
    if config.schedule == "cosine":
        return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
    if config.schedule == "linear":
        return config.learning_rate * (1 - progress)
    return config.learning_rate


def _train_step(
    model: Any, optimizer: Any, batch: Batch, config: SftConfig, step: int
) -> StepRecord:
    started = time.perf_counter()
    rate = learning_rate(config, step)
    for group in optimizer.param_groups:
        group["lr"] = rate
    with _autocast(config):
        loss = sft_loss(model, batch, config.device)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
    # One wait for the device a step; the weights are not touched before both are known good.
    loss_value, norm_value = torch.stack([loss.detach(), norm.float()]).tolist()
    if not (math.isfinite(loss_value) and math.isfinite(norm_value)):
        _stop_not_finite(model, batch, config, step, loss_value, norm_value)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    seconds = time.perf_counter() - started
    return StepRecord(step + 1, loss_value, rate, norm_value, batch.tokens, round(seconds, 4))


def _stop_not_finite(
    model: Any, batch: Batch, config: SftConfig, step: int, loss: float, norm: float
) -> None:
    def again() -> None:
        with _autocast(config):
            sft_loss(model, batch, config.device)

    module = first_bad_module(model, again)
    if module is not None:
        where = f"the first module whose output is not finite is '{module}'"
    else:
        where = (
            "every module's output is finite; the gradient nearest to the loss that is not "
            f"belongs to '{first_bad_gradient(model)}'"
        )
    raise LayerError(
        f"step {step + 1}: the loss is {loss} and the gradient norm {norm}; {where}; "
        "lower --lr, or try --dtype f32; the last checkpoint is unharmed"
    )


def _autocast(config: SftConfig) -> contextlib.AbstractContextManager[Any]:
    dtype = PRECISIONS[config.precision][1]
    if dtype is None:
        return contextlib.nullcontext()
    return torch.autocast(config.device.type, dtype=dtype)


def _make_optimizer(model: Any, config: SftConfig) -> torch.optim.AdamW:
    settings: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    try:
        return torch.optim.AdamW(model.parameters(), fused=True, **settings)
    except RuntimeError:  # the device has no fused kernel
        return torch.optim.AdamW(model.parameters(), **settings)


def _last_checkpoint(config: SftConfig) -> Path | None:
    found = checkpoints(config.output)
    if found and not config.resume:
        raise LayerError(
            f"the output folder '{config.output}' holds '{found[-1].name}' of an earlier "
            "training; continue it with --resume, or choose another --output"
        )
    return found[-1] if found else None


def _kept_records(path: Path, done: int) -> list[StepRecord]:
    """The metrics of the first ``done`` steps; later ones, of steps that are run again, go."""
    if done == 0 or not path.exists():
        path.write_text("")
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [StepRecord(**line) for line in lines if line["step"] <= done]
    path.write_text("".join(json.dumps(asdict(record)) + "\n" for record in kept))
    return kept


@contextlib.contextmanager
def _stop_requests() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second one interrupts as usual."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def on_interrupt(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _one_of(name: str, value: str, known: Any) -> None:
    if value not in known:
        raise LayerError(f"unknown {name} '{value}'; choose one of {', '.join(known)}")
