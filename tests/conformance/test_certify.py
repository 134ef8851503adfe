"""``chipset certify``: what it counts, writes, resumes, waives and verifies."""

from __future__ import annotations

import hashlib
import json
import xml.etree.ElementTree as xml
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chipset_conformance.results import Certificate, Record

FILL = "memory/fill/every-size-and-offset"


def test_the_good_chip_reaches_the_level(certify: Callable[..., Any]) -> None:
    run = certify("--level", "1", device="cpu")
    assert run.status == 0, run.text
    document = run.document
    assert document["device"] == "cpu:0" and document["emulated"] is False
    assert document["level_reached"] == 1 and document["failures"] == []
    for level in document["levels"]:
        assert level["reached"] and level["passed"] > 20
        kinds = ("passed", "failed", "unsupported", "waived", "crashed", "hung", "not_run")
        assert sum(level[kind] for kind in kinds) == level["cases"]
    assert document["content_hash"].startswith("sha256:")
    suites = xml.fromstring((run.folder / "junit.xml").read_text()).findall("testsuite")
    assert [int(suite.get("tests", 0)) for suite in suites] == [
        level["cases"] for level in document["levels"]
    ]


@pytest.mark.parametrize(
    ("fault", "why"), [("crash", "killed by SIGABRT"), ("exit", "exited with status 3")]
)
def test_a_crash_is_one_case_and_the_run_goes_on(
    certify: Callable[..., Any], fault: str, why: str
) -> None:
    run = certify("--level", "0", "--only", "memory", fault=fault)
    assert run.status == 1
    assert run.cases[FILL]["outcome"] == "crashed" and why in run.cases[FILL]["message"]
    assert run.cases["memory/copy/device-to-device"]["outcome"] == "passed"
    assert run.document["levels"][0]["crashed"] >= 1
    root = xml.fromstring((run.folder / "junit.xml").read_text())
    assert {e.get("type") for e in root.iter("error")} == {"crashed"}


def test_a_hang_is_one_case_and_the_run_goes_on(certify: Callable[..., Any]) -> None:
    run = certify("--level", "1", "--only", "event/[bu]*", "--timeout", "3", fault="hang")
    assert run.status == 1
    assert run.cases["event/blocking-query-waits"]["outcome"] == "hung"
    assert run.cases["event/unrecorded-has-passed"]["outcome"] == "hung"
    assert run.document["levels"][1]["hung"] == 2


def test_what_is_next_names_function_text_and_script(
    certify: Callable[..., Any], run_python: Callable[..., Any], faulty: Callable[[str], str]
) -> None:
    run = certify("--level", "0", fault="short")
    assert run.status == 1 and run.document["level_reached"] is None
    following = run.document["next"]
    assert run.cases[FILL]["outcome"] == "failed"
    assert following["specification"] and following["reproducer"]
    reproducer = run.cases[FILL]["reproducer"]
    assert len(reproducer.splitlines()) <= 10

    def rerun(fault: str) -> Any:
        program = f"import sys; sys.path.insert(0, {faulty(fault)!r})\n{reproducer}"
        return run_python(program, env={"CHIPSET_PLUGINS": "chipset_faulty"})

    assert "mem_fill" in rerun("short").stderr
    again = rerun("none")
    assert again.returncode == 0 and "passed" in again.stdout


def test_a_part_reaches_no_level(certify: Callable[..., Any]) -> None:
    run = certify("--level", "0", "--only", "mem_fill")
    assert run.status == 0 and run.document["reached"]
    assert run.document["level_reached"] is None and run.document["levels"][0]["not_run"] > 20
    wrong = certify("--level", "0", "--only", "no-such")
    assert wrong.status == 1 and "no case matches 'no-such'" in wrong.document["error"]


def test_mandatory_is_not_unsupported(certify: Callable[..., Any]) -> None:
    run = certify("--level", "0", "--only", FILL, fault="refuse")
    assert run.cases[FILL]["outcome"] == "failed"
    assert run.cases[FILL]["message"].startswith("mandatory, but not supported")
    assert "does not fill" in run.cases[FILL]["message"]


