"""The host in the place of the chip: correct, counted, and forbidden on request."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F

import chipset
from chipset import _torch


@pytest.fixture(autouse=True)
def counters(chip: torch.device) -> None:
    chipset.reset_fallbacks()


def test_counts_and_bytes(chip: torch.device) -> None:
    x = torch.randn(10, device=chip)
    torch.special.airy_ai(x)
    torch.special.airy_ai(x)
    entry = chipset.fallbacks()["aten::special_airy_ai.out"]
    assert entry["count"] == 2
    assert entry["bytes"] >= 2 * 40
    chipset.reset_fallbacks()
    assert chipset.fallbacks() == {}


def test_error_mode_names_operator_dtype_and_way_out(chip: torch.device) -> None:
    x = torch.randn(2, 5, device=chip)
    with _torch.fallback_mode("error"):
        with pytest.raises(RuntimeError) as caught:
            torch.special.airy_ai(x)
        text = str(caught.value)
        assert "special_airy_ai" in text and "Float[2, 5]" in text
        assert "CHIPSET_FALLBACK=allow" in text
    assert torch.special.airy_ai(x).device == chip
    with pytest.raises(ValueError, match="none of allow, warn, error"):
        _torch.fallback_mode("sometimes")


def test_warn_mode_warns_once_per_operator(chip: torch.device) -> None:
    x = torch.randn(3, device=chip)
    with _torch.fallback_mode("warn"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.special.airy_ai(x)
        torch.special.airy_ai(x)
    assert len([w for w in seen if "airy_ai" in str(w.message)]) == 1


@pytest.mark.parametrize("mode", ["error", "nonsense"])
def test_environment(run_python, mode: str) -> None:
    done = run_python(
        "import chipset; d = chipset.select('cpu').torch; import torch\n"
        "torch.special.airy_ai(torch.ones(3, device=d)); print('ran')",
        env={"CHIPSET_FALLBACK": mode},
    )
    if mode == "error":
        assert done.returncode != 0 and "CHIPSET_FALLBACK=error forbids" in done.stderr
    else:
        assert done.stdout.strip() == "ran" and "none of allow, warn, error" in done.stderr


# Operators of every shape of argument and result, none of which a chip has a kernel for.
def test_new_results(chip: torch.device) -> None:
    x = torch.randn(4, 6)
    q, r = torch.linalg.qr(x.to(chip))
    assert q.device == r.device == chip
    assert torch.allclose((q @ r).cpu(), x, atol=1e-5)
    assert torch.equal(torch.special.airy_ai(x.t().to(chip)).cpu(), torch.special.airy_ai(x.t()))


def test_in_place_and_out(chip: torch.device) -> None:
    x = torch.rand(5) + 0.5
    there = x.to(chip)
    assert there.polygamma_(1) is there
    assert torch.allclose(there.cpu(), x.clone().polygamma_(1))
    out = torch.empty(5, device=chip)
    address = out.data_ptr()
    result = torch.special.airy_ai(x.to(chip), out=out)
    assert result is out and out.data_ptr() == address
    assert torch.equal(out.cpu(), torch.special.airy_ai(x))


def test_out_is_resized(chip: torch.device) -> None:
    x = torch.randn(700)
    for size in (0, 3, 900):
        out = torch.empty(size, device=chip)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.special.airy_ai(x.to(chip), out=out)
        assert out.shape == (700,)
        assert torch.equal(out.cpu(), torch.special.airy_ai(x))
        assert torch.chip.memory_allocated() > 0


def test_strided_results_into_views(chip: torch.device) -> None:
    base, expected = torch.zeros(4, 6, device=chip), torch.zeros(4, 6)
    x = torch.randn(6, 4)
    torch.special.airy_ai(x.to(chip), out=base.t())
    torch.special.airy_ai(x, out=expected.t())
    assert torch.equal(base.cpu(), expected)


def test_generators_are_substituted(chip: torch.device) -> None:
    rates = torch.full((2000,), 4.0, device=chip)
    torch.manual_seed(0)
    first, second = torch.poisson(rates).cpu(), torch.poisson(rates).cpu()
    assert not torch.equal(first, second)
    assert abs(first.mean() - 4) < 0.3
    torch.manual_seed(0)
    assert torch.equal(torch.poisson(rates).cpu(), first)
    own = torch.Generator(device=chip).manual_seed(0)
    assert torch.equal(torch.poisson(rates, generator=own).cpu(), first)


def test_lists_and_scalars(chip: torch.device) -> None:
    parts = [torch.randn(3, 3) for _ in range(3)]
    there = torch.linalg.multi_dot([p.to(chip) for p in parts])
    assert torch.allclose(there.cpu(), torch.linalg.multi_dot(parts), atol=1e-5)
    assert torch.block_diag(*[p.to(chip) for p in parts]).device == chip
    assert torch.allclose(
        torch.linalg.det(parts[0].to(chip)).cpu(), torch.linalg.det(parts[0]), atol=1e-6
    )


# Each reaches the host with its conjugate or negative bit set, or gives a result that has it.
BITS = {
    "conjugate": lambda a: torch.linalg.inv(a.conj()),
    "transposed conjugate": lambda a: torch.linalg.eigvals(a.mH),
    "conjugate and plain": lambda a: torch.linalg.solve(a.mH, a),
    "negative": lambda a: torch.special.airy_ai(a.conj().imag),
    "negative conjugate": lambda a: torch.linalg.inv(torch._neg_view(a.conj())),
    "into a negative": lambda a: torch.special.airy_ai(a.real, out=a.clone().conj().imag),
    "into a conjugate": lambda a: torch.linalg.inv(a, out=torch.zeros_like(a).conj()),
    "a list": lambda a: torch.linalg.multi_dot([a.conj(), a, a.mH]),
    "written through a conjugate": lambda a: (
        a.clone().conj().index_fill_(0, torch.tensor([1], device=a.device), 2j)
    ),
}


@pytest.mark.parametrize("case", BITS)
def test_conjugate_and_negative_bits(chip: torch.device, case: str) -> None:
    torch.manual_seed(0)
    host = torch.randn(4, 4, dtype=torch.complex64) + 2 * torch.eye(4)
    found, want = BITS[case](host.to(chip)), BITS[case](host)
    assert chipset.fallbacks(), "nothing fell back: the case tests something else"
    if case == "transposed conjugate":  # eigenvalues come in any order
        found, want = (torch.view_as_real(t.cpu()).sort(0).values for t in (found, want))
    torch.testing.assert_close(found.cpu(), want, rtol=1e-4, atol=1e-4)


def test_wrapped_numbers_promote_as_on_the_cpu(chip: torch.device) -> None:
    x = torch.ones(3, dtype=torch.float16)
    assert torch.special.zeta(x.to(chip).float(), 2).dtype == torch.special.zeta(x.float(), 2).dtype
    assert torch.float_power(x.to(chip), 2).dtype == torch.float64


def test_mixing_devices_is_torchs_error(chip: torch.device) -> None:
    x = torch.randn(3, 3)
    for call in (
        lambda a, b: a + b,
        lambda a, b: torch.mm(a, b),
        lambda a, b: torch.special.zeta(a.abs() + 2, b.abs()),
        lambda a, b: torch.cat([a, b]),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            call(x.to(chip), x)
        with pytest.raises(RuntimeError, match="same device"):
            call(x, x.to(chip))


def test_a_python_number_or_a_host_scalar_mixes(chip: torch.device) -> None:
    x = torch.randn(3)
    assert torch.equal((x.to(chip) + torch.tensor(2.0)).cpu(), x + 2)
    assert torch.equal((x.to(chip) * 3).cpu(), x * 3)


def at(device: torch.device, indices: list) -> torch.Tensor:
    return torch.tensor(indices).to(device)


ERRORS = {
    "shapes of add": lambda d: torch.ones(2, device=d) + torch.ones(3, device=d),
    "shapes of mm": lambda d: torch.mm(torch.ones(2, 3, device=d), torch.ones(2, 3, device=d)),
    "index out of range": lambda d: torch.ones(3, device=d)[5],
    "dim out of range": lambda d: torch.ones(3, device=d).sum(4),
    "dtype of mm": lambda d: torch.mm(torch.ones(2, 2, device=d), torch.ones(2, 2).double().to(d)),
    "cat of nothing": lambda d: torch.cat([]),
    "view": lambda d: torch.ones(4, device=d).view(3),
    "shapes of linear": lambda d: F.linear(torch.ones(2, 3, device=d), torch.ones(4, 5, device=d)),
    "bias of linear": lambda d: F.linear(
        torch.ones(2, 3, device=d), torch.ones(4, 3, device=d), torch.ones(5, device=d)
    ),
    "shapes of copy_": lambda d: torch.ones(2, 3, device=d).copy_(torch.ones(4, device=d)),
    "shapes of copy_ from the host": lambda d: torch.ones(2, 3, device=d).copy_(torch.ones(4)),
    "ranks of copy_": lambda d: torch.ones(3, device=d).copy_(torch.ones(2, 3, device=d)),
    "shapes of gather": lambda d: torch.ones(2, 3, device=d).gather(0, at(d, [[0, 1, 0, 0]])),
    "shapes of index": lambda d: torch.ones(2, 3, device=d)[at(d, [0, 1]), at(d, [0, 1, 2])],
    "dim of index_select": lambda d: torch.ones(2, 3, device=d).index_select(4, at(d, [0])),
    "shapes of index_put": lambda d: torch.ones(2, 3, device=d).index_put(
        (at(d, [0]),), torch.ones(5, device=d)
    ),
    "shapes of cross_entropy": lambda d: F.cross_entropy(
        torch.ones(2, 3, device=d), at(d, [0, 1, 2])
    ),
    "gradient of an integer": lambda d: torch.ones(3, device=d, dtype=torch.int64).requires_grad_(),
}

# Of the contents of an index tensor. A chip may find them only later, when there is no operator to
# name (ERR-003); the CPU chip finds them in the call.
INDEX_ERRORS = {
    "embedding": lambda d: F.embedding(at(d, [0, 5]), torch.ones(3, 2, device=d)),
    "gather": lambda d: torch.ones(2, 3, device=d).gather(1, at(d, [[0, 1, 7]])),
    "index": lambda d: torch.ones(3, 2, device=d)[at(d, [0, 5])],
    "index, negative": lambda d: torch.ones(3, device=d)[at(d, [0, -4])],
    "index, two": lambda d: torch.ones(2, 3, device=d)[at(d, [0, 1]), at(d, [0, 5])],
    "index_select": lambda d: torch.ones(3, 2, device=d).index_select(0, at(d, [0, 5])),
    "take": lambda d: torch.ones(2, 3, device=d).take(at(d, [9])),
    "cross_entropy": lambda d: F.cross_entropy(torch.ones(2, 3, device=d), at(d, [0, 5])),
    "cross_entropy, negative": lambda d: F.cross_entropy(
        torch.ones(2, 3, device=d), at(d, [0, -1])
    ),
    "cross_entropy of images": lambda d: F.cross_entropy(
        torch.ones(1, 3, 2, 2, device=d), at(d, [[[0, 1], [2, 7]]])
    ),
    "scatter": lambda d: torch.zeros(2, 3, device=d).scatter(1, at(d, [[0, 1, 5]]), 1.0),
    "scatter_add": lambda d: torch.zeros(2, 3, device=d).scatter_add(
        0, at(d, [[0, 1, 5]]), torch.ones(1, 3, device=d)
    ),
    "index_add": lambda d: torch.zeros(2, 3, device=d).index_add(
        1, at(d, [5]), torch.ones(2, 1, device=d)
    ),
    "index_copy": lambda d: torch.zeros(2, 3, device=d).index_copy(
        1, at(d, [5]), torch.ones(2, 1, device=d)
    ),
    "index_fill": lambda d: torch.zeros(2, 3, device=d).index_fill(1, at(d, [5]), 1.0),
    "index_put": lambda d: torch.zeros(2, 3, device=d).index_put(
        (at(d, [5]),), torch.ones(3, device=d)
    ),
}


def same_error(call, chip: torch.device) -> None:
    with pytest.raises(Exception) as on_cpu:
        call(torch.device("cpu"))
    with pytest.raises(Exception) as on_chip:
        call(chip)
    assert type(on_chip.value) is type(on_cpu.value)
    assert str(on_chip.value).splitlines()[0] == str(on_cpu.value).splitlines()[0]


@pytest.fixture
def finds_at_once(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--chip").split(":")[0] != "cpu":
        pytest.skip("this chip may find a bad index after the call")


@pytest.mark.usefixtures("finds_at_once")
@pytest.mark.parametrize("case", INDEX_ERRORS)
def test_index_errors_are_of_torchs_type_and_say_as_much(chip: torch.device, case: str) -> None:
    same_error(INDEX_ERRORS[case], chip)


@pytest.mark.usefixtures("finds_at_once")
def test_an_index_error_of_the_waist_names_plugin_and_function_once(
    pytestconfig: pytest.Config,
) -> None:
    """The bridge has words of its own; other callers get the plugin's."""
    driver = chipset.select(pytestconfig.getoption("--chip")).driver
    x, y = driver.empty((2,)), driver.empty((1,))
    with pytest.raises(Exception, match=r"^cpu: gather: index 5 is out of bounds") as error:
        driver.call(
            "gather", num_indices=1, output=y, input=x.view((1,), (0,)), index=[driver.array([5])],
            indexed_size=[2], indexed_stride=[1],
        )  # fmt: skip
    assert str(error.value).count("gather") == 1


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_of_torchs_type_and_say_as_much(chip: torch.device, case: str) -> None:
    same_error(ERRORS[case], chip)
