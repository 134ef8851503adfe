"""Matrix products of the chip give what torch's own CPU kernels give, on the chip."""

from __future__ import annotations

import pytest
import torch

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SHAPES = [(1, 1, 1), (4, 5, 6), (17, 33, 9), (64, 1, 64), (1, 70, 3), (3, 0, 4), (0, 3, 4)]


def matrix(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=torch.float64).to(dtype)


def tolerance(dtype):
    """The host rounds a half product in another order: a step of the format at |x| <= 16."""
    return {torch.bfloat16: (2e-2, 6e-2), torch.float16: (4e-3, 8e-3)}.get(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mm_and_addmm(agree, shape, dtype):
    m, k, n = shape
    a, b, c = matrix(m, k, dtype=dtype), matrix(k, n, dtype=dtype), matrix(m, n, dtype=dtype)
    options = {"tolerance": tolerance(dtype)}
    agree(torch.mm, a, b, **options)
    agree(torch.addmm, c, a, b, **options)
    agree(lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), c, a, b, **options)
    agree(torch.addmm, matrix(n, dtype=dtype), a, b, **options)
    agree(torch.addmm, matrix(m, 1, dtype=dtype), a, b, **options)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bmm_and_baddbmm(agree, dtype):
    a, b, c = matrix(3, 4, 5, dtype=dtype), matrix(3, 5, 6, dtype=dtype), matrix(4, 6, dtype=dtype)
    options = {"tolerance": tolerance(dtype)}
    agree(torch.bmm, a, b, **options)
    agree(torch.baddbmm, c, a, b, **options)
    agree(lambda c, a, b: torch.baddbmm(c, a, b, beta=0, alpha=0.5), c, a, b, **options)
    agree(torch.bmm, a[:1].expand(3, 4, 5), b, **options)


def test_layouts(agree):
    a, b = matrix(5, 4), matrix(6, 5)
    agree(lambda a, b: a.t() @ b.t(), a, b)
    agree(lambda a, b: a.t()[::2] @ b.t()[:, ::3], a, b)
    agree(lambda a: a[:1].expand(3, 4) @ a.t(), a)
    agree(lambda a: torch.bmm(a.transpose(1, 2), a), matrix(2, 3, 4))
    agree(lambda a: torch.bmm(a.permute(1, 0, 2), a.permute(1, 2, 0)), matrix(2, 3, 4))


def test_nan_is_not_read_where_beta_is_zero(agree):
    c = torch.full((2, 2), float("nan"))
    agree(lambda c, a: torch.addmm(c, a, a, beta=0), c, matrix(2, 2))
    agree(lambda c, a: torch.addmv(c[0], a, a[0], beta=0), c, matrix(2, 2))


@pytest.mark.parametrize("left", [(5,), (4, 5), (2, 4, 5), (3, 2, 4, 5)], ids=str)
@pytest.mark.parametrize("right", [(5,), (5, 6), (2, 5, 6), (1, 2, 5, 6)], ids=str)
def test_matmul(agree, left, right):
    agree(torch.matmul, matrix(*left), matrix(*right))


def test_vectors(agree):
    a, x, y = matrix(4, 5), matrix(5), matrix(4)
    agree(torch.mv, a, x)
    agree(torch.addmv, y, a, x)
    agree(lambda y, a, x: torch.addmv(y, a, x, beta=2, alpha=0.5), y, a, x)
    agree(lambda y, a, x: y.addmv_(a, x), y, a, x)
    agree(torch.dot, x, matrix(5))
    agree(torch.vdot, x, matrix(5))
    agree(torch.outer, x, y)
    agree(torch.addr, a, y, x)
    agree(torch.dot, torch.arange(4), torch.arange(4))
    agree(torch.dot, torch.empty(0), torch.empty(0))


def test_in_place_and_out(agree):
    a, b, c = matrix(4, 5), matrix(5, 6), matrix(4, 6)
    agree(lambda c, a, b: c.addmm_(a, b), c, a, b)
    agree(lambda a, b: torch.mm(a, b, out=torch.empty(6, 4, device=a.device).t()), a, b)
    agree(lambda a, b: torch.mm(a, b, out=torch.empty(0, device=a.device)), a, b)
    agree(lambda c, a, b: torch.addmm(c, a, b, out=c), c, a, b)
    batch = matrix(2, 4, 5), matrix(2, 5, 6)
    agree(lambda c, a, b: c.expand(2, 4, 6).clone().baddbmm_(a, b), c, *batch)
    agree(torch.addbmm, c, *batch)
    agree(lambda c, a, b: c.addbmm_(a, b, beta=0.5, alpha=2), c, *batch)
    agree(lambda c, a, b: torch.addbmm(c, a, b, beta=0), c, *batch)


def test_activation_is_fused(agree):
    a, b, c = matrix(4, 5), matrix(5, 6), matrix(6)
    agree(torch._addmm_activation, c, a, b)
    agree(lambda c, a, b: torch._addmm_activation(c, a, b, use_gelu=True), c, a, b,
          tolerance=(1e-3, 1e-3))  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "shape", [(5,), (4, 5), (2, 3, 5), (2, 1, 3, 5), (0, 5), (2, 0, 5)], ids=str
)
@pytest.mark.parametrize("biased", [False, True])
def test_linear(agree_on_gradients, shape, biased, dtype):
    x, w = matrix(*shape, dtype=dtype).requires_grad_(), matrix(6, 5, dtype=dtype).requires_grad_()
    options = {"tolerance": tolerance(dtype)}
    linear = torch.nn.functional.linear
    if biased:
        agree_on_gradients(linear, x, w, matrix(6, dtype=dtype).requires_grad_(), **options)
    else:
        agree_on_gradients(linear, x, w, **options)


