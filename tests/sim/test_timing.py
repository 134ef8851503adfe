"""The timing model: virtual time follows the chip's description, not the machine's clock."""

from __future__ import annotations

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
