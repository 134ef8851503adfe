"""Compositions of optional functions, on a chip that has the required ones only, against NumPy.

All cases run in one process, since they leave nothing behind; CHIPSET_CHECK=1 watches them.
"""

from __future__ import annotations

import pytest

HELPERS = """
rng = np.random.default_rng(0)
def f32(*shape): return rng.standard_normal(shape).astype(np.float32)
def close(got, want, tolerance=2e-6):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, (got.shape, want.shape)
    np.testing.assert_allclose(got, want, rtol=tolerance * 10, atol=tolerance)
def bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)
def from_bf16(b): return (b.astype(np.uint32) << 16).view(np.float32)
def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True)); return e / e.sum(axis, keepdims=True)
"""

CASES = {
    "softmax": """
x = f32(3, 5, 4)
for dim in range(3):
    y = dev.empty(x.shape)
    dev.call("softmax", dim=dim, input=dev.array(x), output=y)
    want = softmax(x.astype(np.float64), dim)
    close(y.numpy(), want)
    dev.call("softmax", dim=dim, log=1, input=dev.array(x), output=y)
    close(y.numpy(), np.log(want))
    dy = f32(*x.shape); dx = dev.empty(x.shape)
    dev.call("softmax_backward", dim=dim, input=dev.array(dy),
             result=dev.array(want.astype(np.float32)), output=dx)
    close(dx.numpy(), (dy - (dy * want).sum(dim, keepdims=True)) * want)
    dev.call("softmax_backward", dim=dim, log=1, input=dev.array(dy),
             result=dev.array(np.log(want).astype(np.float32)), output=dx)
    close(dx.numpy(), dy - want * dy.sum(dim, keepdims=True), 4e-6)
x = np.full((2, 3), -np.inf, np.float32); x[1] = [0, -np.inf, 0]
y = dev.empty(x.shape); dev.call("softmax", dim=1, input=dev.array(x), output=y)
assert np.isnan(y.numpy()[0]).all() and y.numpy()[1].tolist() == [0.5, 0, 0.5]
y = dev.empty((0, 3)); dev.call("softmax", dim=1, input=y, output=dev.empty((0, 3)))
xt = dev.array(x[1:].T.copy()).transpose()   # strided
y = dev.empty((1, 3)); dev.call("softmax", dim=1, input=xt, output=y)
assert y.numpy().tolist() == [[0.5, 0, 0.5]]
""",
    "softmax in bf16": """
x = bf16(f32(4, 9)); y = dev.empty(x.shape, Dtype.BF16)
dev.call("softmax", dim=1, input=dev.array(x, Dtype.BF16), output=y)
want = softmax(from_bf16(x).astype(np.float64), 1)
assert (y.numpy() == bf16(want)).mean() > 0.95
close(from_bf16(y.numpy()), want, 4e-3)
""",
    "norm": """
x, w, b, dy = f32(6, 10), f32(10), f32(10), f32(6, 10)
eps = 1e-5
for kind in (0, 1):
    for offset in (0.0, 1.0):
        y, rstd, mean = dev.empty((6, 10)), dev.empty((6,)), dev.empty((6,))
        extra = dict(bias=dev.array(b), mean=mean) if kind else {}
        dev.call("norm", kind=kind, eps=eps, weight_offset=offset, x=dev.array(x),
                 weight=dev.array(w), y=y, rstd=rstd, **extra)
        x64 = x.astype(np.float64)
        mu = x64.mean(1, keepdims=True) if kind else 0.0
        r = 1 / np.sqrt(((x64 - mu) ** 2).mean(1, keepdims=True) + eps)
        close(y.numpy(), (x64 - mu) * r * (w + offset) + (b if kind else 0), 4e-6)
        close(rstd.numpy(), r[:, 0])
        if kind: close(mean.numpy(), mu[:, 0])
        xhat, g = (x64 - mu) * r, dy * (w.astype(np.float64) + offset)
        dx = r * (g - xhat * (g * xhat).mean(1, keepdims=True)
                  - (g.mean(1, keepdims=True) if kind else 0))
        got, dw, db = dev.empty((6, 10)), dev.empty((10,)), dev.empty((10,))
        extra = dict(mean=mean, dbias=db) if kind else {}
        dev.call("norm_backward", kind=kind, eps=eps, weight_offset=offset, x=dev.array(x),
                 weight=dev.array(w), rstd=rstd, dy=dev.array(dy), dx=got, dweight=dw, **extra)
        close(got.numpy(), dx, 8e-6)
        close(dw.numpy(), (dy * xhat).sum(0), 8e-6)
        if kind: close(db.numpy(), dy.sum(0, dtype=np.float64), 8e-6)
""",
    "rotary": """
B, H, S, D, R = 2, 3, 4, 8, 6
x, angle = f32(B, H, S, D), f32(1, S, R // 2)
for interleaved in (0, 1):
    full = np.repeat(angle, 2, 2) if interleaved else np.concatenate([angle, angle], 2)
    cos, sin = np.cos(full), np.sin(full)
    def device_cos(t): return dev.array(t).broadcast_to((B, S, R))
    def rotate(v):
        if interleaved:
            out = np.empty_like(v); out[..., ::2] = -v[..., 1::2]; out[..., 1::2] = v[..., ::2]
            return out
        return np.concatenate([-v[..., R // 2:], v[..., :R // 2]], -1)
    want = x.astype(np.float64).copy()
    want[..., :R] = x[..., :R] * cos[:, None] + rotate(x[..., :R]) * sin[:, None]
    y = dev.empty(x.shape)
    dev.call("rotary", interleaved=interleaved, x=dev.array(x), cos=device_cos(cos),
             sin=device_cos(sin), y=y)
    close(y.numpy(), want)
    dev.call("rotary", interleaved=interleaved, inverse=1, x=y, cos=device_cos(cos),
             sin=device_cos(sin), y=y)   # in place, and back
    close(y.numpy(), x)
""",
    "cross entropy": """
N, V = 7, 11
logits, dloss = f32(N, V), f32(N)
target = rng.integers(0, V, N); target[2] = -100
x64 = logits.astype(np.float64)
lse = np.log(np.exp(x64).sum(1))
for smoothing in (0.0, 0.1):
    loss, got_lse = dev.empty((N,)), dev.empty((N,))
    common = dict(ignore_index=-100, label_smoothing=smoothing, logits=dev.array(logits),
                  target=dev.array(target))
    dev.call("cross_entropy", loss=loss, lse=got_lse, **common)
    picked = x64[np.arange(N), np.maximum(target, 0)]
    want = (1 - smoothing) * (lse - picked) + smoothing * (lse - x64.mean(1))
    want[2] = 0
    close(loss.numpy(), want); close(got_lse.numpy(), lse)
    onehot = np.eye(V)[np.maximum(target, 0)] * (1 - smoothing) + smoothing / V
    d = np.where(target < 0, 0, dloss)
    grad = (softmax(x64, 1) - onehot) * d[:, None]
    got = dev.empty((N, V))
    dev.call("cross_entropy_backward", lse=got_lse, dloss=dev.array(dloss), dlogits=got, **common)
    close(got.numpy(), grad)
bad = dev.array(np.full(N, V)); loss = dev.empty((N,))
status = dev.status("cross_entropy", stream, __import__("ctypes").addressof(
    a := dev.arguments("cross_entropy", ignore_index=-100, logits=dev.array(logits), target=bad,
                       loss=loss)))
assert status == 8, status   # OUT_OF_RANGE
""",
    "adamw": """
def step(p, g, m, v, vmax, t, decoupled, maximize, lr, b1, b2, eps, wd):
    g = -g if maximize else g
    if decoupled: p = p * (1 - lr * wd)
    else: g = g + wd * p
    m = b1 * m + (1 - b1) * g; v = b2 * v + (1 - b2) * g * g
    vmax = np.maximum(vmax, v) if vmax is not None else None
    denominator = np.sqrt(v if vmax is None else vmax) / np.sqrt(1 - b2 ** t) + eps
    return p - lr / (1 - b1 ** t) * m / denominator, m, v, vmax
numbers = dict(lr=1e-2, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1)
for decoupled, maximize, amsgrad in ((1, 0, 0), (0, 1, 0), (1, 0, 1)):
    shapes = [(3, 4), (5,)]
    P = [f32(*s) for s in shapes]; G = [f32(*s) for s in shapes]
    M = [f32(*s) for s in shapes]; Vs = [np.abs(f32(*s)) for s in shapes]
    X = [np.abs(f32(*s)) for s in shapes]
    up = lambda arrays: [dev.array(a) for a in arrays]
    p, g, m, v, x = up(P), up(G), up(M), up(Vs), up(X)
    steps = [dev.array(np.float32(3)), dev.array(np.float32(4))]
    dev.call("adamw", num_tensors=2, param=p, grad=g, exp_avg=m, exp_avg_sq=v, step=steps,
             max_exp_avg_sq=x if amsgrad else None, decoupled=decoupled, maximize=maximize,
             **numbers)
    for i in range(2):
        want = step(P[i].astype(float), G[i], M[i], Vs[i], X[i] if amsgrad else None, 3 + i,
                    decoupled, maximize, 1e-2, 0.9, 0.99, 1e-8, 0.1)
        close(p[i].numpy(), want[0]); close(m[i].numpy(), want[1]); close(v[i].numpy(), want[2])
        if amsgrad: close(x[i].numpy(), want[3])
""",
    "quantize and its product": """
x = f32(4, 12); x[1] = 0
for group in (0, 4):
    G = 1 if group == 0 else 3
    q, scale, back = dev.empty((4, 12), Dtype.I8), dev.empty((4, G)), dev.empty((4, 12))
    dev.call("quantize", group_size=group, x=dev.array(x), q=q, scale=scale)
    grouped = x.reshape(4, G, -1).astype(np.float64)
    want_scale = np.abs(grouped).max(2) / 127
    close(scale.numpy(), want_scale)
    divisor = np.where(want_scale == 0, 1, want_scale)[..., None]
    assert np.abs(q.numpy() - np.round(grouped / divisor).reshape(4, 12)).max() <= 1
    assert (q.numpy()[1] == 0).all()
    dev.call("dequantize", group_size=group, x=back, q=q, scale=scale)
    values = q.numpy().reshape(4, G, -1) * scale.numpy()[..., None].astype(np.float64)
    close(back.numpy(), values.reshape(4, 12))
    a, bias, d = f32(3, 12), f32(4), dev.empty((3, 4))
    dev.call("gemm_quantized", group_size=group, x=dev.array(a), w=q, w_scale=scale,
             bias=dev.array(bias), d=d)
    close(d.numpy(), a @ values.reshape(4, 12).T + bias, 8e-6)
    zero = dev.array(np.full((4, G), 3, np.int32))
    dev.call("gemm_quantized", group_size=group, x=dev.array(a), w=q, w_scale=scale,
             w_zero_point=zero, d=d)
    shifted = (q.numpy().astype(float).reshape(4, G, -1) - 3) * scale.numpy()[..., None]
    close(d.numpy(), a @ shifted.reshape(4, 12).T, 8e-6)
xi = rng.integers(-127, 128, (3, 12)).astype(np.int8); xs = np.abs(f32(3))
dev.call("gemm_quantized", group_size=4, x=dev.array(xi), x_scale=dev.array(xs), w=q,
         w_scale=scale, d=d)
close(d.numpy(), (xi * xs[:, None].astype(float)) @ values.reshape(4, 12).T, 2e-4)
""",
    "attention": """
def reference(q, k, v, scale, visible, bias=0.0, cap=0.0):
    B, H, Sq, D = q.shape; R = H // k.shape[1]
    k, v = np.repeat(k, R, 1).astype(float), np.repeat(v, R, 1).astype(float)
    s = np.einsum("bhqd,bhkd->bhqk", q.astype(float), k) * scale
    if cap: s = cap * np.tanh(s / cap)
    s = np.where(visible, s + bias, -np.inf)
    m = s.max(-1, keepdims=True); m = np.where(np.isinf(m), 0, m)
    e = np.exp(s - m); total = e.sum(-1, keepdims=True)
    p = e / np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"): lse = (np.log(total) + m)[..., 0]
    return np.einsum("bhqk,bhkd->bhqd", p, v), lse
def numeric(f, x, dout, h=1e-6):
    g = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        a, b = x.copy(), x.copy(); a[i] += h; b[i] -= h
        g[i] = ((f(a) - f(b)) * dout).sum() / (2 * h)
    return g
B, H, Hkv, Sq, Sk, D, Dv = 2, 4, 2, 5, 6, 4, 3
q, k, v, dout = (rng.standard_normal(s) for s in
    [(B, H, Sq, D), (B, Hkv, Sk, D), (B, Hkv, Sk, Dv), (B, H, Sq, Dv)])
i, j = np.arange(Sq)[:, None], np.arange(Sk)[None, :]
every = np.ones((Sq, Sk), bool)
boolean = rng.random((B, 1, Sq, Sk)) < 0.7; boolean[0, 0, 2] = False
start = rng.integers(1, Sq + 1, (B, Hkv, Sk, 1)).astype(np.int32)
two = np.sort(rng.integers(0, Sq + 1, (B, 1, Sk, 2)), -1).astype(np.int32)
four = rng.integers(0, Sq + 1, (B, H, Sk, 4)).astype(np.int32)
added = rng.standard_normal((1, H, Sq, Sk))
rows = np.arange(Sq)[None, None, :, None]
def hidden(a, b): return (rows >= a[..., None, :]) & (rows < b[..., None, :])
def per_head(m): return np.repeat(m, H // m.shape[1], 1) if m.shape[1] > 1 else m
cases = [
    (every, {}, {}),
    (j <= i + 1, dict(flags=1, causal_offset=1), {}),
    ((j <= i + 1 + 1) & (j >= i + 1 - 2), dict(causal_offset=1, window_left=2, window_right=1), {}),
    (boolean, dict(mask=dev.array(boolean).broadcast_to((B, H, Sq, Sk))), {}),
    (every, dict(mask=dev.array(added).broadcast_to((B, H, Sq, Sk))), dict(bias=added)),
    (every, dict(logit_softcap=2.0), dict(cap=2.0)),
    ((j <= i) & ~per_head(rows >= start[..., 0][..., None, :]),
     dict(flags=1, startend_row_indices=dev.array(start)), {}),
    ((j <= i) & ~hidden(two[..., 0], two[..., 1]),
     dict(flags=1, startend_row_indices=dev.array(two)), {}),
    (~(rows >= two[..., 1][..., None, :]) & ~(rows < two[..., 0][..., None, :]),
     dict(startend_row_indices=dev.array(two[..., ::-1].copy())), {}),
    (~hidden(four[..., 0], four[..., 1]) & ~hidden(four[..., 2], four[..., 3]),
     dict(startend_row_indices=dev.array(four)), {}),
]
for number, (visible, arguments, extra) in enumerate(cases):
    arguments = dict(scale=0.5, window_left=-1, window_right=-1) | arguments
    out, lse = dev.empty((B, H, Sq, Dv), Dtype.F64), dev.empty((B, H, Sq), Dtype.F64)
    tensors = dict(q=dev.array(q), k=dev.array(k), v=dev.array(v), out=out, lse=lse)
    dev.call("attention", **tensors, **arguments)
    want, want_lse = reference(q, k, v, 0.5, visible, **extra)
    close(out.numpy(), want, 1e-12); close(lse.numpy(), want_lse, 1e-12)
    dq, dk, dv = (dev.empty(t.shape, Dtype.F64) for t in (q, k, v))
    dev.call("attention_backward", **tensors, dout=dev.array(dout), dq=dq, dk=dk, dv=dv,
             **arguments)
    f = lambda q=q, k=k, v=v: reference(q, k, v, 0.5, visible, **extra)[0]
    close(dq.numpy(), numeric(lambda t: f(q=t), q, dout), 1e-7)
    close(dk.numpy(), numeric(lambda t: f(k=t), k, dout), 1e-7)
    close(dv.numpy(), numeric(lambda t: f(v=t), v, dout), 1e-7)
assert (out.numpy()[..., :] == out.numpy()).all()
""",
    "a copy between devices": """
other = Driver(1)
x = other.array(np.arange(1000, dtype=np.float32)); y = dev.empty((1000,))
dev.invoke("mem_copy_peer", stream, y.address, x.address, 1, 4000)
assert np.array_equal(y.numpy(), np.arange(1000))
""",
}


