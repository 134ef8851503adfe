"""The caching allocator through torch: statistics, caching, running out."""

from __future__ import annotations

import gc

import pytest
import torch

MIB = 2**20


@pytest.fixture(autouse=True)
def clean(chip: torch.device) -> None:
    gc.collect()
    torch.chip.synchronize()
    torch.chip.empty_cache()
    torch.chip.reset_peak_memory_stats()


def test_statistics(chip: torch.device) -> None:
    before = torch.accelerator.memory.memory_allocated(chip)
    tensor = torch.empty(4 * MIB, dtype=torch.uint8, device=chip)
    assert torch.accelerator.memory.memory_allocated(chip) - before >= 4 * MIB
    assert torch.chip.max_memory_allocated() - before >= 4 * MIB
    assert torch.chip.memory_reserved() >= torch.chip.memory_allocated()
    del tensor
    assert torch.chip.memory_allocated() == before
    assert torch.chip.max_memory_allocated() - before >= 4 * MIB
    stats = torch.chip.memory_stats()
    assert stats["allocated_bytes.all.current"] == before
    assert stats["num_ooms"] >= 0


def test_freed_memory_is_used_again_and_given_back(
    chip: torch.device, pytestconfig: pytest.Config
) -> None:
    if pytestconfig.getoption("--checked") or pytestconfig.getoption("--chip").startswith("sim"):
        pytest.skip("under the checked layer each allocation has memory of its own")
    first = torch.empty(8 * MIB, dtype=torch.uint8, device=chip)
    address = first.data_ptr()
    del first
    reserved = torch.chip.memory_reserved()
    again = torch.empty(8 * MIB, dtype=torch.uint8, device=chip)
    assert again.data_ptr() == address
    assert torch.chip.memory_reserved() == reserved
    del again
    torch.accelerator.memory.empty_cache()
    assert torch.chip.memory_reserved() < reserved


def test_no_leak(chip: torch.device) -> None:
    before = torch.chip.memory_allocated()
    for size in range(1, 200):
        (torch.ones(size * 37, device=chip) + 1).sum().item()
    gc.collect()
    assert torch.chip.memory_allocated() == before


def test_out_of_memory_names_the_map_and_work_goes_on(chip: torch.device) -> None:
    total = torch.chip.mem_get_info()[1]
    kept = torch.ones(1000, device=chip)
    with pytest.raises(torch.OutOfMemoryError, match="memory") as caught:
        torch.empty(total * 4, dtype=torch.uint8, device=chip)
    assert "reserved" in str(caught.value) or "allocated" in str(caught.value)
    assert (kept + 1).sum().item() == 2000
    assert torch.chip.memory_stats()["num_ooms"] >= 1


def test_memory_info(chip: torch.device) -> None:
    free, total = torch.chip.mem_get_info()
    assert 0 < free <= total
    assert torch.accelerator.memory.get_memory_info(chip)[1] == total
    assert isinstance(torch.chip.memory_map(), str)


def test_host_results_are_counted_as_chip_memory(chip: torch.device) -> None:
    # An operator without a chip kernel: its result comes from the host.
    source = torch.randn(MIB // 4, device=chip)
    before = torch.chip.memory_allocated()
    result = torch.special.airy_ai(source)
    assert result.device == chip
    assert torch.chip.memory_allocated() - before >= MIB
    assert torch.allclose(result.cpu(), torch.special.airy_ai(source.cpu()))
