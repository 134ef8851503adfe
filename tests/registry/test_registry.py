"""Finding plugins and selecting devices by name."""

from __future__ import annotations

import pytest

TOY = {"name": "toy"}
SHOW = """
import chipset
for p in chipset.devices():
    print(p.name, p.available, p.count, p.torch_device, p.emulated, p.version, p.reason, sep="|")
"""


def rows(done) -> dict[str, list[str]]:
    assert done.returncode == 0, done.stderr
    return {line.split("|")[0]: line.split("|") for line in done.stdout.splitlines()}


def test_a_plugin_is_found_and_described(installed):
    found = rows(installed([TOY], SHOW))
    assert found["toy"][1:] == ["True", "1", "chip", "True", "0.1", ""]


def test_importing_chipset_imports_no_torch_and_no_plugin(installed):
    done = installed(
        [TOY],
        "import sys, chipset\n"
        "assert 'torch' not in sys.modules and 'package0_toy' not in sys.modules\n"
        "chipset.devices(); chipset.select('toy').info\n"
        "assert 'torch' not in sys.modules",
    )
    assert done.returncode == 0, done.stderr


def test_select(installed):
    done = installed(
        [{**TOY, "extra": "options={'devices': '2'}"}],
        "import chipset\n"
        "d = chipset.select('toy:1')\n"
        "print(d, d.name, d.index, d.number, d.info.name, d.info.vendor)",
    )
    assert done.stdout.split("\n")[0] == "toy:1 toy 1 1 Toy Chipset tests", done.stderr


def test_chipset_device_is_the_default(installed):
    done = installed(
        [TOY], "import chipset; print(chipset.select())", env={"CHIPSET_DEVICE": "toy:0"}
    )
    assert done.stdout.strip() == "toy:0", done.stderr


def test_options_come_from_the_environment(installed):
    done = installed(
        [{**TOY, "extra": "options={'devices': '2'}"}],
        "import chipset; print(chipset.select('toy:4').number)",
        env={"CHIPSET_TOY_DEVICES": "5"},
    )
    assert done.stdout.strip() == "4", done.stderr


def test_several_plugins_in_one_process(installed, toy_library, tmp_path):
    other = tmp_path / "libother.so"
    other.write_bytes(toy_library.read_bytes())
    packages = [TOY, {"name": "other", "library": str(other)}]
    done = installed(
        packages,
        "import chipset\n"
        "print(chipset.select('other,toy'), chipset.select('toy').number, "
        "chipset.select('other').number)",
    )
    assert done.stdout.split() == ["other:0", "1", "0"], done.stderr


# The name asked for, and words of the answer.
WRONG_NAMES = {
    "tpu": ["there is no device 'tpu'", "installed: ", "toy", "chipset devices"],
    "toyy": ["there is no device 'toyy'", "Did you mean 'toy'?"],
    "chip": ["'chip' is what torch calls every chip"],
    "toy:1": ["device 'toy:1' does not exist; toy has 1, numbered from 0"],
    "toy:": ["'toy:' is not NAME or NAME:INDEX"],
    "toy:x": ["'toy:x' is not NAME or NAME:INDEX"],
    "toy:-1": ["'toy:-1' is not NAME or NAME:INDEX"],
    "toy,,toy": ["'' is not NAME or NAME:INDEX"],
    "torch:c-d:0": ["is not torch:TYPE"],
}


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_wrong_names(name, installed):
    done = installed(
        [TOY],
        f"import chipset\ntry:\n    chipset.select({name!r})\n"
        "except chipset.UnknownDeviceError as error:\n    print(error)",
    )
    assert done.returncode == 0, done.stderr
    for words in WRONG_NAMES[name]:
        assert words in done.stdout


def test_a_name_inside_another_is_not_confused(installed, toy_library, tmp_path):
    """'toy', 'xgpu_toy' and 'toy_2' are three plugins."""
    packages = [TOY]
    for name in ("xgpu_toy", "toy_2"):
        copy = tmp_path / f"lib{name}.so"
        copy.write_bytes(toy_library.read_bytes())
        packages.append({"name": name, "library": str(copy)})
    done = installed(
        packages,
        "import chipset\n"
        "for name in ('xgpu_toy', 'toy_2', 'toy'):\n"
        "    d = chipset.select(name); print(d.name, d.number)\n"
        "try:\n    chipset.select('xgpu')\nexcept chipset.UnknownDeviceError as e:\n    print(e)",
    )
    assert done.stdout.splitlines()[:3] == ["xgpu_toy 0", "toy_2 1", "toy 2"], done.stderr
    assert "there is no device 'xgpu'" in done.stdout


def test_two_plugins_with_one_name(installed, tmp_path, toy_library):
    copy = tmp_path / "libcopy.so"
    copy.write_bytes(toy_library.read_bytes())
    packages = [
        {**TOY, "dist": "vendor-one"},
        {**TOY, "dist": "vendor-two", "library": str(copy)},
    ]
    found = rows(installed(packages, SHOW))
    assert found["toy"][1] == "False"
    assert "two plugins are named 'toy'" in found["toy"][6]
    assert "vendor-one" in found["toy"][6] and "vendor-two" in found["toy"][6]
    done = installed(
        packages,
        "import chipset\ntry:\n    chipset.select('toy')\n"
        "except chipset.PluginError as error:\n    print(error)",
    )
    assert "two plugins are named 'toy'" in done.stdout


