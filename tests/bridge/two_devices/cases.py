"""Two devices in one process: chip:0 and chip:1, of one plugin or of two.

``tests/bridge/test_two_devices.py`` runs these in processes of their own, with several choices of
plugins. By hand: ``pytest tests/bridge/two_devices/cases.py --chip cpu --devices 2``.
"""

from __future__ import annotations

import copy
import io
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

Pair = tuple[torch.device, torch.device]
LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, 2),
    "strided": lambda t: t[::2, :, 1::3],
    "offset": lambda t: t[1:, 2:],
    "expanded": lambda t: t[:, :1].expand(-1, 5, -1),
    "scalar": lambda t: t[1, 1, 1],
    "empty": lambda t: t[:0],
}


@pytest.fixture(scope="module")
def pair(chip: torch.device) -> Pair:
    assert torch.chip.device_count() == 2
    return torch.device("chip", 0), torch.device("chip", 1)


@pytest.fixture(autouse=True)
def _starts_on_the_first(pair: Pair) -> None:
    """Every test finds device 0 current, and leaves it so."""
    assert torch.chip.current_device() == 0
    yield
    assert torch.chip.current_device() == 0


def in_thread(work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a fresh thread, in which nothing was ever selected."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


# ---- copies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("way", [(0, 1), (1, 0)], ids=["forth", "back"])
def test_copies_between_devices(pair: Pair, layout: str, way: tuple[int, int]) -> None:
    source, target = pair[way[0]], pair[way[1]]
    base = torch.randn(4, 5, 6)
    want = LAYOUTS[layout](base)
    there = LAYOUTS[layout](base.to(source)).to(target)
    assert there.device == target
    assert torch.equal(there.cpu(), want)
    # Into a strided destination, converting.
    into = torch.zeros(6, 5, 4, dtype=torch.float64, device=target).transpose(0, 2)
    into.copy_(base.to(source))
    assert torch.equal(into.cpu(), base.double())


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.bfloat16, torch.complex64])
def test_copies_of_other_dtypes(pair: Pair, dtype: torch.dtype) -> None:
    host = torch.randint(0, 2, (3, 4)).to(dtype)
    there = host.to(pair[0]).to(pair[1])
    assert torch.equal(there.cpu(), host)
    if dtype.is_complex:
        assert torch.equal(host.to(pair[0]).conj().to(pair[1]).cpu(), host.conj())


def test_a_copy_between_devices_is_ordered_by_their_streams(pair: Pair) -> None:
    first, second = pair
    for step in range(30):
        source = torch.full((1 << 14,), float(step), device=first) * 2
        there = source.to(second, non_blocking=True)
        del source
        torch.full((1 << 14,), -1.0, device=first)  # would land in the freed block
        back = (there + 1).to(first, non_blocking=True)
        del there
        torch.full((1 << 14,), -1.0, device=second)
        assert torch.equal(back.cpu(), torch.full((1 << 14,), 2.0 * step + 1))


def test_copies_follow_the_current_streams(pair: Pair) -> None:
    first, second = pair
    side = torch.Stream(device=second)
    source = torch.randn(1 << 14, device=first)
    with side:
        there = source.to(second)
        doubled = there * 2
        side.synchronize()
    assert torch.equal(doubled.cpu(), source.cpu() * 2)


# ---- the current device ----------------------------------------------------------------------


def test_choosing_a_device(pair: Pair) -> None:
    with torch.chip.device(1):
        assert torch.empty(2, device="chip").device == pair[1]
        with torch.chip.device_of(torch.empty(1, device=pair[0])):
            assert torch.chip.current_device() == 0
        assert torch.accelerator.current_device_index() == 1
    assert torch.empty(2, device="chip").device == pair[0]
    with torch.accelerator.device_index(1):
        assert torch.ones(1).chip().device == pair[1]
    with pair[1]:  # torch.device as a context: factories' default, not the current device
        assert torch.zeros(2).device == pair[1]
    torch.accelerator.set_device_index(1)
    try:
        assert torch.arange(3, device="chip").device == pair[1]
        assert torch.randn(3, device="chip").device == pair[1]
    finally:
        torch.accelerator.set_device_index(0)


@pytest.mark.parametrize("index", [2, 100])
def test_devices_that_do_not_exist(pair: Pair, index: int) -> None:
    for use in (
        lambda: torch.empty(1, device=f"chip:{index}"),
        lambda: torch.zeros(3).to(f"chip:{index}"),
        lambda: torch.chip.set_device(index),
        lambda: torch.accelerator.set_device_index(index),
        lambda: torch.Stream(device=f"chip:{index}"),
        lambda: torch.chip.current_stream(index),
        lambda: torch.Generator(device=f"chip:{index}"),
    ):
        with pytest.raises(RuntimeError, match=f"chip:{index} does not exist: 2 devices"):
            use()