# ---- declarations --------------------------------------------------------------------------------

REASON = 'reason = "The chip fills one byte too few, which its vendor knows."'


def declared(tmp_path: Path, kind: str, cases: str, more: str = "") -> str:
    path = tmp_path / "conformance.toml"
    path.write_text(f'[[{kind}]]\ncases = "{cases}"\n{REASON}\n{more}\n')
    return str(path)


def test_a_declared_failure_is_waived_until_it_expires(
    certify: Callable[..., Any], tmp_path: Path
) -> None:
    only = ("--level", "0", "--only", FILL)
    path = declared(tmp_path, "expected_failure", "memory/fill/*", "expires = 2999-01-01")
    run = certify(*only, "--declarations", path, fault="short")
    assert run.status == 0 and run.cases[FILL]["outcome"] == "waived"
    assert run.document["waivers"][0]["expires"] == "2999-01-01"
    path = declared(tmp_path, "expected_failure", "memory/fill/*", "expires = 2001-01-01")
    run = certify(*only, "--declarations", path, fault="short")
    assert run.status == 1 and run.cases[FILL]["outcome"] == "failed"
    path = declared(tmp_path, "unsupported", "memory/fill/*")
    run = certify(*only, "--declarations", path, fault="short")
    assert run.cases[FILL]["outcome"] == "failed", "unsupported excuses no wrong result"
    run = certify(*only, "--declarations", path, fault="refuse")
    assert run.status == 0 and run.cases[FILL]["outcome"] == "waived"


def test_an_expected_failure_that_passes_is_an_error(
    certify: Callable[..., Any], tmp_path: Path
) -> None:
    path = declared(tmp_path, "expected_failure", FILL)
    run = certify("--level", "0", "--only", FILL, "--declarations", path)
    assert run.status == 1 and "remove or narrow" in run.cases[FILL]["message"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[[unsupported]]\ncases = "*"\nreason = "Everything is beyond this chip."', "glob"),
        ('[[unsupported]]\ncases = "a/*"\nreason = "todo"', "full sentence"),
        ('[[unsupported]]\ncases = "a/*"', "needs cases and reason"),
        ('[[waived]]\ncases = "a/*"', "unknown table 'waived'"),
        (f'[[unsupported]]\ncases = "a/*"\n{REASON}\nexpires = "soon"', "date"),
        ("[[unsupported]", "conformance.toml"),
    ],
)
def test_bad_declarations_are_refused(tmp_path: Path, text: str, why: str) -> None:
    from chipset_conformance.declarations import DeclarationError, read

    path = tmp_path / "conformance.toml"
    path.write_text(text)
    with pytest.raises(DeclarationError, match=why):
        read(path)


def test_what_nothing_judged_is_not_passed(certify: Callable[..., Any]) -> None:
    """jiterator's operators run on CUDA and ROCm only: no sample says what is right. Gradients are
    checked however large the samples are."""
    run = certify("--level", "3", "--only", "torch/*/[jt][ia][tn][eh]*", device="cpu")
    record = run.cases["torch/operator/jiterator_unary"]
    assert record["outcome"] == "not_run" and "accepts no sample" in record["message"]
    kept = Record.model_validate(record)
    assert not kept.mandatory and not kept.bars_the_level
    assert kept.model_copy(update={"mandatory": True}).bars_the_level
    for check in ("operator", "gradcheck", "gradgradcheck"):
        tanh = run.cases[f"torch/{check}/tanh"]
        assert tanh["outcome"] == "passed" and tanh["notes"] == [], tanh


# ---- resume and verify ---------------------------------------------------------------------------


