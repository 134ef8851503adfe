"""The fused cells that torch chooses for LSTM and GRU on every device but the CPU.

Composed of operators that a chip has; torch has kernels of them for few devices, none on the CPU,
so that not even the host could run them.
"""

from __future__ import annotations

from typing import Any

import torch

_library: Any = None  # the registrations live as long as this object


def register() -> None:
    global _library
    _library = torch.library.Library("aten", "IMPL")
    for cell in (lstm, lstm_backward, gru, gru_backward):
        _library.impl(NAMES[cell.__name__], cell, "PrivateUse1")


NAMES = {
    "lstm": "_thnn_fused_lstm_cell",
    "lstm_backward": "_thnn_fused_lstm_cell_backward_impl",
    "gru": "_thnn_fused_gru_cell",
    "gru_backward": "_thnn_fused_gru_cell_backward",
}
T = torch.Tensor


def lstm(
    input_gates: T,
    hidden_gates: T,
    cx: T,
    input_bias: T | None = None,
    hidden_bias: T | None = None,
) -> tuple[T, T, T]:
    """Gates [N, 4H] in the order input, forget, cell, output. Gives hy, cy and the workspace."""
    gates = _biased(input_gates, input_bias) + _biased(hidden_gates, hidden_bias)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def lstm_backward(
    grad_hy: T | None, grad_cy: T | None, cx: T, cy: T, workspace: T, has_bias: bool
) -> tuple[T | None, T | None, T | None]:
    """Gradients of the gates, of cx and of each bias."""
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = workspace.chunk(4, 1)
    squashed = cy.tanh()
    dh = torch.zeros_like(cy) if grad_hy is None else grad_hy
    dc = dh * o * (1 - squashed * squashed)
    if grad_cy is not None:
        dc = dc + grad_cy
    gates = torch.cat(
        [
            dc * g * i * (1 - i),
            dc * cx * f * (1 - f),
            dc * i * (1 - g * g),
            dh * squashed * o * (1 - o),
        ],
        1,
    )
    return gates, dc * f, gates.sum(0) if has_bias else None


def gru(
    input_gates: T,
    hidden_gates: T,
    hx: T,
    input_bias: T | None = None,
    hidden_bias: T | None = None,
) -> tuple[T, T]:
    """Gates [N, 3H] in the order reset, update, new. Gives hy and the workspace."""
    ir, iz, i_new = _biased(input_gates, input_bias).chunk(3, 1)
    hr, hz, h_new = _biased(hidden_gates, hidden_bias).chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    new = (i_new + r * h_new).tanh()
    return new + z * (hx - new), torch.cat([r, z, new, hx, h_new], 1)


def gru_backward(grad_hy: T, workspace: T, has_bias: bool) -> tuple[T, T, T, T | None, T | None]:
    """Gradients of both kinds of gates, of hx and of both biases."""
    r, z, new, hx, h_new = workspace.chunk(5, 1)
    dz = grad_hy * (hx - new) * z * (1 - z)
    dnew = grad_hy * (1 - z) * (1 - new * new)
    dr = dnew * h_new * r * (1 - r)
    inputs, hidden = torch.cat([dr, dz, dnew], 1), torch.cat([dr, dz, dnew * r], 1)
    biases = (inputs.sum(0), hidden.sum(0)) if has_bias else (None, None)
    return inputs, hidden, grad_hy * z, *biases


def _biased(gates: T, bias: T | None) -> T:
    return gates if bias is None else gates + bias
