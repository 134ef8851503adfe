"""int8 weights: rounding, the stored format, loading, and the whole of compress_model."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from chipset_layers.compression import storage
from chipset_layers.compression.compress import CompressConfig, compress_model
from chipset_layers.compression.modules import QuantEmbedding, QuantLinear, quantize_rows
from chipset_layers.compression.perplexity import held_out, perplexity
from chipset_layers.errors import LayerError
from chipset_layers.models import load_model, load_tokenizer

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


@pytest.mark.parametrize("columns", [1, 4, 7, 64])
def test_packing_is_undone_and_is_the_format_of_compressed_tensors(columns):
    values = torch.randint(-128, 128, (6, columns), dtype=torch.int8)
    packed = storage.pack_int8(values)
    assert torch.equal(storage.unpack_int8(packed, columns), values)
    theirs = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers")
    assert torch.equal(packed, theirs.pack_to_int32(values, 8))


@pytest.mark.parametrize("which", ["tiny_model", "untied_model"])
def test_compressed_model_is_near_the_original(which, request, tmp_path):
    source = request.getfixturevalue(which)
    config = CompressConfig(str(source), tmp_path / "q", HOST, torch.float32, eval_text=TEXT)
    result = compress_model(config)
    assert abs(result.perplexity_after / result.perplexity_before - 1) < 0.02
    assert result.ratio < 0.30
    assert result.bytes_after == (tmp_path / "q" / "model.safetensors").stat().st_size

    original = load_model(str(source), HOST, torch.float32)
    loaded = load_model(str(tmp_path / "q"), HOST, torch.float32)
    assert isinstance(loaded.get_input_embeddings(), QuantEmbedding)
    linears = [m for m in original.modules() if isinstance(m, torch.nn.Linear)]
    assert sum(isinstance(m, QuantLinear) for m in loaded.modules()) == len(linears)
    ids = torch.arange(20)[None]
    with torch.no_grad():
        want, got = original(ids).logits, loaded(ids).logits
    assert (want - got).norm() < 0.08 * want.norm()


def test_tied_embeddings_are_stored_and_held_once(tiny_model, tmp_path):
    result = compress_model(CompressConfig(str(tiny_model), tmp_path / "q", HOST))
    names = load_file(tmp_path / "q" / "model.safetensors")
    assert not any(name.startswith("lm_head") for name in names)
    loaded = load_model(result.output, HOST, torch.float32)
    head, table = loaded.get_output_embeddings(), loaded.get_input_embeddings()
    assert head.qweight.data_ptr() == table.qweight.data_ptr()


@pytest.mark.parametrize("which", ["tiny_model", "untied_model"])
def test_transformers_reads_the_stored_model(which, request, tmp_path):
    pytest.importorskip("compressed_tensors")
    from transformers import AutoModelForCausalLM, CompressedTensorsConfig

    source = request.getfixturevalue(which)
    compress_model(CompressConfig(str(source), tmp_path / "q", HOST))
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path / "q",
        dtype=torch.float32,
        quantization_config=CompressedTensorsConfig(dequantize=True),
    )
    ours = load_model(str(tmp_path / "q"), HOST, torch.float32)
    held = (QuantLinear, QuantEmbedding)
    names = [name for name, module in ours.named_modules() if isinstance(module, held)]
    assert len(names) == 23  # 3 layers of 7, the table and the output layer
    for name in names:
        module = ours.get_submodule(name)
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
    compress_model(CompressConfig(str(tiny_model), tmp_path / "q", HOST))
    with pytest.raises(LayerError, match="already compressed"):
        compress_model(CompressConfig(str(tmp_path / "q"), tmp_path / "q2", HOST))


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


def test_the_last_fifth_is_held_out():
    assert held_out("abcdefghij") == "ij"
