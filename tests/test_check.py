"""`gradscope check`: what becomes of each target, what is accepted, and every format."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
import torch
from conftest import paths

from gradscope.accepted import accepted_by, read_baseline
from gradscope.check.cases import cases_of
from gradscope.check.whole import check, code_of
from gradscope.config import Config, load_config
from gradscope.errors import ExitCode, GradscopeError
from gradscope.facts import Finding, Summary
from gradscope.pipeline import trace
from gradscope.programs.choose import choose
from gradscope.report import FORMATS, Options, closing

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = """\
import os
import signal
import torch


def good(x):
    return (x * x).mean()


def bad(x):
    return x.sqrt().sum()


def hangs(x):
    open("hanging", "w").close()
    while True:
        pass


def hangs_later(x):
    (x * x).sum().backward()
    while True:
        pass


def dies(x):
    os.kill(os.getpid(), signal.SIGSEGV)


def eats(x):
    held = []
    while True:
        held.append(torch.ones(5_000_000))


def raises(x):
    raise ValueError("</script>]]><b>\\x1b[31m::error::%0A `|`")


def half_only_matmul(x):
    if x.dtype == torch.bfloat16:
        raise RuntimeError("'grid' is not implemented for 'BFloat16'")
    return x.sum()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "losses.py").write_text(PROGRAM)
    return tmp_path


def configured(folder: Path, *targets: str, more: str = "") -> Config:
    lines = [f"{{name: {name}, target: 'losses.py:{name}'}}" for name in targets]
    text = f"inputs: {{x: {{values: [0.0, 1.0]}}}}\nverify: false\n{more}\ntargets:\n"
    (folder / "gradscope.yaml").write_text(text + "".join(f"  - {line}\n" for line in lines))
    return load_config()


def checked(config: Config, *asked: str) -> tuple[Summary, ExitCode]:
    cases = cases_of(config, asked)
    summary = check(config, cases)
    return summary, code_of(summary, cases, config)


def rules(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.rule for finding in findings]


@pytest.mark.long
def test_no_target_takes_the_others_with_it(folder):
    names = ("good", "bad", "hangs", "hangs_later", "dies", "eats", "raises")
    config = configured(folder, *names, more="time-limit: 6\nmemory-limit: 300 MiB")

    summary, code = checked(config)

    found = {report.target: report for report in summary.reports}
    assert list(found) == list(names)
    assert {name: report.verdict for name, report in found.items()} == {
        "good": "healthy",
        "bad": "unhealthy",
        "hangs": "failed",
        "hangs_later": "failed",
        "dies": "failed",
        "eats": "failed",
        "raises": "failed",
    }
    endings = {name: report.trace.ending for name, report in found.items()}
    assert endings["hangs"].detail == "no backward pass within the time limit of 6 s"
    assert endings["hangs_later"].detail == "after 1 step within the time limit of 6 s"
    assert "SIGSEGV" in endings["dies"].detail
    assert "memory limit 300 MiB" in endings["eats"].detail
    assert rules(found["bad"].findings) == ["GS102"]
    assert code is ExitCode.FINDINGS


def test_a_target_gets_no_more_threads_than_were_asked_for(folder):
    (folder / "losses.py").write_text(
        "import torch\ndef one(x):\n    assert torch.get_num_threads() == 1\n    return x.sum()\n"
    )
    given = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        (report,) = checked(configured(folder, "one"))[0].reports
    finally:
        torch.set_num_threads(given)
    assert report.verdict == "healthy", report.trace.ending


def test_a_target_that_cannot_be_run_is_one_failure_among_the_others(folder):
    config = configured(folder, "good", "godo")

    summary, code = checked(config)

    assert [report.verdict for report in summary.reports] == ["healthy", "failed"]
    assert summary.reports[1].trace.ending.kind == "unusable"
    assert "did you mean good?" in summary.reports[1].trace.ending.detail
    assert code is ExitCode.UNUSABLE


