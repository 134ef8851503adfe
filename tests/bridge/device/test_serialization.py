"""Leaving a chip and coming back: save, load, pickle, deepcopy, safetensors, DataLoader, DLPack."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path

import pytest
import torch


def saved(value: object) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_save_and_load(chip: torch.device, dtype: torch.dtype) -> None:
    host = torch.arange(12).reshape(3, 4).to(dtype)
    file = saved({"x": host.to(chip), "view": host.to(chip).t()})
    for location, device in [(None, chip), ("cpu", torch.device("cpu")), ("chip", chip)]:
        file.seek(0)
        loaded = torch.load(file, map_location=location)
        assert loaded["x"].device == device
        assert torch.equal(loaded["x"].cpu(), host)
        assert torch.equal(loaded["view"].cpu(), host.t())
    assert torch.equal(torch.load(saved(host), map_location="chip").cpu(), host)


def test_load_with_mmap(chip: torch.device, tmp_path: Path) -> None:
    host = torch.randn(100)
    torch.save(host, tmp_path / "x.pt")
    assert torch.equal(torch.load(tmp_path / "x.pt", mmap=True).to(chip).cpu(), host)


def test_shared_storages_stay_shared(chip: torch.device) -> None:
    base = torch.zeros(4, device=chip)
    a, b = torch.load(saved([base, base[1:]]))
    a[1] = 7
    assert b[0].item() == 7


def test_deepcopy_and_pickle(chip: torch.device) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4)).to(chip)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert all(p.device == chip for p in twin.parameters())
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            assert torch.equal(mine.cpu(), theirs.cpu())
            assert mine.data_ptr() != theirs.data_ptr()


def test_optimizer_state_goes_through_a_file(chip: torch.device) -> None:
    weight = torch.nn.Parameter(torch.ones(3, device=chip))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    optimizer.step()
    again = torch.optim.AdamW([weight])
    again.load_state_dict(torch.load(saved(optimizer.state_dict())))
    assert again.state[weight]["exp_avg"].device == chip


def test_safetensors(chip: torch.device, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    host = {"a": torch.randn(3, 4), "b": torch.arange(5)}
    safetensors.save_file({k: v.to(chip) for k, v in host.items()}, tmp_path / "x.safetensors")
    loaded = safetensors.load_file(tmp_path / "x.safetensors")
    assert all(torch.equal(loaded[k], v) for k, v in host.items())
    model = torch.nn.Linear(4, 3).to(chip)
    safetensors.save_model(model, tmp_path / "m.safetensors")
    other = torch.nn.Linear(4, 3).to(chip)
    safetensors.load_model(other, tmp_path / "m.safetensors")
    assert torch.equal(other.weight.cpu(), model.weight.cpu())
    # Straight to the device by name, which the library itself does not know.
    straight = safetensors.load_file(tmp_path / "x.safetensors", device="chip")
    assert straight["a"].device == chip
    assert torch.equal(straight["a"].cpu(), host["a"])


def test_data_loader_pins_memory(chip: torch.device) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(32.0))
    for workers in (0, 1):
        loader = torch.utils.data.DataLoader(
            data, batch_size=8, pin_memory=True, num_workers=workers,
            multiprocessing_context="spawn" if workers else None,
        )  # fmt: skip
        seen = []
        for (batch,) in loader:
            assert batch.is_pinned()
            seen += batch.to(chip, non_blocking=True).cpu().tolist()
        assert seen == list(range(32))


def test_numpy_and_lists(chip: torch.device) -> None:
    there = torch.tensor([[1, 2], [3, 4]], device=chip)
    assert there.tolist() == [[1, 2], [3, 4]]
    assert there.cpu().numpy().sum() == 10
    with pytest.raises(TypeError, match="chip"):
        there.numpy()


def test_dlpack(chip: torch.device) -> None:
    there = torch.arange(6.0, device=chip).reshape(2, 3)
    assert there.__dlpack_device__()[0] == 12  # kDLExtDev
    back = torch.from_dlpack(there)
    assert back.device == chip
    assert back.data_ptr() == there.data_ptr()
    assert torch.equal(back.cpu(), there.cpu())
    assert torch.equal(torch.from_dlpack(there.t()).cpu(), there.t().cpu())


def test_printing(chip: torch.device) -> None:
    text = repr(torch.tensor([1.5, 2.0], device=chip))
    assert text == "tensor([1.5000, 2.0000], device='chip:0')"