# A package that is bad in one way, and words of the reason.
BAD_PACKAGES = {
    "an import error": ("import no_such_module", "No module named 'no_such_module'"),
    "an exception": ("raise RuntimeError('no\\nlicence')", "RuntimeError: no licence"),
    "no plugin object": ("x = 1", "AttributeError"),
    "no hook": ("import sys; plugin = sys.modules[__name__]", "no hook implementation"),
    "a wrong answer": (
        "import chipset, sys\n@chipset.hookimpl\ndef chipset_plugin(): return 3\n"
        "plugin = sys.modules[__name__]",
        "TypeError",
    ),
    "a misspelt hook": (
        "import chipset, sys\n@chipset.hookimpl\ndef chipset_plugn(): return 3\n"
        "plugin = sys.modules[__name__]",
        "unknown hook 'chipset_plugn'",
    ),
    "a bad name": (
        "import chipset\nplugin = chipset.PluginDescription(name='Bad Name', library='x')",
        "'Bad Name' is not lower-case",
    ),
    "neither library nor torch device": (
        "import chipset\nplugin = chipset.PluginDescription(name='bad')",
        "either library or torch_device",
    ),
}


@pytest.mark.parametrize("name", BAD_PACKAGES)
def test_a_bad_package_is_a_row_with_a_reason(name, installed):
    source, words = BAD_PACKAGES[name]
    found = rows(installed([{"name": "bad", "source": source}, TOY], SHOW))
    assert found["bad"][1] == "False"
    assert words in found["bad"][6]
    assert found["toy"][1] == "True", "the others are not harmed"


def test_missing_library_says_where_and_what_to_do(installed):
    package = {
        "name": "gone",
        "library": "/opt/vendor/libgone.so",
        "extra": "install_hint='install vendor-driver'",
    }
    found = rows(installed([package], SHOW))
    assert "/opt/vendor/libgone.so" in found["gone"][6]
    assert found["gone"][6].endswith("install vendor-driver")
    done = installed(
        [package],
        "import chipset\ntry:\n    chipset.select('gone')\n"
        "except chipset.PluginError as error:\n    print(error)",
    )
    assert "/opt/vendor/libgone.so" in done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_adopted_devices(installed):
    package = {
        "name": "fakenpu",
        "source": "import chipset\n"
        "plugin = chipset.PluginDescription(name='fakenpu', torch_device='fakenpu', "
        "torch_module='no_such_torch_npu')",
    }
    found = rows(installed([package], SHOW))
    assert found["fakenpu"][1:4] == ["False", "0", "fakenpu"]
    assert "no_such_torch_npu" in found["fakenpu"][6]
    done = installed(
        [package],
        "import chipset\n"
        "print(chipset.select('torch:cpu').torch)\n"
        "for name in ('fakenpu', 'torch:cuda:97'):\n"
        "    try:\n        chipset.select(name).torch\n"
        "    except chipset.PluginError as error:\n        print(error)",
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "cpu:0", done.stderr
    assert "needs the module 'no_such_torch_npu'" in lines[1]
    assert "torch cannot use 'cuda:97'" in lines[2]


def test_numpy_alone_drives_a_plugin(installed):
    done = installed(
        [TOY],
        "import sys, numpy as np, chipset\n"
        "d = chipset.select('toy').driver\n"
        "a = np.arange(6, dtype=np.float32).reshape(2, 3)\n"
        "x, y = d.array(a), d.empty((2, 2))\n"
        "d.call('gemm', a=x, b=x.transpose(), d=y, alpha=1.0)\n"
        "assert np.array_equal(y.numpy(), a @ a.T)\n"
        "assert 'torch' not in sys.modules",
    )
    assert done.returncode == 0, done.stderr


def test_wrong_use_of_the_driver(installed):
    done = installed(
        [TOY],
        "import numpy as np, chipset\n"
        "d = chipset.select('toy').driver\n"
        "for wrong in (lambda: d.call('gemm', e=1), lambda: d.status('gemn'),\n"
        "              lambda: d.status('scan'), lambda: d.array(np.array(['a'])),\n"
        "              lambda: d.empty((2,)).broadcast_to((3,))):\n"
        "    try:\n        wrong()\n    except chipset.ChipsetError as error:\n"
        "        print(error)",
    )
    lines = done.stdout.splitlines()
    assert "gemm_args has no field 'e'; it has struct_size" in lines[0]
    assert "no function 'gemn'" in lines[1]
    assert "this plugin has no function 'scan'" in lines[2]
    assert "no chipset dtype for NumPy's" in lines[3]
    assert "cannot broadcast shape (2,) to (3,)" in lines[4]
