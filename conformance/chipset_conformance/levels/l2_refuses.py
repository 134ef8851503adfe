"""Level 2, calls that must be refused: with a text, and with nothing written (SHP-003, ERR-002)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from chipset._interface import Dtype, PointwiseOp, ReduceOp, ScanOp, Status
from chipset_conformance.case import MANDATORY, OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.trial import Trial

Fields = dict[str, Any]
REQUIRED = ("pointwise", "reduce", "gather", "scatter")


@cases(level=2)
def refusal_cases() -> Iterator[Case]:
    for name, make in REFUSALS.items():
        function = name.split("/")[0]
        yield Case(
            id=f"refuses/{name}",
            functions=(function,),
            tags=frozenset({MANDATORY if function in REQUIRED else OPTIONAL}),
            rule="SHP-003",
            run=partial(check, function=function, make=make),
        )


def check(context: Context, function: str, make: Callable[[Trial], Fields]) -> None:
    """INVALID, or UNSUPPORTED; either with a text, and every output as it was."""
    trial = Trial(context, function, "must be refused")
    fields = make(trial)
    trial.refuse(Status.INVALID, Status.UNSUPPORTED, **fields)


def _x(trial: Trial, shape: tuple[int, ...], dtype: Dtype = Dtype.F32, name: str = "x") -> Any:
    return trial.give(name, np.ones(shape), dtype)


def _y(trial: Trial, shape: tuple[int, ...], dtype: Dtype = Dtype.F32, name: str = "y") -> Any:
    return trial.take(name, shape, dtype)


def _pointwise(trial: Trial, x: Any, y: Any, **changes: Any) -> Fields:
    fields = {"op": PointwiseOp.NEG, "compute_dtype": Dtype.F32, "num_inputs": 1}
    return {**fields, "input": [x], "output": y, **changes}


def _reduce(x: Any, y: Any, **changes: Any) -> Fields:
    fields = {"op": ReduceOp.SUM, "compute_dtype": Dtype.F32, "dims": 2}
    return {**fields, "input": x, "output": y, **changes}


def _index(trial: Trial, shape: tuple[int, ...], dtype: Dtype = Dtype.I64) -> Any:
    return trial.give("index", np.zeros(shape), dtype)


REFUSALS: dict[str, Callable[[Trial], Fields]] = {
    "pointwise/unknown-op": lambda t: _pointwise(t, _x(t, (4,)), _y(t, (4,)), op=100000),
    "pointwise/negative-op": lambda t: _pointwise(t, _x(t, (4,)), _y(t, (4,)), op=-1),
    "pointwise/shapes": lambda t: _pointwise(t, _x(t, (4,)), _y(t, (5,))),
    "pointwise/ranks": lambda t: _pointwise(t, _x(t, (4, 1)), _y(t, (4,))),
    "pointwise/no-output": lambda t: _pointwise(t, _x(t, (4,)), None),
    "pointwise/arity": lambda t: _pointwise(t, _x(t, (4,)), _y(t, (4,)), num_inputs=3),
    "pointwise/compute-dtype": lambda t: _pointwise(t, _x(t, (4,)), _y(t, (4,)), compute_dtype=99),
    "pointwise/bitwise-of-floats": lambda t: _pointwise(
        t, _x(t, (4,)), _y(t, (4,)), op=PointwiseOp.BITWISE_NOT
    ),
    "reduce/unknown-op": lambda t: _reduce(_x(t, (3, 4)), _y(t, (3, 1)), op=1000),
    "reduce/kept-dimension": lambda t: _reduce(_x(t, (3, 4)), _y(t, (3, 4))),
    "reduce/shapes": lambda t: _reduce(_x(t, (3, 4)), _y(t, (2, 1))),
    "reduce/no-input": lambda t: _reduce(None, _y(t, (3, 1))),
    "gather/no-index": lambda t: {
        "num_indices": 0, "input": _x(t, (4,)), "output": _y(t, (4,)),
    },
    "gather/index-dtype": lambda t: {
        "num_indices": 1, "input": _x(t, (4,)), "output": _y(t, (4,)),
        "index": [_index(t, (4,), Dtype.F32)], "indexed_size": [4], "indexed_stride": [1],
    },
    "gather/dtypes": lambda t: {
        "num_indices": 1, "input": _x(t, (4,)), "output": _y(t, (4,), Dtype.I32),
        "index": [_index(t, (4,))], "indexed_size": [4], "indexed_stride": [1],
    },
    "gather/index-shape": lambda t: {
        "num_indices": 1, "input": _x(t, (4,)), "output": _y(t, (4,)),
        "index": [_index(t, (3,))], "indexed_size": [4], "indexed_stride": [1],
    },
    "scatter/unknown-op": lambda t: {
        "op": 77, "num_indices": 1, "destination": _y(t, (4,)), "source": _x(t, (4,)),
        "index": [_index(t, (4,))], "indexed_size": [4], "indexed_stride": [1],
    },
    "scatter/dtypes": lambda t: {
        "op": 0, "num_indices": 1, "destination": _y(t, (4,)), "source": _x(t, (4,), Dtype.I32),
        "index": [_index(t, (4,))], "indexed_size": [4], "indexed_stride": [1],
    },
    "softmax/dim": lambda t: {"dim": 2, "input": _x(t, (3, 4)), "output": _y(t, (3, 4))},
    "softmax/shapes": lambda t: {"dim": 1, "input": _x(t, (3, 4)), "output": _y(t, (3, 5))},
    "norm/weight": lambda t: {
        "kind": 0, "eps": 1e-5, "x": _x(t, (3, 4)), "weight": _x(t, (5,), name="w"),
        "y": _y(t, (3, 4)),
    },
    "attention/heads": lambda t: {
        "q": _x(t, (1, 3, 4, 8), name="q"), "k": _x(t, (1, 2, 4, 8), name="k"),
        "v": _x(t, (1, 2, 4, 8), name="v"), "out": _y(t, (1, 3, 4, 8)), "scale": 1.0,
        "window_left": -1, "window_right": -1,
    },
    "attention/depths": lambda t: {
        "q": _x(t, (1, 2, 4, 8), name="q"), "k": _x(t, (1, 2, 4, 6), name="k"),
        "v": _x(t, (1, 2, 4, 8), name="v"), "out": _y(t, (1, 2, 4, 8)), "scale": 1.0,
        "window_left": -1, "window_right": -1,
    },
    "rotary/odd": lambda t: {
        "x": _x(t, (1, 1, 2, 8)), "cos": _x(t, (1, 2, 5), name="cos"),
        "sin": _x(t, (1, 2, 5), name="sin"), "y": _y(t, (1, 1, 2, 8)),
    },
    "scan/dim": lambda t: {
        "op": ScanOp.SUM, "dim": 3, "compute_dtype": Dtype.F32, "input": _x(t, (3, 4)),
        "output": _y(t, (3, 4)),
    },
    "sort/k": lambda t: {
        "dim": 1, "k": 9, "input": _x(t, (3, 4)), "values": _y(t, (3, 9)),
        "indices": _y(t, (3, 9), Dtype.I64, "indices"),
    },
    "random/unknown-kind": lambda t: {"kind": 99, "output": _y(t, (4,))},
    "quantize/scale-shape": lambda t: {
        "given_scale": 1, "group_size": 4, "x": _x(t, (2, 8)), "q": _y(t, (2, 8), Dtype.I8),
        "scale": _x(t, (2, 3), name="scale"),
    },
}  # fmt: skip