def test_work_on_the_other_device_leaves_no_trace(pair: Pair) -> None:
    """Kind: current-device leakage, from this thread."""
    before = torch.chip.memory_allocated(0)
    x = torch.randn(64, 64, device=pair[1], requires_grad=True)
    loss = F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]).sum()
    (loss + F.layer_norm(x @ x, (64,)).sort().values.cumsum(0).mean()).backward()
    mask = x.detach() > 0
    kept = [x.grad, x[mask], x.nonzero(), x.topk(3).values, torch.cat([x, x]), x.tril(),
            torch.multinomial(x.detach().abs(), 2), x.detach()[[0, 1]],
            x.detach().clone().exponential_(), F.dropout(x, 0.5)]  # fmt: skip
    assert {t.device for t in kept} == {pair[1]}
    assert torch.chip.current_device() == 0
    assert torch.chip.memory_allocated(0) == before
    assert torch.chip.memory_allocated(1) > 0


def test_a_fresh_thread_works_on_the_second_device(pair: Pair) -> None:
    """Kind: current-device leakage, from a thread in which nothing was selected."""
    before = torch.chip.memory_allocated(0)
    host = torch.randn(32, 32)

    def work() -> tuple[torch.Tensor, int]:
        x = host.to(pair[1])
        y = (x @ x).softmax(-1)
        torch.chip.synchronize(1)
        x.record_stream(torch.chip.current_stream(1))
        return y, torch.chip.current_device()

    result, current = in_thread(work)
    assert current == 0
    assert result.device == pair[1]
    assert torch.chip.memory_allocated(0) == before
    torch.testing.assert_close(result.cpu(), (host @ host).softmax(-1))


def test_a_device_chosen_in_one_thread_is_not_chosen_in_another(pair: Pair) -> None:
    with torch.chip.device(1):
        assert in_thread(torch.chip.current_device) == 0
        assert in_thread(lambda: torch.empty(1, device="chip").device) == pair[0]


def test_threads_on_both_devices(pair: Pair) -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            device, other = pair[seed % 2], pair[1 - seed % 2]
            host = torch.randn(48, 48, generator=torch.Generator().manual_seed(seed))
            for _ in range(10):
                there = host.to(device)
                result = (there @ there.t()).to(other) + there.to(other)
                torch.testing.assert_close(result.cpu(), host @ host.t() + host)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


# ---- streams and events ----------------------------------------------------------------------


def test_streams_belong_to_their_device(pair: Pair) -> None:
    side = torch.Stream(device=pair[1])
    assert side.device == pair[1]
    with side:
        assert torch.chip.current_device() == 1
        assert torch.chip.current_stream(1) == side
        assert torch.chip.current_stream(0) == torch.chip.default_stream(0)
        made = torch.ones(4, device="chip")
        assert made.device == pair[1]
    assert torch.chip.current_stream(1) == torch.chip.default_stream(1)
    assert torch.chip.default_stream(0) != torch.chip.default_stream(1)
    torch.chip.synchronize(1)
    assert torch.equal(made.cpu(), torch.ones(4))


def test_events_order_work_of_two_devices(pair: Pair) -> None:
    ready = torch.Event(device=pair[0])
    for step in range(20):
        source = torch.full((1 << 12,), float(step), device=pair[0]) + 1
        ready.record(torch.chip.current_stream(0))
        torch.chip.current_stream(1).wait_event(ready)
        there = source.to(pair[1])
        assert torch.equal(there.cpu(), torch.full((1 << 12,), step + 1.0))
    with pytest.raises(RuntimeError, match="an event of chip:0"):
        ready.record(torch.chip.current_stream(1))  # an event stays with its first device


def test_events_are_used_again_without_their_past(pair: Pair) -> None:
    """Kind: event state reused. An event that was never recorded counts as passed."""
    for step in range(300):
        side = torch.Stream(device=pair[step % 2])
        event = torch.Event(device=pair[step % 2])
        assert event.query()
        x = torch.ones(256, device=pair[step % 2])
        side.wait_stream(torch.chip.current_stream(step % 2))
        with side:
            y = x + step
            event.record(side)
        event.synchronize()
        assert event.query()
        assert y[0].item() == 1 + step
        del event, side


# ---- memory ----------------------------------------------------------------------------------


def test_memory_is_counted_by_device(pair: Pair) -> None:
    before = [torch.chip.memory_allocated(d) for d in (0, 1)]
    kept = torch.empty(1 << 20, dtype=torch.uint8, device=pair[1])
    assert torch.chip.memory_allocated(0) == before[0]
    assert torch.chip.memory_allocated(1) >= before[1] + kept.numel()
    assert torch.accelerator.memory.memory_stats(pair[1]) == torch.chip.memory_stats(1)
    del kept
    assert torch.chip.memory_allocated(1) == before[1]


