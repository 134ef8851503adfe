"""Captured graphs: recorded once, replayed on the same memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def graphs(chip: torch.device) -> Iterator[None]:
    assert torch.chip.graphs_supported(chip), "the reference chip records graphs"
    yield
    torch.chip.synchronize()


def test_replay_reads_what_is_there_now(chip: torch.device) -> None:
    x = torch.ones(1000, device=chip)
    graph = torch.chip.Graph()
    with torch.chip.graph(graph):
        y = x * 2
        z = y + x
    for value in (1.0, 5.0, -3.0):
        x.fill_(value)
        graph.replay()
        assert torch.equal(z.cpu(), torch.full((1000,), 3 * value))


def test_capture_does_not_run(chip: torch.device) -> None:
    x = torch.zeros(10, device=chip)
    graph = torch.chip.Graph()
    with torch.chip.graph(graph):
        x.add_(1)
    assert x.sum().item() == 0
    graph.replay()
    graph.replay()
    assert x.sum().item() == 20


def test_memory_of_a_graph_stays_its_own(chip: torch.device) -> None:
    x = torch.arange(5000.0).to(chip)
    graph = torch.chip.Graph()
    with torch.chip.graph(graph):
        y = (x + 1) * 2
    others = [torch.full((5000,), -1.0, device=chip) for _ in range(20)]
    graph.replay()
    assert torch.equal(y.cpu(), (x.cpu() + 1) * 2)
    assert all((other.cpu() == -1).all() for other in others)


def test_two_graphs_may_share_a_pool(chip: torch.device) -> None:
    x = torch.ones(100, device=chip)
    first, second = torch.chip.Graph(), torch.chip.Graph()
    with torch.chip.graph(first):
        y = x + 1
    with torch.chip.graph(second, pool=first.pool()):
        z = y + 1
    assert first.pool() == second.pool()
    first.replay()
    second.replay()
    assert torch.equal(z.cpu(), torch.full((100,), 3.0))
    first.reset()
    second.replay()
    assert torch.equal(z.cpu(), torch.full((100,), 3.0))


REFUSED = {
    "item": lambda x: x.sum().item(),
    "copy to the host": lambda x: x.cpu(),
    "copy from the host": lambda x: x.copy_(torch.zeros(4)),
    "synchronisation": lambda x: torch.chip.synchronize(),
    "host fallback": lambda x: torch.special.airy_ai(x),
}


@pytest.mark.parametrize("case", REFUSED)
def test_work_for_the_host_is_refused(chip: torch.device, case: str) -> None:
    x = torch.ones(4, device=chip)
    graph = torch.chip.Graph()
    with (
        pytest.raises(RuntimeError, match="cannot be recorded in a graph"),
        torch.chip.graph(graph),
    ):
        REFUSED[case](x)
    with pytest.raises(RuntimeError, match="holds no recording"):
        graph.replay()
    # The device goes on, and the same object can record again.
    assert (x + 1).sum().item() == 8
    with torch.chip.graph(graph):
        y = x * 3
    graph.replay()
    assert y.sum().item() == 12


def test_random_numbers_are_new_in_each_replay(chip: torch.device) -> None:
    graph = torch.chip.Graph()
    with torch.chip.graph(graph):
        a = torch.rand(50, device=chip)
        b = torch.rand(50, device=chip)
    torch.manual_seed(5)
    seen = []
    for _ in range(3):
        graph.replay()
        seen += [a.cpu(), b.cpu()]
    for i, left in enumerate(seen):
        assert not any(torch.equal(left, right) for right in seen[i + 1 :])
    torch.manual_seed(5)
    eager = torch.rand(50, device=chip)
    assert torch.equal(eager.cpu(), seen[0])


def test_torchs_own_graph_class(chip: torch.device) -> None:
    x = torch.ones(3, device=chip)
    graph = torch.accelerator.Graph()
    with torch.Stream(device=chip), graph:
        y = x + 4
    graph.replay()
    assert y.tolist() == [5, 5, 5]


def test_errors(chip: torch.device) -> None:
    graph = torch.chip.Graph()
    with pytest.raises(RuntimeError, match="holds no recording"):
        graph.replay()
    with torch.chip.graph(graph):
        torch.ones(3, device=chip)
        with pytest.raises(RuntimeError, match="being captured"):
            torch.chip.Graph().capture_begin()
    with pytest.raises(RuntimeError, match="reset"), torch.chip.graph(graph):
        pass
