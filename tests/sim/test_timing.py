"""The timing model: virtual time follows the chip's description, not the machine's clock."""

from __future__ import annotations

import json

import pytest

from chipset_sim.options import chip_options, chips, launch_options


def seconds(on_sim, program: str, options: str) -> float:
    done = on_sim(
        program.replace("STEP", "chipset_sim.reset_predicted_time()")
        + "\ndev.synchronize(); print(chipset_sim.predicted_time())\n",
        options,
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.parametrize("chip", ["h100", "mi300x", "tpu-v5e"])
def test_a_product_takes_its_operations_over_the_rate(chip, on_sim):
    n = 512
    program = (
        f"a = dev.array(np.ones(({n}, {n}), np.float16)); b = dev.array(np.ones(({n}, {n}), "
        f"np.float16)); d = dev.empty(({n}, {n}), Dtype.F16)\n"
        "STEP; dev.call('gemm', a=a, b=b, d=d, alpha=1.0)"
    )
    model = {k: v for k, v in chip_options(chip).items() if k.startswith("chip.")}
    rate, width = float(model["chip.flops_f16"]), float(model["chip.memory_bandwidth"])
    work = max(2 * n**3 / rate, 3 * n * n * 2 / width)
    expected = work + float(model["chip.launch_seconds"]) + float(model["chip.submit_seconds"])
    assert seconds(on_sim, program, f"chip={chip}") == pytest.approx(expected, rel=1e-3)


# Microseconds, computed by hand from the data sheets' numbers in chipset_sim/chips: launch, submit
# and link latency are 3, 2, 2 on h100; 5, 3, 3 on mi300x; 5, 5, 2 on tpu-v5e. Sizes in bytes.
BY_HAND = {
    ("h100", "fill", 3_350_000): 2 + 3 + 1,  # 3.35 TB/s
    ("h100", "device", 3_350_000): 2 + 3 + 2,  # read and written
    ("h100", "host", 6_400_000): 2 + 3 + 100,  # 64 GB/s
    ("h100", "peer", 4_500_000): 2 + 3 + 2 + 10,  # 450 GB/s through the switch
    ("mi300x", "fill", 5_300_000): 3 + 5 + 1,  # 5.3 TB/s
    ("mi300x", "device", 5_300_000): 3 + 5 + 2,
    ("mi300x", "host", 6_400_000): 3 + 5 + 100,
    ("mi300x", "peer", 6_400_000): 3 + 5 + 3 + 100,  # one of seven links: 448 / 7 = 64 GB/s
    ("tpu-v5e", "fill", 819_000): 5 + 5 + 1,  # 819 GB/s
    ("tpu-v5e", "device", 819_000): 5 + 5 + 2,
    ("tpu-v5e", "host", 1_600_000): 5 + 5 + 100,  # 16 GB/s, assumed
    ("tpu-v5e", "peer", 2_000_000): 5 + 5 + 2 + 10,  # 200 GB/s
}
MOVES = {
    "fill": "dev.invoke('mem_fill', stream, x, 0, n)",
    "device": "dev.invoke('mem_copy', stream, y, x, n, 2)",
    "host": "dev.invoke('mem_copy', stream, x, alloc(n, kind=1), n, 0)",
    "peer": "far.invoke('mem_copy_peer', far.stream, alloc(n, device=1), x, 0, n)",
}


@pytest.mark.parametrize(("chip", "move", "size"), BY_HAND)
def test_moves_take_what_the_data_sheet_says(chip, move, size, on_sim):
    program = (
        f"n = {size}; far = Driver(1); x, y = alloc(n), alloc(n)\n"
        "dev.invoke('mem_fill', stream, x, 0, n); dev.synchronize()\n"
        f"STEP; {MOVES[move]}; far.synchronize()"
    )
    found = seconds(on_sim, program, f"chip={chip},devices=2,leaks=0")
    assert found * 1e6 == pytest.approx(BY_HAND[chip, move, size], rel=1e-6)


# Four ranks; bytes of the whole vector. Latency and transfer of half an all-reduce:
# h100: log2(4) * 2 + 3/4 * 2.4 MB / 450 GB/s = 8; broadcast log2(4) * 2 + 5.333.
# mi300x: every pair a link of 64 GB/s, one step: 3 + 0.64 MB / 64 GB/s = 13; broadcast the two
# halves, 26, since the whole to each peer takes 3 + 40.
# tpu-v5e: ring of three steps: 3 * 2 + 3/4 * 1.6 MB / 200 GB/s = 12; broadcast 6 + 8.
COLLECTIVES = {
    ("h100", 2_400_000): {"all_reduce": 5 + 16, "all_gather": 5 + 8, "broadcast": 5 + 4 + 16 / 3},
    ("mi300x", 2_560_000): {"all_reduce": 8 + 26, "all_gather": 8 + 13, "broadcast": 8 + 26},
    ("tpu-v5e", 1_600_000): {"all_reduce": 10 + 24, "all_gather": 10 + 12, "broadcast": 10 + 14},
}
RANKS = """
uid = ctypes.create_string_buffer(128); dev.invoke('comm_id', ctypes.addressof(uid))
barrier, times = threading.Barrier(4), {}
CALLS = {
    "all_reduce": lambda d, c, x, y: (x.address, y.address, n // 4, 8, 0),
    "all_gather": lambda d, c, x, y: (x.address, y.address, n // 16, 8),
    "broadcast": lambda d, c, x, y: (y.address, n // 4, 8, 0),
}
def rank(r):
    d = Driver(r); c = ctypes.c_uint64()
    d.invoke('comm_create', r, ctypes.addressof(uid), r, 4, ctypes.addressof(c))
    x, y = (d.array(np.ones(n // 4, np.float32)) for _ in range(2))
    d.synchronize()
    for name, arguments in CALLS.items():
        if barrier.wait() == 0: chipset_sim.reset_predicted_time()
        barrier.wait()
        d.invoke(name, d.stream, c.value, *arguments(d, c, x, y)); d.synchronize()
        if barrier.wait() == 0: times[name] = chipset_sim.predicted_time() * 1e6
        barrier.wait()
threads = [threading.Thread(target=rank, args=(r,)) for r in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
import json; print(json.dumps(times))
"""


@pytest.mark.parametrize(("chip", "size"), COLLECTIVES)
def test_collectives_take_what_alpha_and_beta_say(chip, size, on_sim):
    done = on_sim(f"n = {size}\n" + RANKS, f"chip={chip},devices=4,leaks=0")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == pytest.approx(COLLECTIVES[chip, size], rel=1e-6)


def test_time_does_not_depend_on_the_schedule(on_sim):
    program = (
        "x = ones(1 << 12); y = dev.empty((1 << 12,)); z = dev.empty((1 << 12,)); e = event()\n"
        "other = second()\nSTEP\n"
        "for _ in range(5): dev.pointwise('EXP', y, x)\n"
        "dev.invoke('event_record', e, stream); dev.invoke('stream_wait', other.stream, e)\n"
        "other.pointwise('NEG', z, y); other.synchronize()"
    )
    times = {
        seconds(on_sim, program, f"mode={mode}")
        for mode in ("eager", "latest", "random,seed=1", "random,seed=2")
    }
    assert len(times) == 1


def test_streams_overlap_in_virtual_time(on_sim):
    program = (
        "n = 1 << 22; x = ones(n); y = dev.empty((n,)); z = dev.empty((n,)); other = second()\n"
        "STEP\ndev.pointwise('EXP', y, x)\n{}.pointwise('EXP', z, x); other.synchronize()"
    )
    one = seconds(on_sim, program.format("dev"), "")
    two = seconds(on_sim, program.format("other"), "")
    assert two < 0.7 * one


def test_a_thread_that_takes_a_stream_over_goes_on_where_the_other_was(on_sim):
    """As autograd's threads do: two small kernels cost two submissions, whoever makes them."""
    program = (
        "x = ones(4); y = dev.empty((4,)); z = dev.empty((4,))\n"
        "STEP\ndev.pointwise('EXP', y, x)\n"
        "t = threading.Thread(target=lambda: dev.pointwise('NEG', z, y)); t.start(); t.join()"
    )
    # Submitting takes 7 us, longer than the 3 us of a launch.
    options = "chip.submit_seconds=7e-6,chip=h100"
    found = seconds(on_sim, program, options)
    assert found * 1e6 == pytest.approx(7 + 7 + 3, rel=1e-3)


def test_events_measure_virtual_time(on_sim):
    done = on_sim(
        "n = 1 << 20; x = ones(n); y = dev.empty((n,)); a = event(); b = event()\n"
        "dev.invoke('event_record', a, stream); dev.pointwise('EXP', y, x)\n"
        "dev.invoke('event_record', b, stream)\n"
        "out = ctypes.c_double(); where = ctypes.addressof(out)\n"
        "print(dev.status('event_elapsed', a, b, where))\n"
        "dev.synchronize(); dev.invoke('event_elapsed', a, b, where); print(out.value)\n",
        "chip=h100",
    )
    early, milliseconds = done.stdout.split()
    assert early == "1"  # INVALID: not passed yet
    # The kernel starts when the host has submitted it.
    expected = (8 * (1 << 20) / 3.35e12 + 3e-6 + 2e-6) * 1e3
    assert float(milliseconds) == pytest.approx(expected, rel=1e-2)


def test_every_chip_names_its_source():
    from chipset_sim.options import CHIPS

    assert len(chips()) >= 3
    for chip in chips():
        assert "https://" in (CHIPS / f"{chip}.toml").read_text()
        assert chip_options(chip)["chip.name"]


def test_options_from_a_list_and_from_a_file(tmp_path):
    assert launch_options("devices=4, mode=random,seed=7") == {
        "devices": "4",
        "mode": "random",
        "seed": "7",
    }
    file = tmp_path / "sim.toml"
    file.write_text(
        'devices = 2\npoison = false\ninject = ["mem_alloc:1=OUT_OF_MEMORY", "gemm:1=SLOW"]\n'
        'chip = "h100"\n[model]\nlaunch_seconds = 1e-6\n'
    )
    options = launch_options(str(file))
    assert options["devices"] == "2" and options["poison"] == "0"
    assert options["inject"] == "mem_alloc:1=OUT_OF_MEMORY;gemm:1=SLOW"
    assert options["chip.name"] == "NVIDIA H100 SXM"
    assert float(options["chip.launch_seconds"]) == 1e-6


@pytest.mark.parametrize(
    ("text", "word"),
    [("devices", "not key=value"), ("chip=abacus", "no chip 'abacus'"), ("/no.toml", "/no.toml")],
)
def test_options_that_cannot_be_read(text, word):
    with pytest.raises(ValueError, match=word):
        launch_options(text)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ("mode=asleep", "must be eager, latest or random"),
        ("devices=0", "from 1 to 16"),
        ("memory=much", "must be a size"),
        ("devises=4", "no option 'devises'; there are devices, memory,"),
        ("delay_us=300", "without workers=1"),
        ("inject=foo:1=INVALID", "no function 'foo'"),
    ],
)
def test_a_bad_option_refuses_the_launch(options, word, on_sim):
    done = on_sim("", options)
    assert done.returncode != 0
    assert word in done.stderr
