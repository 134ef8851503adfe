"""Shapes, views and storages of tensors on a chip."""

from __future__ import annotations

import pytest
import torch


def test_empty_and_its_errors(chip: torch.device) -> None:
    assert torch.empty(2, 0, 3, device=chip).numel() == 0
    assert torch.empty((), device=chip).dim() == 0
    assert torch.empty(0, device=chip).shape == (0,)
    made = torch.empty_strided((2, 3), (1, 2), device=chip)
    assert made.stride() == (1, 2)
    with pytest.raises(RuntimeError, match="negative dimension"):
        torch.empty(-1, device=chip)
    with pytest.raises(RuntimeError, match="overflow"):
        torch.empty(2**40, 2**40, device=chip)
    with pytest.raises(RuntimeError, match="pinned"):
        torch.empty(2, device=chip, pin_memory=True)


def test_views_share_memory(chip: torch.device) -> None:
    base = torch.zeros(4, 6, device=chip)
    for view in (
        base.view(24),
        base[1:3],
        base.t(),
        base.unfold(1, 2, 2),
        base.as_strided((2,), (7,)),
    ):
        assert view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    base.view(3, 8)[2, 7] = 5
    assert base[3, 5].item() == 5
    assert torch.equal(base.view(torch.int32).view(torch.float32).cpu(), base.cpu())
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        base.t().view(24)


def test_resize(chip: torch.device) -> None:
    tensor = torch.arange(6.0).to(chip)
    tensor.resize_(2, 2)
    assert tensor.tolist() == [[0, 1], [2, 3]]
    tensor.resize_(4, 4)
    assert tensor.flatten()[:6].tolist() == [0, 1, 2, 3, 4, 5]
    tensor.resize_(0)
    assert tensor.shape == (0,)


def test_storage_resize_as_fsdp_does(chip: torch.device) -> None:
    tensor = torch.arange(6.0).to(chip)
    storage = tensor.untyped_storage()
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(24)
    tensor.copy_(torch.arange(6.0))
    assert tensor.tolist() == [0, 1, 2, 3, 4, 5]


def test_set_(chip: torch.device) -> None:
    source = torch.arange(12.0).to(chip)
    tensor = torch.empty(0, device=chip)
    tensor.set_(source.untyped_storage(), 2, (2, 3), (3, 1))
    assert tensor.tolist() == [[2, 3, 4], [5, 6, 7]]
    tensor.set_(source)
    assert tensor.is_set_to(source)
    tensor.set_()
    assert tensor.numel() == 0
    tensor.set_(source.untyped_storage())
    assert tensor.shape == (12,)


def test_data_swap_keeps_the_parameter(chip: torch.device) -> None:
    parameter = torch.nn.Parameter(torch.zeros(2, device=chip))
    parameter.data = torch.ones(2, device=chip)
    assert parameter.tolist() == [1, 1]
