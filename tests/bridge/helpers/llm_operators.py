"""The ATen operators that the 15 families call, each with operands to call it with.

The list was recorded from the unmodified models on PyTorch's CPU: training, greedy generation,
sampling, bfloat16 autocast. DEVICE stands for the device under test.
"""

from __future__ import annotations

from typing import Any

import torch

DEVICE = object()
F = torch.float32


def t(*shape: int, positive: bool = False) -> torch.Tensor:
    """Normal numbers, the same at every call of one shape; positive ones on request."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)))
    return x.abs() + 0.1 if positive else x


def i(*shape: int, high: int = 3) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(len(shape)))


def m(*shape: int) -> torch.Tensor:
    return t(*shape) > 0


ON = {"device": DEVICE}
NORM = (t(4, 6), [6], t(6), t(6), 1e-5)
STATISTICS = (t(4, 6).mean(1, True), (t(4, 6).var(1, correction=0, keepdim=True) + 1e-5).rsqrt())
CONV = ([1], [2], [1], False, [0], 4)

# name without "aten.": positional arguments, and last a dict of keyword arguments where needed.
CALLS: dict[str, tuple[Any, ...]] = {
    "_foreach_mul_.Tensor": ([t(3), t(2, 2)], torch.tensor(0.5)),
    "_foreach_norm.Scalar": ([t(3), t(2, 2)], 2),
    "_grouped_mm.default": (
        t(8, 16).bfloat16(), t(2, 16, 8).bfloat16(), torch.tensor([3, 8], dtype=torch.int32)),
    "_local_scalar_dense.default": (t(1),),
    "_log_softmax.default": (t(3, 5), 1, False),
    "_log_softmax_backward_data.default": (t(3, 5), t(3, 5).log_softmax(1), 1, F),
    "_safe_softmax.default": (t(3, 5), 1),
    "_softmax.default": (t(3, 5), 1, False),
    "_softmax_backward_data.default": (t(3, 5), t(3, 5).softmax(1), 1, F),
    "_to_copy.default": (t(3, 5), {"dtype": torch.bfloat16}),
    "_unsafe_view.default": (t(3, 4), [2, 6]),
    "add.Tensor": (t(3, 5), t(5)),
    "add_.Tensor": (t(3, 5), t(5)),
    "addcdiv_.default": (t(3, 5), t(3, 5), t(3, 5, positive=True), {"value": -0.1}),
    "addcmul_.default": (t(3, 5), t(3, 5), t(3, 5), {"value": 0.1}),
    "addmm.default": (t(5), t(3, 4), t(4, 5)),
    "alias.default": (t(3),),
    "all.default": (m(3, 5),),
    "any.default": (m(3, 5),),
    "any.dim": (m(3, 5), 1),
    "arange.default": (7, ON),
    "arange.start": (2, 7, ON),
    "argmax.default": (t(3, 5), -1),
    "as_strided.default": (t(12), [3, 2], [4, 1]),
    "baddbmm.default": (t(2, 3, 5), t(2, 3, 4), t(2, 4, 5), {"beta": 1.0, "alpha": 0.5}),
    "bernoulli_.float": (t(3, 5), 0.9),
    "bitwise_and.Tensor": (m(3, 5), m(5)),
    "bitwise_not.default": (m(3, 5),),
    "bitwise_or.Tensor": (m(3, 5), m(5)),
    "bmm.default": (t(2, 3, 4), t(2, 4, 5)),
    "cat.default": ([t(2, 3), t(4, 3)], 0),
    "clamp.default": (t(3, 5), None, 1.0),
    "clone.default": (t(3, 5),),
    "constant_pad_nd.default": (t(3, 5), [0, 1], -100),
    "convolution.default": (t(1, 4, 6), t(4, 1, 3), t(4), *CONV),
    "convolution_backward.default": (
        t(1, 4, 8), t(1, 4, 6), t(4, 1, 3), [4], *CONV, [True, True, True]),
    "copy_.default": (t(3, 5), t(3, 5).bfloat16()),
    "cos.default": (t(3, 5),),
    "cumsum.default": (i(3, 5), -1),
    "detach.default": (t(3),),
    "div.Scalar": (t(3, 5), 4.0),
    "div.Tensor": (t(3, 5), t(5, positive=True)),
    "div_.Scalar": (t(3, 5), 0.9),
    "div_.Tensor": (t(3, 5), t(3, 5, positive=True)),
    "embedding.default": (t(7, 4), i(2, 3)),
    "embedding_dense_backward.default": (t(2, 3, 4), i(2, 3), 7, 0, False),
    "empty_like.default": (t(3, 5),),
    "eq.Scalar": (i(3, 5), 1),
    "exp.default": (t(3, 5),),
    "expand.default": (t(3, 1), [3, 5]),
    "fill_.Tensor": (t(3, 5), torch.tensor(2.0)),
    "floor_divide.default": (i(7), 2),
    "full.default": ([3, 5], 0.5, ON),
    "gather.default": (t(3, 5), 1, i(3, 2)),
    "gelu.default": (t(3, 5),),
    "gelu_backward.default": (t(3, 5), t(3, 5), {"approximate": "tanh"}),
    "gt.Tensor": (i(3, 5), i(5)),
    "histc.default": (i(20).int(), {"bins": 4, "min": 0, "max": 3}),
    "index.Tensor": (t(5, 4), [i(3)]),
    "index_put.default": (t(5, 4), [i(3)], t(3, 4), True),
    "index_put_.default": (t(5, 4), [torch.tensor([4, 0])], t(2, 4)),
    "isin.Tensor_Tensor": (i(3, 5), torch.tensor([0, 2])),
    "le.Scalar": (t(3, 5), 0.1),
    "le.Tensor": (i(3, 5), i(5)),
    "lerp_.Scalar": (t(3, 5), t(3, 5), 0.1),
    "lift_fresh.default": (t(3),),
    "linalg_vector_norm.default": (t(3, 5),),
    "lt.Scalar": (i(3, 5), 2),
    "lt.Tensor": (t(3, 5), t(3, 1)),
    "masked_fill.Scalar": (t(3, 5), m(3, 5), -1e9),
    "max.default": (i(3, 5),),
    "mean.dim": (t(3, 5), [-1], True),
    "mm.default": (t(3, 4), t(4, 5)),
    "mul.Scalar": (t(3, 5), 0.5),
    "mul.Tensor": (t(3, 5), t(5)),
    "mul_.Tensor": (t(3, 5), torch.tensor(0.9)),
    "multinomial.default": (t(3, 5, positive=True), 1),
    "native_layer_norm.default": NORM,
    "native_layer_norm_backward.default": (
        t(4, 6), t(4, 6), [6], *STATISTICS, t(6), t(6), [True, True, True]),
    "ne.Tensor": (i(3, 5), i(5)),
    "neg.default": (t(3, 5),),
    "new_empty.default": (t(3), [2, 2]),
    "new_empty_strided.default": (t(3), [2, 2], [1, 2]),
    "new_ones.default": (t(3), [2, 2]),
    "new_zeros.default": (t(3), [2, 2]),
    "nll_loss_backward.default": (
        torch.tensor(1.0), t(3, 5), i(3), None, 1, -100, torch.tensor(3.0)),
    "nll_loss_forward.default": (t(3, 5), i(3), None, 1, -100),
    "ones.default": ([3, 5], ON),
    "ones_like.default": (t(3, 5),),
    "permute.default": (t(2, 3, 4), [2, 0, 1]),
    "pow.Tensor_Scalar": (t(3, 5), 2),
    "pow.Tensor_Tensor": (torch.tensor(0.5), i(5)),
    "reciprocal.default": (t(3, positive=True),),
    "repeat.default": (t(2, 3), [2, 1]),
    "rsqrt.default": (t(3, positive=True),),
    "rsub.Scalar": (t(3, 5), 1.0),
    "scalar_tensor.default": (0.5, ON),
    "scatter.src": (m(3, 5), 1, torch.arange(5).expand(3, 5).flip(1), m(3, 5)),
    "scatter_.value": (t(3, 5), 1, i(3, 2), 1.0),
    "scatter_add.default": (t(3, 5), 1, i(3, 2), t(3, 2)),
    "select.int": (t(3, 5), 1, 2),
    "select_backward.default": (t(3), [3, 5], 1, 2),
    "sigmoid.default": (t(3, 5),),
    "sigmoid_backward.default": (t(3, 5), t(3, 5).sigmoid()),
    "silu.default": (t(3, 5),),
    "silu_backward.default": (t(3, 5), t(3, 5)),
    "sin.default": (t(3, 5),),
    "slice.Tensor": (t(3, 5), 1, 1, 4),
    "slice_backward.default": (t(3, 2), [3, 5], 1, 1, 3, 1),
    "softplus.default": (t(3, 5),),
    "softplus_backward.default": (t(3, 5), t(3, 5), 1, 20),
    "sort.default": (t(3, 5),),
    "split.Tensor": (t(4, 6), 3, 1),
    "split_with_sizes.default": (t(4, 6), [2, 4], 1),
    "sqrt.default": (t(3, positive=True),),
    "squeeze.dim": (t(3, 1), 1),
    "stack.default": ([t(3), t(3)],),
    "sub.Tensor": (t(3, 5), t(5)),
    "sum.dim_IntList": (t(3, 5), [0], True),
    "t.default": (t(3, 5),),
    "tanh.default": (t(3, 5),),
    "tanh_backward.default": (t(3, 5), t(3, 5).tanh()),
    "topk.default": (t(3, 5), 2),
    "transpose.int": (t(3, 5), 0, 1),
    "tril.default": (t(4, 4),),
    "unsqueeze.default": (t(3, 5), 0),
    "view.default": (t(3, 4), [12]),
    "where.self": (m(3, 5), t(3, 5), t(5)),
    "zeros.default": ([3, 5], ON),
    "zeros_like.default": (t(3, 5),),
}  # fmt: skip
# Undefined or random by nature: only shape, strides and dtype are compared.
ANY_VALUES = {"bernoulli_.float", "multinomial.default", "empty_like.default",
              "new_empty.default", "new_empty_strided.default"}  # fmt: skip
# Of torch's CPU alone, where the chip has its own: judged by the function that chooses it.
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
OTHERS = {
    f"aten.{ATTENTION}.default",
    f"aten.{ATTENTION}_backward.default",
    "profiler._record_function_enter_new.default",
    "profiler._record_function_exit._RecordFunction",
}
