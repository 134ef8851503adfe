"""ONNX graphs on the CPU chip, driven with NumPy: compiled, run, captured, refused."""

from __future__ import annotations

import ctypes
import io
import os
import warnings
from typing import Any

import numpy as np
import pytest

import chipset
from chipset._interface import Dtype, Status, Tensor
from chipset._runtime import Error
from chipset.driver import DeviceArray

onnx = pytest.importorskip("onnx", reason="pip install onnx")
pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
F32, I64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64

Shape = list[int | str]
Declared = list[tuple[str, int, Shape]]


@pytest.fixture(scope="module")
def chip() -> Any:
    return chipset.select("cpu:0").driver


def model(
    nodes: list[Any], inputs: Declared, outputs: Declared, weights: dict[str, np.ndarray[Any, Any]]
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(made.SerializeToString())


def layer(rows: int | str) -> tuple[bytes, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """relu(x @ w + b) with x of [rows, 6]; the weights too."""
    rng = np.random.default_rng(0)
    w, b = rng.standard_normal((6, 4), np.float32), rng.standard_normal(4, np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["y"]),
    ]
    given, made = [("x", F32, [rows, 6])], [("y", F32, [rows, 4])]
    return model(nodes, given, made, {"w": w, "b": b}), w, b


class Graph:
    def __init__(self, chip: Any, onnx_model: bytes) -> None:
        self.chip, self.handle = chip, ctypes.c_void_p()
        chip.invoke("graph_compile", 0, onnx_model, len(onnx_model), ctypes.addressof(self.handle))

    def bind(self, inputs: list[DeviceArray], outputs: list[DeviceArray]) -> tuple[Any, ...]:
        given = (Tensor * max(1, len(inputs)))(*[a.tensor() for a in inputs])
        made = (Tensor * max(1, len(outputs)))(*[a.tensor() for a in outputs])
        return (
            self.chip.stream, self.handle, len(inputs), given, len(outputs), made,
        )  # fmt: skip

    def run(self, inputs: list[DeviceArray], outputs: list[DeviceArray]) -> None:
        stream, handle, n, given, m, made = self.bind(inputs, outputs)
        self.chip.invoke(
            "graph_run", stream, handle, n, ctypes.addressof(given), m, ctypes.addressof(made)
        )

    def destroy(self) -> None:
        self.chip.invoke("graph_destroy", self.handle)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def refusal(chip: Any, onnx_model: bytes) -> tuple[int, str]:
    handle = ctypes.c_void_p(1)
    arguments = (0, onnx_model, len(onnx_model), ctypes.addressof(handle))
    status = chip.status("graph_compile", *arguments)
    assert handle.value is None  # no graph comes out of a refusal
    with pytest.raises(Error) as caught:
        chip.invoke("graph_compile", *arguments)
    return status, str(caught.value)


def test_a_layer_equals_numpy(chip: Any) -> None:
    blob, w, b = layer(3)
    graph = Graph(chip, blob)
    x = normal(3, 6)
    y = chip.empty((3, 4))
    graph.run([chip.array(x)], [y])
    np.testing.assert_allclose(y.numpy(), np.maximum(x @ w + b, 0), rtol=1e-5, atol=1e-6)
    graph.destroy()


def test_a_dynamic_size_is_decided_by_each_run(chip: Any) -> None:
    blob, w, b = layer("rows")
    graph = Graph(chip, blob)
    for rows in (1, 5, 0, 64):
        x = normal(rows, 6)
        y = chip.empty((rows, 4))
        graph.run([chip.array(x)], [y])
        np.testing.assert_allclose(y.numpy(), np.maximum(x @ w + b, 0), rtol=1e-5, atol=1e-6)
    wrong = chip.array(np.full((7, 4), 9, np.float32))
    with pytest.raises(Error, match=r"output 0 'y' has shape \[7, 4\].*yields \[5, 4\]"):
        graph.run([chip.array(normal(5, 6))], [wrong])
    assert (wrong.numpy() == 9).all()  # an error has written nothing
    graph.destroy()


def test_several_inputs_outputs_and_dtypes(chip: Any) -> None:
    nodes = [
        helper.make_node("Gather", ["table", "index"], ["rows"], axis=0),
        helper.make_node("Cast", ["rows"], ["half"], to=onnx.TensorProto.FLOAT16),
        helper.make_node("ReduceMax", ["rows"], ["most"], keepdims=0),
        helper.make_node("Greater", ["rows", "most"], ["above"]),
    ]
    graph = Graph(
        chip,
        model(
            nodes,
            [("table", F32, [5, 3]), ("index", I64, [2])],
            [
                ("half", onnx.TensorProto.FLOAT16, [2, 3]),
                ("most", F32, []),
                ("above", onnx.TensorProto.BOOL, [2, 3]),
            ],
            {},
        ),
    )
    table, index = normal(5, 3), np.array([4, 0])
    half, most = chip.empty((2, 3), Dtype.F16), chip.empty(())
    above = chip.empty((2, 3), Dtype.BOOL)
    graph.run([chip.array(table), chip.array(index)], [half, most, above])
    np.testing.assert_array_equal(half.numpy(), table[index].astype(np.float16))
    assert most.numpy() == table[index].max()
    assert not above.numpy().any()
    graph.destroy()


def test_what_does_not_fit_is_refused(chip: Any) -> None:
    graph = Graph(chip, layer(3)[0])
    x, y = chip.array(normal(3, 6)), chip.empty((3, 4))
    for inputs, outputs, text in (
        ([chip.array(normal(2, 6))], [y], r"input 0 'x' is f32 \[2, 6\].*declares f32 \[3, 6\]"),
        ([chip.array(np.ones((3, 6)))], [y], r"is f64 \[3, 6\]"),
        ([x], [chip.empty((4, 3))], r"output 0 'y' is f32 \[4, 3\]"),
        ([chip.array(normal(6, 3)).transpose()], [y], "not contiguous"),
        ([x, x], [y], "2 inputs given, the graph has 1"),
        ([x], [], "0 outputs given, the graph has 1"),
    ):
        with pytest.raises(Error, match=text):
            graph.run(inputs, outputs)
    graph.run([x], [y])  # and it still runs
    graph.destroy()
    chip.invoke("graph_destroy", None)


def test_a_broken_model_is_invalid(chip: Any) -> None:
    blob = layer(3)[0]
    for broken in (b"\x00not a model\xff", blob[: len(blob) // 2]):
        status, text = refusal(chip, broken)
        assert status == Status.INVALID and "graph_compile: " in text
    handle = ctypes.c_void_p()
    assert chip.status("graph_compile", 0, None, 0, ctypes.addressof(handle)) == Status.INVALID
    assert chip.status("graph_compile", 9, blob, len(blob), ctypes.addressof(handle)) != 0


def test_an_operator_that_cannot_be_compiled_is_named(chip: Any) -> None:
    given, made = [("x", F32, [2])], [("y", F32, [2])]
    unknown = model([helper.make_node("Frobnicate", ["x"], ["y"])], given, made, {})
    status, text = refusal(chip, unknown)
    assert status == Status.UNSUPPORTED and "Frobnicate" in text


def test_a_captured_run_is_replayed_on_new_contents(chip: Any) -> None:
    blob, w, b = layer(3)
    graph, captured = Graph(chip, blob), ctypes.c_void_p()
    x, y = chip.array(normal(3, 6)), chip.array(np.zeros((3, 4), np.float32))
    chip.invoke("capture_begin", chip.stream)
    graph.run([x], [y])
    chip.invoke("capture_end", chip.stream, ctypes.addressof(captured))
    assert (y.numpy() == 0).all()
    for factor in (1, -2):
        fresh = normal(3, 6) * factor
        chip.invoke("mem_copy", chip.stream, x.address, fresh.ctypes.data, fresh.nbytes, 0)
        chip.invoke("capture_replay", captured, chip.stream)
        np.testing.assert_allclose(y.numpy(), np.maximum(fresh @ w + b, 0), rtol=1e-5, atol=1e-6)
    compiled, graph.handle = graph.handle, captured
    with pytest.raises(Error, match="captured graph is run with capture_replay"):
        graph.run([x], [y])
    graph.handle = compiled
    chip.invoke("graph_destroy", captured)
    graph.destroy()


def test_a_forked_child_is_told_to_compile_again(chip: Any) -> None:
    graph = Graph(chip, layer(3)[0])
    x, y = chip.array(normal(3, 6)), chip.empty((3, 4))
    child = os.fork()
    if child == 0:
        try:
            graph.run([x], [y])
            os._exit(1)
        except Error as error:
            os._exit(0 if "compile it again" in str(error) else 2)
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    graph.run([x], [y])
    graph.destroy()


def test_without_onnxruntime_the_text_says_what_to_install(run_python: Any, tmp_path: Any) -> None:
    code = """
import ctypes, chipset
chip = chipset.select("cpu:0").driver
handle = ctypes.c_void_p()
print(chip.status("graph_compile", 0, b"model", 5, ctypes.addressof(handle)))
try:
    chip.invoke("graph_compile", 0, b"model", 5, ctypes.addressof(handle))
except Exception as error:
    print(error)
"""
    done = run_python(code, env={"CHIPSET_CPU_ONNXRUNTIME": str(tmp_path)})
    status, text = done.stdout.split("\n", 1)
    assert int(status) == Status.UNSUPPORTED
    assert str(tmp_path) in text and "pip install onnxruntime" in text


def test_an_exported_transformer_layer_equals_torch(chip: Any) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    network = torch.nn.Sequential(torch.nn.Embedding(50, 32), layer, torch.nn.Linear(32, 50)).eval()
    tokens = torch.randint(50, (2, 7))
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, (tokens,), buffer, dynamo=False, input_names=["tokens"],
            dynamic_axes={"tokens": {0: "batch"}},
        )  # fmt: skip
    graph = Graph(chip, buffer.getvalue())
    for batch in (2, 5):
        tokens = torch.randint(50, (batch, 7))
        logits = chip.empty((batch, 7, 50))
        graph.run([chip.array(tokens.numpy())], [logits])
        with torch.no_grad():
            expected = network(tokens).numpy()
        np.testing.assert_allclose(logits.numpy(), expected, rtol=1e-4, atol=1e-5)
    graph.destroy()
