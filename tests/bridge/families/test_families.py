"""Unmodified transformers models of 15 families train and generate on the chip alone.

Each runs with the host fallback forbidden, and must give torch's CPU results: the losses of
training steps within 1e-5 in float32, the same greedy tokens.
"""

from __future__ import annotations

import pytest
import torch

transformers = pytest.importorskip("transformers")

from chipset_conformance.families import FAMILIES, generate, model_of, prompt, train  # noqa: E402


@pytest.mark.parametrize("family", FAMILIES)
def test_training(chip, no_fallback, family):
    expected = train(model_of(family), prompt())
    found = train(model_of(family).to(chip), prompt().to(chip))
    assert found == pytest.approx(expected, abs=1e-5)
    assert found[-1] < found[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_generation(chip, no_fallback, family):
    expected = generate(model_of(family), prompt(), do_sample=False)
    found = generate(model_of(family).to(chip), prompt().to(chip), do_sample=False)
    assert found == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_sampling(chip, no_fallback, family):
    model = model_of(family).to(chip)
    tokens = []
    for _ in range(2):
        torch.manual_seed(3)
        tokens.append(generate(model, prompt().to(chip), do_sample=True, top_k=20, top_p=0.9))
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize("family", FAMILIES)
def test_bf16_autocast(chip, no_fallback, family):
    """As near to f32 as torch's CPU under autocast is, twice: both round, in another order; and
    a rounding of the loss itself, below which the two cannot be told apart."""
    exact = train(model_of(family), prompt())
    rounded = train(model_of(family), prompt(), autocast=True)
    found = train(model_of(family).to(chip), prompt().to(chip), autocast=True)
    gap = max(abs(r - e) for r, e in zip(rounded, exact, strict=True))
    assert found == pytest.approx(exact, abs=2 * gap + max(exact) * torch.finfo(torch.bfloat16).eps)