def test_running_out_names_the_device(pair: Pair) -> None:
    total = torch.chip.mem_get_info(1)[1]
    with pytest.raises(torch.OutOfMemoryError, match="device 1|chip:1|:1 "):
        torch.empty(4 * total, dtype=torch.uint8, device=pair[1])
    assert (torch.ones(8, device=pair[1]) + 1).sum().item() == 16


@pytest.mark.parametrize("index", [0, 1])
def test_memory_used_on_two_streams(pair: Pair, index: int) -> None:
    """Kind: memory reused across streams; lists of three, of which each must be protected."""
    side = torch.Stream(device=pair[index])
    for step in range(20):
        sources = [torch.full((1 << 13,), float(step + k), device=pair[index]) for k in range(3)]
        side.wait_stream(torch.chip.current_stream(index))
        with side:
            results = [source * 1 for source in sources]
        for source in sources:
            source.record_stream(side)
        del source, sources
        for _ in range(3):
            torch.full((1 << 13,), -1.0, device=pair[index])
        side.synchronize()
        for k, result in enumerate(results):
            assert torch.equal(result.cpu(), torch.full((1 << 13,), float(step + k)))
            result.record_stream(torch.chip.current_stream(index))


@pytest.mark.parametrize("index", [0, 1])
def test_copies_from_views_of_pinned_memory(pair: Pair, index: int) -> None:
    """Kind: stale asynchronous copy."""
    with torch.chip.device(index):
        for step in range(30):
            pinned = torch.full((4097,), float(step)).pin_memory()
            there = pinned[1:].to(pair[index], non_blocking=True)
            del pinned
            torch.full((4097,), -1.0).pin_memory()
            assert torch.equal(there.cpu(), torch.full((4096,), float(step)))
            back = torch.empty(4097).pin_memory()
            back[1:].copy_(there, non_blocking=True)
            torch.chip.synchronize(index)
            assert torch.equal(back[1:], torch.full((4096,), float(step)))


def test_reductions_wait_for_the_stream_that_they_were_told(pair: Pair) -> None:
    """Kind: waits on the wrong stream."""
    for device, index in zip(pair, (0, 1), strict=True):
        side = torch.Stream(device=device)
        x = torch.ones(1 << 14, device=device)
        side.wait_stream(torch.chip.current_stream(index))
        with side:
            y = x * 3
        torch.chip.current_stream(index).wait_stream(side)
        y.record_stream(torch.chip.current_stream(index))
        assert y.sum().item() == 3 * (1 << 14)


# ---- random numbers --------------------------------------------------------------------------


def test_each_device_has_its_generator(pair: Pair) -> None:
    torch.manual_seed(7)
    alone = torch.randn(5, device=pair[1]).cpu()
    torch.manual_seed(7)
    torch.randn(100, device=pair[0])
    assert torch.equal(torch.randn(5, device=pair[1]).cpu(), alone)
    torch.manual_seed(7)
    assert torch.equal(torch.randn(5, device=pair[0]).cpu(), alone)  # one seed for all
    torch.chip.manual_seed(1)  # the current device's only
    assert torch.chip.initial_seed() == 1
    with torch.chip.device(1):
        assert torch.chip.initial_seed() == 7
    states = torch.chip.get_rng_state_all()
    values = [torch.rand(3, device=d).cpu() for d in pair]
    torch.chip.set_rng_state_all(states)
    assert all(torch.equal(torch.rand(3, device=d).cpu(), v) for d, v in zip(pair, values))
    mine = torch.Generator(device=pair[1]).manual_seed(9)
    assert mine.device == pair[1]
    assert torch.rand(2, device=pair[1], generator=mine).device == pair[1]


# ---- autograd --------------------------------------------------------------------------------


def model_parallel(first: torch.device, second: torch.device) -> list[torch.Tensor]:
    torch.manual_seed(0)
    lower = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU())
    upper = torch.nn.Sequential(torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
    x, target = torch.randn(6, 8), torch.randint(0, 4, (6,))
    lower.to(first), upper.to(second)
    parameters = [*lower.parameters(), *upper.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2)
    losses = []
    for _ in range(4):
        loss = F.cross_entropy(upper(lower(x.to(first)).to(second)), target.to(second))
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        losses += [loss.detach().cpu(), norm.cpu()]
    return losses + [p.detach().cpu() for p in parameters]


def test_training_across_two_devices(pair: Pair) -> None:
    want = model_parallel(torch.device("cpu"), torch.device("cpu"))
    for first, second in (pair, pair[::-1]):
        torch.testing.assert_close(model_parallel(first, second), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {"foreach": False}])
