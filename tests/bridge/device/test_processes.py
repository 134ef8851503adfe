"""Several processes: what a child may not do with a chip is a clear error, the rest works."""

from __future__ import annotations

import io
from multiprocessing.reduction import ForkingPickler

import pytest
import torch

LOADER = """
import torch
import chipset
device = chipset.select('cpu').torch

class OnHost(torch.utils.data.Dataset):
    def __len__(self): return 12
    def __getitem__(self, i): return torch.full((3,), float(i))

class OnChip(OnHost):
    def __getitem__(self, i): return torch.full((3,), float(i), device=device).cpu()

assert torch.ones(2, device=device).sum().item() == 2  # the device is in use before the fork
def batches(data):
    return torch.utils.data.DataLoader(
        data, batch_size=4, num_workers=2, pin_memory=True, multiprocessing_context='fork')
"""


def test_forked_workers_that_stay_on_the_host(run_python) -> None:
    done = run_python(
        LOADER + "seen = [(b.is_pinned(), b.to(device, non_blocking=True).sum().item())"
        " for b in batches(OnHost())]\n"
        "assert seen == [(True, 18.0), (True, 66.0), (True, 114.0)], seen\n"
        "assert torch.ones(2, device=device).sum().item() == 2"
    )
    assert done.returncode == 0, done.stderr


def test_a_forked_worker_that_touches_the_chip(run_python) -> None:
    """The worker's error reaches the loop, says why and what to do; the parent's chip lives on."""
    done = run_python(
        LOADER + "try:\n    next(iter(batches(OnChip())))\nexcept RuntimeError as error:\n"
        "    print(error)\n"
        "assert torch.ones(2, device=device).sum().item() == 2"
    )
    assert done.returncode == 0, done.stderr
    assert "forked after a device had been used" in done.stdout
    assert "DataLoader: multiprocessing_context='spawn'" in done.stdout


def test_a_worker_that_launches_a_device_itself(run_python) -> None:
    """The parent knows of no device when it forks."""
    done = run_python(
        """
import torch
import chipset

class OnChip(torch.utils.data.Dataset):
    def __len__(self): return 12
    def __getitem__(self, i):
        return torch.full((1,), float(i), device=chipset.select('cpu').torch).cpu()

loader = torch.utils.data.DataLoader(
    OnChip(), batch_size=6, num_workers=2, multiprocessing_context='fork')
print([batch.flatten().tolist() for batch in loader] == [[*range(6)], [*range(6, 12)]])
"""
    )
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
@pytest.mark.parametrize("kind", ["tensor", "parameter", "storage", "module", "view"])
def test_sending_is_refused_with_the_way_out(chip, kind, strategy) -> None:
    there = torch.ones(3, device=chip)
    value = {
        "tensor": there,
        "parameter": torch.nn.Parameter(there),
        "storage": there.untyped_storage(),
        "module": torch.nn.Linear(2, 2).to(chip),
        "view": there[1:],
    }[kind]
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy(strategy)
    try:
        with pytest.raises(RuntimeError, match=r"'chip:0' cannot be sent .* send tensor\.cpu\(\)"):
            ForkingPickler(io.BytesIO()).dump(value)
    finally:
        torch.multiprocessing.set_sharing_strategy(before)


def test_a_queue_carries_what_is_on_the_host(chip) -> None:
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    with pytest.raises(RuntimeError, match="cannot be sent to another process"):
        queue.put(torch.ones(3, device=chip))
    queue.put(torch.ones(3, device=chip).cpu())
    assert torch.equal(queue.get(), torch.ones(3))


def test_sharing_in_place_changes_nothing(chip) -> None:
    """As with CUDA: memory of a device is not moved to the host's shared memory."""
    there = torch.ones(3, device=chip)
    address = there.data_ptr()
    assert there.share_memory_() is there and there.data_ptr() == address
    with pytest.raises(RuntimeError, match="only available on CPU"):
        there.untyped_storage()._share_fd_cpu_()
