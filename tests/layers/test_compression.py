"""int8 and int4 weights: rounding, the stored format, loading, the whole of compress_model."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from chipset_layers.compression import storage
from chipset_layers.compression.compress import CompressConfig, compress_model
from chipset_layers.compression.modules import (
    GROUP_SIZE,
    Int4Linear,
    QuantEmbedding,
    QuantLinear,
    quantize_groups,
    quantize_rows,
)
from chipset_layers.compression.perplexity import held_out, perplexity
from chipset_layers.errors import LayerError
from chipset_layers.models import load_model, load_tokenizer
from chipset_layers.nibbles import dequantize_int4, pack_nibbles

HOST = torch.device("cpu")
TEXT = "the quick brown fox jumps over the lazy dog. " * 20


def test_rounding_is_to_the_nearest_step_and_cuts_only_what_pays():
    torch.manual_seed(0)
    weight = torch.randn(40, 33) * torch.logspace(-4, 4, 40)[:, None]
    qweight, scale = quantize_rows(weight)
    error = (weight - qweight.float() * scale[:, None]).abs()
    inside = qweight.abs() < 127
    assert (error <= scale[:, None] * 0.5001)[inside].all()
    plain = (weight.abs().amax(1) / 127).to(torch.bfloat16).float()[:, None]
    untouched = (weight / plain).round().clamp(-127, 127) * plain
    assert (error.square().sum(1) <= (weight - untouched).square().sum(1) * 1.0001).all()
    assert torch.equal(scale, scale.to(torch.bfloat16).float())
    assert qweight.min() >= -127


def test_an_outlier_is_cut_where_that_makes_the_rest_finer():
    row = torch.linspace(-0.5, 0.5, 40_000)
    row[7] = 0.56
    qweight, scale = quantize_rows(row[None])
    assert scale[0] < 0.56 / 127 * 0.96 and qweight[0, 7] == 127


def test_a_row_of_zeros_stays_zero():
    qweight, scale = quantize_rows(torch.zeros(2, 5))
    assert torch.equal(scale, torch.ones(2)) and not qweight.any()


def test_groups_are_rounded_to_the_nearest_of_their_fifteen_steps():
    torch.manual_seed(0)
    weight = torch.randn(6, 4 * GROUP_SIZE) * torch.logspace(-2, 2, 4).repeat_interleave(GROUP_SIZE)
    qweight, scale = quantize_groups(weight)
    assert scale.shape == (6, 4) and qweight.min() == -7 and qweight.max() == 7
    step = scale.repeat_interleave(GROUP_SIZE, 1)
    error = (weight - qweight.float() * step).abs()
    assert (error <= step * 0.5001)[qweight.abs() < 7].all()
    with pytest.raises(ValueError, match="48 columns are no multiple of the group size 32"):
        quantize_groups(torch.ones(2, 48))


@pytest.mark.parametrize("columns", [2, 8, 14, 64])
def test_four_bits_are_packed_as_compressed_tensors_packs_them(columns):
    values = torch.randint(-8, 8, (6, columns), dtype=torch.int8)
    packed = storage.pack_int4(values)
    assert torch.equal(storage.unpack_int4(packed, columns), pack_nibbles(values))
    theirs = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers")
    assert torch.equal(theirs.unpack_from_int32(packed, 4, torch.Size(values.shape)), values)
    if columns % 8 == 0:  # else they pad with another value, which nobody reads
        assert torch.equal(packed, theirs.pack_to_int32(values, 4))


@pytest.mark.parametrize("columns", [1, 4, 7, 64])
def test_packing_is_undone_and_is_the_format_of_compressed_tensors(columns):
    values = torch.randint(-128, 128, (6, columns), dtype=torch.int8)
    packed = storage.pack_int8(values)
    assert torch.equal(storage.unpack_int8(packed, columns), values)
    theirs = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers")
    assert torch.equal(packed, theirs.pack_to_int32(values, 8))


# Most of the file's bytes (int4 leaves the table, much of a tiny model, in f32), of the change of
# perplexity, and of the change of the logits.
@pytest.mark.parametrize(
    ("weights", "kind", "most"),
    [("int8", QuantLinear, (0.30, 0.02, 0.08)), ("int4", Int4Linear, (0.40, 0.3, 0.7))],
)
@pytest.mark.parametrize("which", ["tiny_model", "untied_model"])
def test_compressed_model_is_near_the_original(which, weights, kind, most, request, tmp_path):
    source = request.getfixturevalue(which)
    config = CompressConfig(
        str(source), tmp_path / "q", HOST, torch.float32, weights, eval_text=TEXT
    )
    result = compress_model(config)
    assert result.ratio < most[0]
    assert abs(result.perplexity_after / result.perplexity_before - 1) < most[1]
    assert result.bytes_after == (tmp_path / "q" / "model.safetensors").stat().st_size

    original = load_model(str(source), HOST, torch.float32)
    loaded = load_model(str(tmp_path / "q"), HOST, torch.float32)
    assert isinstance(loaded.get_input_embeddings(), QuantEmbedding) == (weights == "int8")
    linears = [m for m in original.modules() if isinstance(m, torch.nn.Linear)]
    held = [m for m in loaded.modules() if type(m) is kind]
    assert len(held) == len(linears) - (weights == "int4")  # whose output layer stays
    ids = torch.arange(20)[None]
    with torch.no_grad():
        want, got = original(ids).logits, loaded(ids).logits
    assert (want - got).norm() < most[2] * want.norm()


def test_tied_embeddings_are_stored_and_held_once(tiny_model, tmp_path):
    result = compress_model(CompressConfig(str(tiny_model), tmp_path / "q", HOST))
    names = load_file(tmp_path / "q" / "model.safetensors")
    assert not any(name.startswith("lm_head") for name in names)
    loaded = load_model(result.output, HOST, torch.float32)
    head, table = loaded.get_output_embeddings(), loaded.get_input_embeddings()
    assert head.qweight.data_ptr() == table.qweight.data_ptr()


@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize("which", ["tiny_model", "untied_model"])
def test_transformers_reads_the_stored_model(which, weights, request, tmp_path):
    pytest.importorskip("compressed_tensors")
    from transformers import AutoModelForCausalLM, CompressedTensorsConfig

    source = request.getfixturevalue(which)
    compress_model(CompressConfig(str(source), tmp_path / "q", HOST, weights=weights))
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path / "q",
        dtype=torch.float32,
        quantization_config=CompressedTensorsConfig(dequantize=True),
    )
    ours = load_model(str(tmp_path / "q"), HOST, torch.float32)
    held = (QuantLinear, QuantEmbedding)
    names = [name for name, module in ours.named_modules() if isinstance(module, held)]
    # 3 layers of 7; in int8 also the table and the output layer
    assert len(names) == 21 + 2 * (weights == "int8")
    for name in names:
        module = ours.get_submodule(name)
        if isinstance(module, Int4Linear):
            exact = dequantize_int4(module.qweight, module.scale)
        else:
            exact = module.qweight.float() * module.scale[:, None]
        # They multiply in the scale's dtype, bf16: half a unit in the last place.
        error = (theirs.get_submodule(name).weight.float() - exact).abs()
        assert (error <= exact.abs() * 2**-8).all(), name


def test_faults_are_named(tiny_model, tmp_path):
    with pytest.raises(LayerError, match="unknown weight scheme 'int3'"):
        compress_model(CompressConfig(str(tiny_model), tmp_path / "a", HOST, weights="int3"))
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(LayerError, match="cannot be written"):
        compress_model(CompressConfig(str(tiny_model), blocked / "q", HOST))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(LayerError, match="not a model folder"):
        compress_model(CompressConfig(str(tiny_model), tmp_path / "mine", HOST))
    for weights in storage.SCHEMES:
        compress_model(CompressConfig(str(tiny_model), tmp_path / "q", HOST, weights=weights))
        with pytest.raises(LayerError, match="already compressed"):
            compress_model(CompressConfig(str(tmp_path / "q"), tmp_path / "q2", HOST))


def test_a_width_that_is_no_multiple_of_the_group_is_refused_in_int4(narrow_model, tmp_path):
    config = CompressConfig(str(narrow_model), tmp_path / "q", HOST, weights="int4")
    with pytest.raises(LayerError, match="mlp.down_proj' has 80 inputs, no multiple of the 32"):
        compress_model(config)
    assert not (tmp_path / "q").exists()


def test_another_scheme_is_refused(tiny_model, tmp_path):
    compress_model(CompressConfig(str(tiny_model), tmp_path / "q", HOST))
    path = tmp_path / "q" / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] = 4
    path.write_text(json.dumps(config))
    with pytest.raises(LayerError, match="reads only"):
        load_model(str(tmp_path / "q"), HOST, torch.float32)


def test_perplexity_is_the_exponent_of_the_mean_loss(tiny_model):
    model, tokenizer = load_model(str(tiny_model), HOST, torch.float32), load_tokenizer(tiny_model)
    ids = torch.tensor(tokenizer(TEXT)["input_ids"][:48])[None]
    with torch.no_grad():
        exact = model(ids, labels=ids).loss.exp().item()
    found = perplexity(model, tokenizer, TEXT, most_tokens=48)
    assert found.tokens == 47 and found.value == pytest.approx(exact, rel=1e-5)


def test_a_loss_beyond_what_exp_can_hold_is_an_infinite_perplexity(tiny_model):
    model, tokenizer = load_model(str(tiny_model), HOST, torch.float32), load_tokenizer(tiny_model)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(1e4)
    assert perplexity(model, tokenizer, TEXT, most_tokens=48).value == float("inf")


def test_the_last_fifth_is_held_out():
    assert held_out("abcdefghij") == "ij"
