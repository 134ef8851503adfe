"""The inference engine: equal to transformers, whatever shares its steps."""

from __future__ import annotations

import pytest
import torch

from chipset_layers.errors import LayerError
from chipset_layers.inference import model_runner
from chipset_layers.inference.block_manager import BlockManager
from chipset_layers.inference.engine import Engine, EngineConfig, stream_text
from chipset_layers.inference.fuse import fuse
from chipset_layers.inference.merge import merge_projections
from chipset_layers.inference.sampling import sample
from chipset_layers.inference.sequence import SamplingParams, Sequence
from chipset_layers.models import load_model

HOST = torch.device("cpu")
PROMPTS = [[5, 6, 7], [40, 41, 42, 43, 44, 45, 46, 47, 48], [9], list(range(60, 95))]


def make_engine(model, **changes):
    settings = {"dtype": torch.float32, "cache_tokens": 512, "block_size": 4} | changes
    return Engine(EngineConfig(str(model), HOST, **settings))


def reference(model, prompt, count):
    loaded = load_model(str(model), HOST, torch.float32)
    loaded.generation_config.eos_token_id = None
    inputs = torch.tensor([prompt])
    out = loaded.generate(
        inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=count, do_sample=False
    )
    return out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("which", ["tiny_model", "untied_model"])
@pytest.mark.parametrize("fused", [True, False])
def test_greedy_tokens_equal_those_of_transformers(which, fused, request):
    model = request.getfixturevalue(which)
    engine = make_engine(model, fused=fused)
    params = SamplingParams(max_new_tokens=20, ignore_eos=True)
    together = engine.generate(PROMPTS, params)
    for prompt, sequence in zip(PROMPTS, together, strict=True):
        assert sequence.generated == reference(model, prompt, 20)
        assert sequence.finish_reason == "length"


def test_a_full_cache_preempts_and_changes_no_token(tiny_model):
    params = SamplingParams(max_new_tokens=24, ignore_eos=True)
    roomy = make_engine(tiny_model).generate(PROMPTS, params)
    engine = make_engine(tiny_model, cache_tokens=64)
    preempted = []
    inner = engine.scheduler._preempt
    engine.scheduler._preempt = lambda s: (preempted.append(s.index), inner(s))
    tight = engine.generate(PROMPTS, params)
    assert preempted, "the cache was meant to be too small"
    assert [s.generated for s in tight] == [s.generated for s in roomy]
    assert engine.blocks.free_blocks == engine.blocks.num_blocks


def test_captured_steps_change_no_token(tiny_model, monkeypatch):
    """With a stand-in for graphs that replays by calling, as a device with graphs would."""
    captures = []

    def capture(device, work):
        work()
        work()
        captures.append(work)
        return work

    params = SamplingParams(max_new_tokens=16, ignore_eos=True)
    plain = make_engine(tiny_model).generate(PROMPTS, params)
    monkeypatch.setattr(model_runner, "graphs_offered", lambda device: True)
    monkeypatch.setattr(model_runner, "capture", capture)
    engine = make_engine(tiny_model)
    captured = engine.generate(PROMPTS, params)
    assert [s.generated for s in captured] == [s.generated for s in plain]
    assert len(captures) == 1  # one batch size, one capture
    sampled = SamplingParams(max_new_tokens=16, temperature=0.9, seed=3, ignore_eos=True)
    again = engine.generate(PROMPTS[:2], sampled)
    monkeypatch.undo()
    fresh = make_engine(tiny_model)
    fresh._added = len(PROMPTS)  # sequences draw with seed + index
    assert [s.generated for s in again] == [
        s.generated for s in fresh.generate(PROMPTS[:2], sampled)
    ]


def test_the_end_token_stops_and_is_not_shown(tiny_model):
    engine = make_engine(tiny_model)
    free = engine.generate([PROMPTS[0]], SamplingParams(max_new_tokens=12, ignore_eos=True))[0]
    engine.stop_ids = {free.generated[5]}
    first = free.generated.index(free.generated[5])
    sequence = engine.generate([PROMPTS[0]], SamplingParams(max_new_tokens=12))[0]
    assert sequence.finish_reason == "stop"
    assert sequence.generated == free.generated[: first + 1]
    streamed = list(engine.stream(PROMPTS[0], SamplingParams(max_new_tokens=12)))
    assert streamed == free.generated[:first]