def test_linear_of_strided_input(agree_on_gradients):
    w = matrix(6, 5).requires_grad_()
    linear = torch.nn.functional.linear
    agree_on_gradients(linear, matrix(3, 2, 5).transpose(0, 1).requires_grad_(), w)
    agree_on_gradients(linear, matrix(3, 5, 2).transpose(1, 2).requires_grad_(), w)
    agree_on_gradients(lambda x, w: linear(x[:, -1:], w), matrix(3, 2, 5).requires_grad_(), w)


@pytest.mark.parametrize("name", ["mm", "matmul"])
def test_gradients(agree_on_gradients, name):
    a, b = matrix(4, 5).requires_grad_(), matrix(5, 6).requires_grad_()
    agree_on_gradients(getattr(torch, name), a, b)
    agree_on_gradients(lambda c, a, b: torch.addmm(c, a, b), matrix(6).requires_grad_(), a, b)
    agree_on_gradients(torch.bmm, a[None].detach().requires_grad_(), b[None].detach())


def test_second_derivative_of_linear(chip):
    def run(device):
        torch.manual_seed(1)
        x, w = (torch.randn(3, 4, dtype=torch.float64).to(device).requires_grad_() for _ in "xw")
        y = torch.nn.functional.linear(x, w).pow(3).sum()
        (g,) = torch.autograd.grad(y, w, create_graph=True)
        return torch.autograd.grad(g.pow(2).sum(), [x, w])

    for ours, theirs in zip(run(chip), run(torch.device("cpu")), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


@pytest.fixture
def two_ranks(chip):
    """A process group that pretends: rank 0 of 2, whose collectives move nothing."""
    from torch import distributed
    from torch.testing._internal.distributed import fake_pg

    if not hasattr(distributed.Backend, "CHIPFAKE"):
        distributed.Backend.register_backend(
            "chipfake", fake_pg._create_fake_pg, extended_api=True, devices=["chip"]
        )
    store = fake_pg.FakeStore()
    distributed.init_process_group("cpu:fake,chip:chipfake", rank=0, world_size=2, store=store)
    yield distributed.device_mesh.init_device_mesh("chip", (2,))
    distributed.destroy_process_group()


def test_linear_of_sharded_tensors(two_ranks, chip):
    from torch.distributed.tensor import parallel

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)).to(chip)
    styles = {"0": parallel.ColwiseParallel(), "1": parallel.RowwiseParallel()}
    model = parallel.parallelize_module(model, two_ranks, styles)
    model(torch.randn(2, 3, 8, device=chip)).sum().backward()
    assert [tuple(p.grad.to_local().shape) for p in model.parameters()] == [
        (8, 8), (8,), (4, 8), (4,),
    ]  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp_partition"])
def test_linear_is_traced(chip, backend):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)).to(chip)
    x = torch.randn(2, 3, 8, device=chip)
    model(x).sum().backward()
    want = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch._dynamo.reset()
    torch.compile(model, backend=backend, dynamic=True)(x).sum().backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], want)


def test_linear_under_function_transforms(chip):
    w, x = torch.randn(4, 8, device=chip), torch.randn(5, 3, 8, device=chip)
    linear = torch.nn.functional.linear
    torch.testing.assert_close(torch.func.vmap(linear, (0, None))(x, w), linear(x, w))
    _, tangent = torch.func.jvp(lambda x: linear(x, w), (x,), (torch.ones_like(x),))
    torch.testing.assert_close(tangent, linear(torch.ones_like(x), w))


def test_grouped(agree):
    x, w = matrix(8, 16, dtype=torch.bfloat16), matrix(3, 16, 8, dtype=torch.bfloat16)
    ends = torch.tensor([2, 2, 8], dtype=torch.int32)

    def grouped(x, w, ends):
        if x.device.type == "chip":
            return torch._grouped_mm(x, w, offs=ends)
        parts, begin = [], 0
        for group, end in enumerate(ends.tolist()):
            parts.append(x[begin:end] @ w[group])
            begin = end
        return torch.cat(parts)

    agree(grouped, x, w, ends, tolerance=tolerance(torch.bfloat16), allow=("aten::cat",))


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.mm(torch.ones(3, 4, device=d), torch.ones(3, 4, device=d)),
        lambda d: torch.ones(3, 4, device=d) @ torch.ones(3, 4, device=d),
        lambda d: torch.mm(torch.ones(3, device=d), torch.ones(3, 4, device=d)),
        lambda d: torch.bmm(torch.ones(2, 3, 4, device=d), torch.ones(3, 4, 5, device=d)),
        lambda d: torch.addmm(torch.ones(7, device=d), torch.ones(3, 4, device=d),
                              torch.ones(4, 5, device=d)),
        lambda d: torch.mm(torch.ones(3, 4, device=d), torch.ones(4, 3, device=d).double()),
        lambda d: torch.dot(torch.ones(3, device=d), torch.ones(4, device=d)),
        lambda d: torch.nn.Linear(4, 5, device=d)(torch.ones(2, 3, device=d)),
    ],
)  # fmt: skip
def test_errors_are_those_of_torch(chip, call):
    with pytest.raises(Exception) as theirs:
        call(torch.device("cpu"))
    with pytest.raises(type(theirs.value)) as ours:
        call(chip)
    assert (
        "shape" in str(ours.value)
        or str(ours.value).splitlines()[0] == (str(theirs.value).splitlines()[0])
    )


def test_two_devices(chip):
    a = torch.ones(3, 3)
    for call in [torch.mm, torch.matmul, torch.nn.functional.linear]:
        with pytest.raises(RuntimeError, match="same device"):
            call(a.to(chip), a)
