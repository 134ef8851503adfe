"""Streams and events: order, timing, and memory used on several streams."""

from __future__ import annotations

import threading

import torch


def test_current_stream_is_per_thread_and_restored(chip: torch.device) -> None:
    default = torch.chip.default_stream()
    assert torch.chip.current_stream() == default
    side = torch.chip.Stream()
    seen = []
    with side:
        assert torch.chip.current_stream() == side
        thread = threading.Thread(target=lambda: seen.append(torch.chip.current_stream()))
        thread.start()
        thread.join()
    with torch.chip.stream(side):
        assert torch.accelerator.current_stream() == side
    assert torch.chip.current_stream() == default
    assert seen == [default]


def test_streams_come_from_the_pool(chip: torch.device) -> None:
    ids = {torch.chip.Stream().stream_id for _ in range(40)}
    assert 1 < len(ids) <= 8
    urgent = torch.chip.Stream(priority=-1)
    assert urgent.stream_id not in ids
    assert torch.chip.Stream().native_handle != 0


def test_work_of_two_streams_is_ordered_by_events(chip: torch.device) -> None:
    side = torch.chip.Stream()
    for _ in range(50):
        source = torch.randn(1 << 15, device=chip)
        with side:
            side.wait_stream(torch.chip.default_stream())
            doubled = source * 2
            event = side.record_event()
        torch.chip.default_stream().wait_event(event)
        result = doubled - source
        assert torch.equal(result.cpu(), (source * 2 - source).cpu())


def test_record_stream_keeps_memory_until_the_other_stream_has_passed(chip: torch.device) -> None:
    side = torch.chip.Stream()
    for step in range(50):
        source = torch.full((1 << 16,), float(step), device=chip)
        side.wait_stream(torch.chip.default_stream())
        with side:
            result = source * 1
        source.record_stream(side)
        del source
        torch.full((1 << 16,), -1.0, device=chip)  # would land in the freed block
        side.synchronize()
        assert torch.equal(result.cpu(), torch.full((1 << 16,), float(step)))


def test_events(chip: torch.device) -> None:
    start, end = torch.chip.Event(enable_timing=True), torch.chip.Event(enable_timing=True)
    assert torch.chip.Event().query()  # never recorded counts as passed
    start.record()
    torch.randn(256, 256, device=chip).sum()
    end.record()
    end.synchronize()
    assert start.query() and end.query()
    assert start.elapsed_time(end) >= 0
    torch.chip.synchronize()
    assert torch.chip.current_stream().query()


def test_backward_uses_the_streams_of_the_forward(chip: torch.device) -> None:
    side = torch.chip.Stream()
    weight = torch.randn(64, 64, device=chip, requires_grad=True)
    torch.chip.synchronize()
    with side:
        loss = (weight * weight).sum()
    loss.backward()
    torch.chip.synchronize()
    assert torch.allclose(weight.grad.cpu(), 2 * weight.detach().cpu())


def test_many_threads(chip: torch.device) -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            generator = torch.Generator().manual_seed(seed)
            for _ in range(30):
                host = torch.randn(64, 64, generator=generator)
                there = host.to(chip)
                assert torch.allclose((there + there.t()).cpu(), host + host.t())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