def test_a_dtype_that_a_program_cannot_take_is_a_note(folder):
    config = configured(folder, "half_only_matmul", more="dtypes: [float32, bfloat16]")

    summary, code = checked(config)

    first, second = summary.reports
    assert (first.verdict, second.verdict) == ("healthy", "healthy")
    assert second.trace.notes[0].startswith("bfloat16 could not be tried")
    assert code is ExitCode.OK


def test_dtypes_reach_inputs_models_and_autocast(folder):
    (folder / "dtypes.py").write_text(
        "import torch\n"
        "def loss(x):\n"
        "    y = x @ x\n"
        "    raise ValueError(f'{x.dtype} {y.dtype} {torch.empty(0).dtype} {x.is_leaf}')\n"
    )
    text = (
        "inputs: {x: {shape: [2, 2]}}\n"
        "dtypes: [float64, bfloat16, autocast]\n"
        "targets: ['dtypes.py:loss']\n"
    )
    (folder / "gradscope.yaml").write_text(text)

    summary, _ = checked(load_config())

    told = [report.trace.ending.detail.replace("torch.", "") for report in summary.reports]
    assert told == [
        "ValueError: float64 float64 float64 True",
        "ValueError: bfloat16 bfloat16 bfloat16 True",
        "ValueError: float32 bfloat16 float32 True",
    ]


def test_thresholds_are_findings(folder):
    config = configured(folder, "good", more="thresholds: {max-grad-norm: 0.5, max-loss: 100}")

    summary, code = checked(config)

    (finding,) = summary.reports[0].findings
    assert (finding.rule, finding.evidence["limit"]) == ("GS401", 0.5)
    assert finding.message == "the total gradient norm is 1 at step 0, above max-grad-norm 0.5"
    assert code is ExitCode.FINDINGS


def test_the_inputs_of_a_function_keep_their_names(folder):
    summary, _ = checked(configured(folder, "bad"))

    (symptom,) = summary.reports[0].trace.symptoms
    assert symptom.tensor == "x"


def test_what_importing_a_script_left_in_gradients_is_not_the_functions(folder):
    text = "import torch\nw = torch.nn.Parameter(torch.zeros(2))\nw.sqrt().sum().backward()\n"
    (folder / "script.py").write_text(text + "def good(x):\n    return (w * x).sum()\n")
    (folder / "gradscope.yaml").write_text(
        "targets:\n  - script.py:good\ninputs: {x: [1.0, 2.0]}\n"
    )

    summary, code = checked(load_config())

    assert (summary.reports[0].findings, code) == ((), ExitCode.OK)


def test_comments_accept_and_say_when_they_no_longer_do(folder):
    text = PROGRAM.replace("x.sqrt().sum()", "x.sqrt().sum()  # gradscope: ignore[GS102]")
    text = text.replace("(x * x).mean()", "(x * x).mean()  # gradscope: ignore[GS201]")
    text = text.replace("held = []", "held = []  # gradscope: ignore[log-zeor]")
    (folder / "losses.py").write_text(text)

    summary, code = checked(configured(folder, "good", "bad"))

    assert [report.verdict for report in summary.reports] == ["healthy", "healthy"]
    assert summary.reports[1].remarks == ("1 finding accepted by a comment",)
    assert summary.reports[1].accepted == 1
    assert "every loss" not in closing.summary(summary.reports[1])
    assert "healthy but for 1 accepted finding" in closing.summary(summary.reports[1])
    assert [(one.rule, one.severity.value, one.message) for one in summary.findings] == [
        ("GS903", "warning", "nothing is left to ignore here (GS201)"),
        ("GS903", "warning", "the comment names no rule: log-zeor; did you mean log-zero?"),
    ]
    assert code is ExitCode.OK
    assert [one.message for one in checked(load_config(), "bad")[0].findings] == [
        "the comment names no rule: log-zeor; did you mean log-zero?"
    ]