@pytest.mark.parametrize("name", CASES)
def test_composition(name, with_toy):
    program = HELPERS + CASES[name] + "print(rt.composed_counts())\n"
    out = with_toy(program, env={"CHIPSET_CHECK": "1"}, macros=("TOY_PLAIN",), devices="2")
    assert "'toy." in out


ONE_DEVICE = [name for name in CASES if name != "a copy between devices"]


@pytest.mark.parametrize("name", ONE_DEVICE)
@pytest.mark.parametrize("compose", ["0", "1"], ids=["native", "composed"])
def test_the_cpu_chip_agrees(name, compose, with_cpu):
    """The same cases with the CPU chip's own functions, and with those composed on it."""
    program = HELPERS + CASES[name] + "print(sorted(rt.composed_counts()))\n"
    out = with_cpu(program, env={"CHIPSET_CHECK": "1", "CHIPSET_COMPOSE": compose})
    assert ("cpu." in out) or compose == "0"


def test_unsupported_stays_unsupported(with_toy):
    """What the required functions cannot do is not composed: the caller hears so."""
    out = with_toy("""
try:
    dev.call("softmax", dim=1, input=dev.array(np.ones((2, 2), np.float16)),
             output=dev.empty((2, 2), Dtype.F16))
except rt.Error as error:
    print(error.status, error, rt.composed_counts())
""")
    assert out.startswith("2 toy: softmax:")
    assert "{}" in out


def test_a_partly_composed_update_is_not_offered_for_another_try(with_toy):
    """UNSUPPORTED would let the host update the first tensor a second time (ERR-002)."""
    out = with_toy(
        """
def state(dtype):
    return [dev.array(np.ones(3, dtype)) for _ in range(4)]
first, second = state(np.float32), state(np.float16)
steps = [dev.array(np.float32(1)), dev.array(np.float32(1))]
names = ("param", "grad", "exp_avg", "exp_avg_sq")
both = {n: [a, b] for n, a, b in zip(names, first, second)}
alone = {n: [b] for n, b in zip(names, second)}
common = dict(lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8, decoupled=1)
for count, fields in ((2, both), (1, alone)):
    try:
        dev.call("adamw", num_tensors=count, step=steps[:count], **fields, **common)
    except rt.Error as error:
        print(error.status, error)
""",
        macros=("TOY_PLAIN",),
    )
    partly, untouched = out.splitlines()
    assert partly.startswith("6 ") and "composed for 1 of 2 tensors" in partly
    assert untouched.startswith("2 ")