def test_an_optimizer_over_two_devices(pair: Pair, options: dict[str, bool]) -> None:
    def run(first: torch.device, second: torch.device) -> list[torch.Tensor]:
        parameters = [torch.ones(5, device=d, requires_grad=True) for d in (first, second)]
        optimizer = torch.optim.AdamW(parameters, lr=0.1, **options)
        for _ in range(3):
            for p in parameters:
                p.grad = torch.full_like(p, 0.25)
            optimizer.step()
        return [p.detach().cpu() for p in parameters]

    torch.testing.assert_close(run(*pair), run(torch.device("cpu"), torch.device("cpu")))


def test_backward_runs_on_the_streams_of_the_forward(pair: Pair) -> None:
    side = torch.Stream(device=pair[1])
    weight = torch.randn(64, device=pair[0], requires_grad=True)
    torch.chip.synchronize(0)
    with side:
        loss = (weight.to(pair[1]) ** 2).sum()
    loss.backward()
    torch.chip.synchronize(0)
    torch.chip.synchronize(1)
    torch.testing.assert_close(weight.grad.cpu(), 2 * weight.detach().cpu())


def test_checkpointing_restores_the_random_state_of_the_right_device(pair: Pair) -> None:
    from torch.utils.checkpoint import checkpoint

    def run(wrap: bool) -> torch.Tensor:
        torch.manual_seed(3)
        x = torch.ones(256, device=pair[1], requires_grad=True)
        body = lambda t: F.dropout(t * t, 0.5)  # noqa: E731
        out = checkpoint(body, x, use_reentrant=False) if wrap else body(x)
        out.sum().backward()
        return x.grad.cpu()

    assert torch.equal(run(True), run(False))


# ---- files, modules, graphs ------------------------------------------------------------------


def test_tensors_come_back_to_their_device(pair: Pair) -> None:
    x = torch.randn(3, 4).to(pair[1])
    buffer = io.BytesIO()
    torch.save(x, buffer)
    for place, want in ((None, pair[1]), ("chip:0", pair[0]), ({"chip:1": "chip:0"}, pair[0])):
        buffer.seek(0)
        loaded = torch.load(buffer, map_location=place)
        assert loaded.device == want
        assert torch.equal(loaded.cpu(), x.cpu())
    assert copy.deepcopy(x).device == pair[1]
    assert x.storage().device == pair[1]
    assert x.untyped_storage().clone().device == pair[1]
    again = torch.empty(0, device=pair[1]).set_(x.untyped_storage().clone())
    assert torch.equal(again.cpu(), x.cpu().flatten())
    assert "chip:1" in repr(x)


def test_a_module_moves_between_devices(pair: Pair) -> None:
    layer = torch.nn.Linear(4, 3).to(pair[0])
    weight, host = layer.weight, layer.weight.detach().cpu()
    layer.to(pair[1])
    assert layer.weight is weight and weight.device == pair[1]
    assert torch.equal(weight.detach().cpu(), host)


def test_a_graph_of_the_second_device(pair: Pair) -> None:
    if not torch.chip.graphs_supported(pair[1]):
        pytest.skip("the plugin records no graphs")
    x = torch.ones(16, device=pair[1])
    with torch.chip.device(1):
        side, graph = torch.Stream(device=pair[1]), torch.chip.Graph()
        side.wait_stream(torch.chip.current_stream(1))
        with side:
            y = x * 2  # warm
        torch.chip.synchronize(1)
        with torch.chip.graph(graph):
            y = x * 2 + 1
        x.fill_(5.0)
        graph.replay()
    torch.chip.synchronize(1)
    assert torch.equal(y.cpu(), torch.full((16,), 11.0))


def test_a_graph_refuses_work_of_the_other_device(pair: Pair) -> None:
    if not torch.chip.graphs_supported(pair[0]):
        pytest.skip("the plugin records no graphs")
    x = torch.ones(16, device=pair[1])
    x += 1  # the stream is known before
    graph = torch.chip.Graph()
    with pytest.raises(RuntimeError, match="recorded on chip:0.*chip:1 would not be part"):
        with torch.chip.graph(graph):
            x += 1
    with pytest.raises(RuntimeError, match="holds no recording"):
        graph.replay()
    x += 1
    assert torch.equal(x.cpu(), torch.full((16,), 3.0))


def test_host_fallbacks_stay_on_their_device(pair: Pair) -> None:
    x = torch.rand(5).to(pair[1])
    result = torch.special.airy_ai(x)
    assert result.device == pair[1]
    torch.testing.assert_close(result.cpu(), torch.special.airy_ai(x.cpu()))
    with pytest.raises(RuntimeError, match="same device"):
        torch.special.spherical_bessel_j0(x, out=torch.empty(5, device=pair[0]))


# ---- operands on different devices -----------------------------------------------------------


def test_operands_on_two_devices_are_refused(pair: Pair) -> None:
    from same_device import accepted_mixtures

    assert accepted_mixtures(pair[0], pair[1]) == []