def test_too_much_is_refused_with_numbers(tiny_model):
    engine = make_engine(tiny_model, cache_tokens=32)
    with pytest.raises(LayerError, match=r"30 tokens and 8 new ones .* at most 32"):
        engine.add(list(range(30)), SamplingParams(max_new_tokens=8))
    with pytest.raises(LayerError, match="prompt is empty"):
        engine.add([], SamplingParams())


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
    ],
)
def test_bad_sampling_settings(settings, text):
    with pytest.raises(LayerError, match=text):
        SamplingParams(**settings)


def draws(params, count=4000):
    logits = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()
    generator = torch.Generator().manual_seed(0)
    tokens = torch.tensor([sample(logits, params, generator) for _ in range(count)])
    return torch.bincount(tokens, minlength=4) / count


def test_sampling_follows_the_probabilities():
    exact = torch.tensor([0.1, 0.4, 0.2, 0.3])
    assert (draws(SamplingParams(temperature=1.0)) - exact).abs().max() < 0.03
    squared = exact.square() / exact.square().sum()
    assert (draws(SamplingParams(temperature=0.5)) - squared).abs().max() < 0.03


def test_top_k_and_top_p_cut_the_tail():
    kept = draws(SamplingParams(temperature=1.0, top_k=2))
    assert kept[[0, 2]].sum() == 0 and abs(kept[1] - 4 / 7) < 0.03
    kept = draws(SamplingParams(temperature=1.0, top_p=0.75))  # 0.4 + 0.3 < 0.75, so three stay
    assert kept[0] == 0 and kept[2] > 0
    assert draws(SamplingParams(temperature=1.0, top_p=0.01), 50)[1] == 1


def test_a_seed_repeats_and_another_differs(tiny_model):
    def run(seed):
        params = SamplingParams(max_new_tokens=16, temperature=1.0, seed=seed, ignore_eos=True)
        return make_engine(tiny_model).generate([PROMPTS[0]], params)[0].generated

    assert run(1) == run(1) != run(2)


def test_blocks_are_taken_all_or_nothing():
    blocks = BlockManager(num_blocks=3, block_size=4)
    first, second = (Sequence(i, [1], SamplingParams()) for i in range(2))
    assert blocks.grow(first, 8) and len(first.blocks) == 2
    assert not blocks.grow(second, 5) and second.blocks == [] and blocks.free_blocks == 1
    assert blocks.grow(first, 8) and blocks.free_blocks == 1
    blocks.release(first)
    assert blocks.free_blocks == 3 and blocks.grow(second, 12)


def test_streamed_text_never_shows_half_a_character(tokenizer):
    text = "naïve – 漢字 🙂 end"
    pieces = list(stream_text(tokenizer, iter(tokenizer(text)["input_ids"])))
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)


def test_fusing_is_exact_and_stays_with_the_instance(tiny_model):
    plain = load_model(str(tiny_model), HOST, torch.bfloat16)
    fused = load_model(str(tiny_model), HOST, torch.bfloat16)
    assert fuse(fused).to_dict() == {
        "rms_norm": 7,
        "swiglu": 3,
        "rotary": 3,
        "projections": 0,
    }
    ids = torch.arange(24)[None]
    with torch.no_grad():
        assert torch.equal(plain(ids).logits, fused(ids).logits)
    assert "forward" not in vars(plain.model.norm)


def test_what_is_not_equivalent_is_left_alone():
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
    )
    counts = fuse(Gemma3ForCausalLM(config).eval())
    assert counts.rms_norm == 0 and counts.swiglu == 0  # 1 + weight; gelu


def test_merged_projections_give_the_same_and_notice_misuse(tiny_model):
    plain = load_model(str(tiny_model), HOST, torch.float32)
    merged = load_model(str(tiny_model), HOST, torch.float32)
    assert merge_projections(merged) == 6  # q, k, v and gate, up in each of three layers
    ids = torch.arange(24)[None]
    with torch.no_grad():
        assert torch.allclose(plain(ids).logits, merged(ids).logits, rtol=1e-5, atol=1e-5)
    attention = merged.model.layers[0].self_attn
    attention.q_proj(torch.randn(1, 2, 64))
    with pytest.raises(LayerError, match="out of order"):
        attention.v_proj(torch.randn(1, 2, 64))
