"""The pages made of certificates, in text and in a real browser."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chipset._interface import FUNCTIONS
from chipset.cli import main

pytest.importorskip("pydantic")
from chipset_conformance.report import reading
from chipset_conformance.results import Certificate, LevelResult, Outcome, Record

COUNTS = {outcome.value: 0 for outcome in Outcome}


def record(id_: str, outcome: Outcome = Outcome.PASSED, **more: Any) -> Record:
    function, dtype = id_.split("/")[:2]
    return Record(
        id=id_,
        level=2,
        group="compute",
        functions=[function],
        dtype=dtype,
        mandatory=True,
        outcome=outcome,
        **more,
    )


def certificate(*records: Record, **more: Any) -> Certificate:
    level = LevelResult(
        level=2,
        title="Computes",
        reached=False,
        cases=len(records),
        composed=0,
        seconds=1.0,
        **COUNTS,
    )
    failed = [r for r in records if r.outcome == Outcome.FAILED]
    return Certificate(
        device="toy:0",
        level_asked=2,
        level_reached=None,
        reached=False,
        levels=[level],
        failures=[
            {
                k: getattr(r, k)
                for k in ("id", "level", "outcome", "functions", "message", "reproducer")
            }
            for r in failed
        ],
        seed=0,
        started="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        environment={"device": {"name": "a chip"}, "python": "3"},
        cases=list(records),
        **{"emulated": True, **more},
    )


SCRIPT = 'print("<b>& it fails</b>")\n'
EXAMPLE = certificate(
    record("gemm/f32/values", ulps={"gemm/f32": 1.25}),
    record("gemm/f16/values", Outcome.FAILED, message="1 < 2 & wrong", reproducer=SCRIPT),
    record("reduce/f32/values"),
    record("softmax/f32/values", composed=["softmax"], counts={"host": 3}),
    record(
        "mem_copy/f32/speed",
        measurements=[
            {"name": "copy", "value": v, "unit": "GB/s", "x": x, "x_label": "bytes", "limit": 20.0}
            for x, v in ((1024, 1.0), (65536, 9.0), (1 << 24, 18.0))
        ],
    ),
    ulps={"gemm/f32": 1.25, "reduce.sum/f32": 0.5, "reduce.prod/f32": 0.75},
)


@pytest.fixture(scope="module")
def page() -> str:
    return reading.html(EXAMPLE)


def test_page_is_self_contained(page: str) -> None:
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert "@import" not in page and "url(http" not in page


def test_page_says_what_the_certificate_says(page: str) -> None:
    assert "no level reached · emulated" in page
    assert "software stand-in" in page
    assert "1 &lt; 2 &amp; wrong" in page, "messages are text, never markup"
    assert "&lt;b&gt;&amp; it fails&lt;/b&gt;" in page
    assert 'title="gemm f32: 1 of 1 cases passed, worst error 1.25 ULP"' in page
    assert "reduce f32: 1 of 1 cases passed, worst error 0.75 ULP" in page
    assert "softmax f32: 1 of 1 cases passed, composed by the core" in page
    assert "host 3" in page
    assert "<svg" in page and "GB/s" in page


def test_every_function_has_a_row(page: str) -> None:
    for function in FUNCTIONS:
        assert re.search(rf"<tr><td>{function.name}\b", page), function.name


def test_the_same_certificate_gives_the_same_page(page: str) -> None:
    assert reading.html(EXAMPLE) == page


def test_comparison_has_a_column_for_each_chip() -> None:
    other = EXAMPLE.model_copy(update={"device": "other:1"})
    page = reading.compare([EXAMPLE, other])
    assert "toy:0" in page and "other:1" in page
    assert re.search(r"<td>gemm</td><td[^>]*>1/2</td><td[^>]*>1/2</td>", page)


def test_difference() -> None:
    before = certificate(
        record("gemm/f32/a"), record("gemm/f32/b", Outcome.FAILED), ulps={"gemm/f32": 1.0}
    )
    after = certificate(
        record("gemm/f32/a", Outcome.CRASHED, message="SIGSEGV"),
        record("gemm/f32/b"),
        record("gemm/f32/c"),
        ulps={"gemm/f32": 4.0},
    )
    found = reading.difference(before, after)
    assert [change.id for change in found.regressions] == ["gemm/f32/a"]
    assert [change.id for change in found.fixes] == ["gemm/f32/b"]
    assert found.added == ["gemm/f32/c"]
    assert found.ulps == {"gemm/f32": (1.0, 4.0)}
    same = reading.difference(before, before)
    assert not (same.regressions or same.fixes or same.other or same.ulps)


NO_CERTIFICATES = {
    "absent": (None, r"cannot read certificate '.*' \(No such file or directory\)"),
    "a folder": ("folder", r"cannot read certificate '.*' \(Is a directory\)"),
    "empty": (b"", r"is no certificate of this suite \(Invalid JSON"),
    "cut off": (b'{"device": "toy:0", "lev', r"is no certificate of this suite \(Invalid JSON"),
    "not text": (b"\xff\xfe\x00\x80", r"is no certificate of this suite \(Invalid JSON"),
    "another document": (b'{"name": "x"}', r"is no certificate of this suite \(device: Field req"),
    "a list": (b"[1]", r"is no certificate of this suite \(Input should be an object"),
}


@pytest.mark.parametrize("kind", NO_CERTIFICATES)
@pytest.mark.parametrize(
    "command",
    [["report", "html"], ["report", "matrix"], ["report", "diff", "GOOD"], ["certify", "--verify"]],
    ids=lambda command: " ".join(command[:2]),
)
def test_what_is_no_certificate_is_refused_in_one_line(
    command: list[str], kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    content, text = NO_CERTIFICATES[kind]
    file, good = tmp_path / "file.json", tmp_path / "good.json"
    good.write_text(certificate(record("gemm/f32/a")).model_dump_json())
    if content == "folder":
        file.mkdir()
    elif isinstance(content, bytes):
        file.write_bytes(content)
    arguments = [str(good) if part == "GOOD" else part for part in command]
    with pytest.raises(SystemExit) as request:
        main([*arguments, str(file)])
    assert request.value.code == 1
    written = capfd.readouterr()
    assert written.out == ""
    assert re.fullmatch(rf"chipset: .*{text}.*chipset certify DEVICE.*\n", written.err), written.err
    assert "Error" not in written.err and str(file) in written.err
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        {"good.json"} | ({"file.json"} if file.exists() else set())
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no chromium with its driver (Debian: chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    service = webdriver.ChromeService(executable_path=driver)
    session = webdriver.Chrome(options=options, service=service)
    yield session
    session.quit()


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)], ids=["desktop", "phone"])
def test_in_a_browser(browser: Any, page: str, tmp_path: Path, width: int, height: int) -> None:
    file = tmp_path / "report.html"
    file.write_text(page)
    browser.set_window_size(width, height)
    browser.get(file.as_uri())
    scroll, inner = browser.execute_script(
        "return [document.documentElement.scrollWidth, window.innerWidth]"
    )
    assert scroll <= inner, "only wide tables scroll sideways, in their frames"
    badge = browser.find_element("id", "badge")
    assert badge.is_displayed() and "emulated" in badge.text
    first = browser.find_element("css selector", "#failures details")
    assert first.get_attribute("open") is not None, "the first failure is open"
    assert "it fails" in first.text
    drawn = browser.execute_script(
        "return document.querySelector('.plots svg').getBoundingClientRect().width"
    )
    assert 200 < drawn <= inner
    colour = browser.execute_script(
        "return getComputedStyle(document.querySelector('td.failed')).backgroundColor"
    )
    assert colour != "rgba(0, 0, 0, 0)"
    severe = [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
    assert not severe