def test_a_run_is_resumed_where_it_ended(certify: Callable[..., Any]) -> None:
    whole = certify("--level", "0", device="cpu")
    journal = whole.folder / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    kept = [json.loads(line) for line in lines[1:6]]
    kept[0]["notes"] = ["from the earlier part"]
    cut_off = lines[6][: len(lines[6]) // 2]
    journal.write_text(lines[0] + "".join(json.dumps(r) + "\n" for r in kept) + cut_off)
    run = certify("--level", "0", "--resume", device="cpu")
    assert run.status == 0, run.text
    assert run.cases[kept[0]["id"]]["notes"] == ["from the earlier part"]
    assert run.document["levels"][0]["not_run"] == 0
    other = certify("--level", "0", "--resume", "--seed", "5", device="cpu")
    assert other.status == 1 and "belongs to another run" in other.document["error"]


def test_a_certificate_is_verified(
    certify: Callable[..., Any], run_python: Callable[..., Any]
) -> None:
    path = certify("--level", "0", device="cpu").folder / "certificate.json"

    def verify() -> tuple[int, dict[str, Any]]:
        done = run_python("-m", "chipset.cli", "certify", "--verify", str(path), "--json")
        return done.returncode, json.loads(done.stdout)

    status, result = verify()
    assert status == 0 and result["hash_matches"] and result["sampled"] > 20
    assert result["libraries"] == []
    document = json.loads(path.read_text())
    for case in document["cases"]:
        if case["outcome"] == "passed":
            case["outcome"] = "failed"
    path.write_text(json.dumps(document))
    status, result = verify()
    assert status == 1 and not result["hash_matches"] and result["differences"]
    forged = Certificate.model_validate(document)
    document["content_hash"] = forged.hashed()
    path.write_text(json.dumps(document))
    status, result = verify()
    assert result["hash_matches"], "whoever forges a certificate can compute a hash"
    assert status == 1 and result["differences"], "what was forged shows when it is run again"


def test_a_certificate_of_another_build_is_not_this_builds(
    certify: Callable[..., Any], run_python: Callable[..., Any], repository: Path
) -> None:
    folder = certify("--level", "0", "--only", "mem_fill", device="cpu").folder
    path = folder / "certificate.json"
    whole = Certificate.model_validate_json(path.read_text())
    files = {
        "plugin": repository / "plugins" / "cpu" / "chipset_cpu" / "libchipset_cpu.so",
        "runtime": repository / "core" / "chipset" / "lib" / "libchipset_runtime.so",
    }
    assert whole.libraries == {
        name: "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()
        for name, file in files.items()
    }
    for name in (*files, None):
        libraries = {**whole.libraries, name: "sha256:0"} if name else {}
        forged = whole.model_copy(update={"libraries": libraries})
        forged.content_hash = forged.hashed()
        path.write_text(forged.model_dump_json())
        done = run_python("-m", "chipset.cli", "certify", "--verify", str(path), "--json")
        result = json.loads(done.stdout)
        assert done.returncode == 1 and result["hash_matches"], "only the builds differ"
        assert result["differences"] == []
        assert len(result["libraries"]) == (1 if name else 2), result["libraries"]
        assert (name or "does not name") in result["libraries"][0]


def test_the_certificate_is_the_schemas_and_says_what_was_asked(
    certify: Callable[..., Any], tmp_path: Path
) -> None:
    run = certify("--level", "0", "--seed", "7", "--jobs", "3", device="cpu", out="elsewhere")
    assert run.folder == tmp_path / "elsewhere"
    assert {file.name for file in run.folder.iterdir()} == {
        "certificate.json",
        "journal.jsonl",
        "junit.xml",
        "report.html",
    }
    whole = Certificate.model_validate_json((run.folder / "certificate.json").read_text())
    assert whole.seed == 7 and whole.content_hash == whole.hashed()
    alone = certify("--level", "0", "--seed", "7", "--jobs", "1", device="cpu")
    assert {i: case["outcome"] for i, case in run.cases.items()} == {
        i: case["outcome"] for i, case in alone.cases.items()
    }, "how many processes judge changes no verdict"


def test_an_unknown_device_is_said(certify: Callable[..., Any]) -> None:
    run = certify(device="nochip")
    assert run.status == 1 and "no device 'nochip'" in run.document["error"]