def test_a_baseline_accepts_what_it_holds_wherever_it_moves(folder):
    config = configured(folder, "bad", more="baseline: accepted.json")
    with pytest.raises(GradscopeError, match=r"there is no baseline accepted\.json"):
        checked(config)
    check(config, cases_of(config), write_baseline=True)
    (folder / "losses.py").write_text("# a line above\n" + PROGRAM)

    summary, code = checked(config)

    assert summary.reports[0].findings == ()
    assert summary.reports[0].remarks == ("1 finding in the baseline",)
    assert code is ExitCode.OK


def test_a_baseline_holds_from_another_folder_and_in_a_trace(folder, monkeypatch):
    config = configured(folder, "bad", more="baseline: accepted.json")
    check(config, cases_of(config), write_baseline=True)
    (folder / "deeper").mkdir()
    monkeypatch.chdir(folder / "deeper")
    config = load_config()

    summary, code = checked(config)
    target = choose(config).target
    report = accepted_by(trace(target, config, silent=True), config)

    assert (summary.reports[0].accepted, code) == (1, ExitCode.OK)
    assert (report.accepted, report.findings) == (1, ())


def test_a_baseline_that_a_trace_cannot_read_costs_no_report(folder):
    config = configured(folder, "bad", more="baseline: accepted.json")
    target = choose(config).target

    report = accepted_by(trace(target, config, silent=True), config)

    assert [one.rule for one in report.findings] == ["GS102"]
    assert report.remarks[-1] == "no baseline was applied: there is no baseline accepted.json"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", r"accepted\.json:1:2: "),
        ("[]", r"accepted\.json is not a baseline"),
        ('{"schema": "gradscope-baseline/9", "accepted": []}', "is of another version"),
    ],
)
def test_a_baseline_that_is_none_is_said(folder, text, says):
    config = configured(folder, "good", more="baseline: accepted.json")
    (folder / "accepted.json").write_text(text)

    with pytest.raises(GradscopeError, match=says):
        checked(config)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    """One healthy target, one with a finding, one that raises hostile text."""
    folder = tmp_path_factory.mktemp("several")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "losses.py").write_text(PROGRAM)
        return checked(configured(folder, "good", "bad", "raises"))[0]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_holds_every_target_and_no_live_escape(several, name):
    text = FORMATS[name].render_all(several, Options(width=100))

    assert all(target in text for target in ("good", "bad", "raises", "GS102"))
    assert "\x1b" not in text
    assert text.endswith("\n")


def test_json_keeps_its_schema(several):
    document = json.loads(FORMATS["json"].render_all(several, Options()))

    schema = json.loads((ROOT / "gradscope/report/schema.json").read_text())
    jsonschema.validate(document, schema)
    assert document["verdict"] == "unhealthy"
    assert [one["target"] for one in document["findings"]] == ["bad"]
    assert [one["verdict"] for one in document["targets"]] == ["healthy", "unhealthy", "failed"]


def test_sarif_is_one_run_with_all_results(several):
    log = json.loads(FORMATS["sarif"].render_all(several, Options()))

    (run,) = log["runs"]
    (result,) = run["results"]
    assert result["ruleId"] == "GS102"
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "GS102"
    assert result["properties"]["targets"] == ["bad"]
    assert [one["executionSuccessful"] for one in run["invocations"]] == [True, True, False]


def test_sarif_tells_once_what_several_dtypes_share(folder):
    summary, _ = checked(configured(folder, "bad", more="dtypes: [float32, float64]"))

    (run,) = json.loads(FORMATS["sarif"].render_all(summary, Options()))["runs"]

    (result,) = run["results"]
    assert result["properties"]["targets"] == ["bad [float32]", "bad [float64]"]


def test_junit_is_one_suite_a_target(several):
    root = ElementTree.fromstring(FORMATS["junit"].render_all(several, Options()))

    counts = [[suite.get(one) for one in ("name", "tests", "failures", "errors")] for suite in root]
    assert counts == [["good", "1", "0", "0"], ["bad", "2", "1", "0"], ["raises", "1", "0", "1"]]
    assert [root.get(one) for one in ("tests", "failures", "errors")] == ["4", "1", "1"]


def test_github_annotates_the_line_and_lets_nothing_in(several):
    lines = FORMATS["github"].render_all(several, Options()).splitlines()

    commands = [line for line in lines if line.startswith("::")]
    assert [re.match(r"::(\w+) ", line)[1] for line in commands] == ["error", "error"]
    assert "file=losses.py,line=11" in commands[0]
    assert lines[-1].startswith("gradscope: 3 targets: 1 healthy, 1 unhealthy, 1 failed")


def test_html_is_well_formed(several):
    opened: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in ("meta", "br"):
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    page = FORMATS["html"].render_all(several, Options())
    Reader().feed(page)

    assert opened == []
    assert "<script" not in page


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.stem)
@pytest.mark.long
def test_the_sample_configurations_are_healthy(path, monkeypatch):
    monkeypatch.chdir(ROOT)

    summary, code = checked(load_config(path))

    assert {report.verdict for report in summary.reports} == {"healthy"}
    assert summary.all_findings == ()
    assert code is ExitCode.OK


class TestCommand:
    @pytest.mark.long
    def test_reports_in_several_formats(self, gradscope, tmp_path):
        done = gradscope(
            "check", "gamma_mask", "gamma_mask_fixed", "--no-verify",
            "--report", "sarif=out.sarif", "--report", "junit=out.xml",
        )  # fmt: skip

        assert done.returncode == 1, done.stderr
        assert done.stdout.endswith(
            "2 targets: 1 healthy, 1 unhealthy (1 error; 0 of 2 fixes verified)\n"
        )
        assert json.loads((tmp_path / "out.sarif").read_text())["version"] == "2.1.0"
        assert ElementTree.parse(tmp_path / "out.xml").getroot().tag == "testsuites"
        assert done.stderr == ""

    def test_what_is_healthy_passes(self, gradscope):
        done = gradscope("check", "gamma_mask_fixed")

        assert done.returncode == 0
        assert len(done.stdout.splitlines()) < 4

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("nothing",), "unknown target nothing"),
            (("--dtype", "float23"), "--dtype has an unknown dtype float23"),
            (("--memory-limit", "big"), "--memory-limit must be a size such as 2 GiB"),
            (("--report", "sarif"), "--report sarif is not FORMAT=FILE"),
            (("--report", "pdf=x"), "unknown format pdf"),
            (("gamma_mask", "--write-baseline"), "--write-baseline does not know where to"),
            (("gamma_mask", "--select", "GX1"), "unknown rule GX1"),
        ],
    )
    def test_a_mistake_is_one_line(self, gradscope, words, says):
        done = gradscope("check", *words)

        assert done.returncode == 2
        assert done.stderr.splitlines()[0].startswith(f"gradscope: error: {says}")

    def test_ctrl_c_keeps_what_is_done(self, folder):
        configured(folder, "good", "hangs", more="jobs: 1")
        command = [sys.executable, "-m", "gradscope", "check", "--format", "json"]
        environment = os.environ | {"PYTHONPATH": paths()}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        started = time.monotonic()
        while not (folder / "hanging").exists() and time.monotonic() < started + 60:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)

        endings = [one["ending"]["kind"] for one in json.loads(out)["targets"]]
        assert endings == ["finished", "interrupted"]


@pytest.mark.parametrize("content", ["[" * 100_000, " " * (17 * 1024**2)], ids=["deep", "large"])
def test_a_file_that_is_no_baseline_is_one_line(content, tmp_path):
    (tmp_path / "baseline.json").write_text(content)

    with pytest.raises(GradscopeError, match=r"is not a baseline|is larger than 16 MiB"):
        read_baseline(tmp_path / "baseline.json")


def test_a_configuration_of_a_megabyte_is_refused_unread(tmp_path):
    (tmp_path / "gradscope.yaml").write_text("steps: 1 # " + "x" * 1024**2)

    with pytest.raises(GradscopeError, match="is larger than 1 MiB"):
        load_config(tmp_path / "gradscope.yaml")
