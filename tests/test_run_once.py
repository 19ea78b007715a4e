"""What a program does outside is done once, however often its fixes make it run again."""

import http.server
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradscope.config import Config
from gradscope.facts import EffectKind, Fix, NotTried, Reason, Report
from gradscope.pipeline import trace
from gradscope.programs import Repeat, RunOptions, parse_target, run
from gradscope.report import closing, trials

BREAKS = """
import os, torch
x = torch.tensor([0.0, 1.0], requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)
torch.where(x > 0, x.sqrt(), x).sum().backward()
optimizer.step()
"""
# Each does one thing outside before the failing step, as its line tells.
WRITES = {
    "log": "open('log', 'a').write('one\\n')",
    "logging": "import logging\nlogging.basicConfig(filename='log')\nlogging.warning('one')",
    "checkpoint": "import torch\ntorch.save({'w': torch.ones(3)}, 'log')\n"
    "assert torch.load('log')['w'].sum() == 3",
    "rename": "import os\nopen('new', 'w').write('one\\n')\nos.replace('new', 'log')",
    "folder": "import os\nos.mkdir('out')\nopen('out/log', 'x').write('one\\n')",
    "own": "import os\nopen('own', 'w').close()\nos.remove('own')\nopen('log', 'a').write('one')",
    "database": "import sqlite3\nsqlite3.connect('log').execute('create table t (a)')",
    "hdf5": "import h5py\nwith h5py.File('log', 'a') as file: file[str(len(file))] = 1",
    "scripted": "import torch, warnings\nwarnings.simplefilter('ignore')\n"
    "torch.jit.script(torch.nn.Linear(2, 2)).save('log')\n"
    "torch.jit.load('log')(torch.ones(1, 2))",
    "profile": "import json, torch\nwith torch.profiler.profile() as seen: torch.ones(2).sum()\n"
    "seen.export_chrome_trace('log')\njson.load(open('log'))",
    "safetensors": "import torch\nfrom safetensors.torch import load_file, save_file\n"
    "save_file({'w': torch.ones(3)}, 'log')\nassert load_file('log')['w'].sum() == 3",
    "mapped": "import torch\ntorch.from_file('log', shared=True, size=4)[0] += 1",
    "store": "import os, torch.distributed as d\nd.FileStore('log').add('n', 1)\n"
    "place = 'file://' + os.path.abspath('store')\n"
    "d.init_process_group('gloo', rank=0, world_size=1, init_method=place)",
    "history": "import readline\nreadline.add_history('one')\n"
    "readline.write_history_file('log')\nreadline.append_history_file(1, b'log')",
    "pipe": "import os\nos.mkfifo('pipe')\nos.remove('pipe')\nopen('log', 'a').write('one')",
    "processor": "import platform\nplatform._Processor.from_subprocess()",
}
ENDS = """
import atexit
atexit.register(lambda: open('atexit', 'a').write('one\\n'))
try:
    import breaks
    open('uploaded', 'a').write('one\\n')
finally:
    open('finally', 'a').write('one\\n')
"""


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """The report on a program in a folder of its own, which is the current one."""
    monkeypatch.chdir(tmp_path)

    def report(text: str, **config: object) -> Report:
        Path("program.py").write_text(text)
        return trace(parse_target("program.py"), Config(**config), silent=True)  # type: ignore[arg-type]

    return report


@pytest.fixture
def server() -> Iterator[tuple[int, list[str]]]:
    """The port of one that notes what it is sent."""
    came: list[str] = []

    class Noting(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: object) -> None: ...

    one = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Noting)
    threading.Thread(target=one.serve_forever, daemon=True).start()
    yield one.server_port, came
    one.shutdown()
    one.server_close()


def disk() -> dict[str, tuple[int, bytes]]:
    """Every file with the time when it was last written, and its content."""
    found = [path for path in Path().rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


def first(report: Report) -> Fix:
    return report.findings[0].fixes[0]


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.long
def test_what_is_written_is_written_once_and_is_no_hindrance(name, traced, tmp_path):
    pytest.importorskip({"hdf5": "h5py"}.get(name, name if name == "safetensors" else "torch"))
    Path("program.py").write_text(f"{WRITES[name]}\n{BREAKS}")
    target = parse_target("program.py")
    seen = run(target, RunOptions(), silent=True)
    once = disk()
    made = frozenset(one.what for one in seen.effects if one.own)

    again = run(target, RunOptions(steps=1), repeat=Repeat(made))

    assert len(again.steps) == 1 and not again.effects, again.ending
    assert disk() == once


@pytest.mark.parametrize(
    "what",
    [
        "torch.save({}, '/no/where')",
        "import warnings; warnings.simplefilter('ignore'); "
        "torch.jit.script(torch.nn.ReLU()).save('/no/where')",
    ],
)
def test_a_native_writer_that_fails_is_the_programs_affair(what, traced):
    report = traced(f"{BREAKS.replace('0.0', '2.0')}\n{what}")

    ending = report.trace.ending
    assert (ending.kind, ending.location.line) == ("raised", 8)
    assert "/no" in ending.detail


def test_a_writer_whose_failure_the_program_expects_is_no_hindrance(traced):
    fails = "import torch\ntry:\n    torch.save({}, '/no/where')\nexcept RuntimeError:\n    pass\n"

    assert first(traced(fails + BREAKS)).verified


def test_a_database_that_is_opened_by_an_address_is_written_once(traced):
    opens = "import sqlite3\none = sqlite3.connect('file:log?mode=rwc', uri=True)\n"
    report = traced(f"{opens}one.execute('create table t (a)')\n{BREAKS}")

    verdict = first(report).verdict
    assert isinstance(verdict, NotTried) and verdict.effect.what.endswith("log")


OPENS = {
    "by a name": "base = sqlite3.connect('base')",
    "in memory": "base = sqlite3.connect(':memory:')",
    "by its class": "base = sqlite3.Connection(':memory:')",
    "by a class of its own": "class Own(sqlite3.Connection): pass\n"
    "base = sqlite3.connect(':memory:', factory=Own)",
    "asking": "base = sqlite3.connect(':memory:')\nasked = []\n"
    "base.set_authorizer(lambda *names: asked.append(names) or sqlite3.SQLITE_OK)",
}
ATTACHES = """
import sqlite3
{opens}
base.execute("attach {name} as other", {given})
base.execute("create table if not exists other.t (a)")
base.execute("insert into other.t values (1)")
base.commit()
"""


@pytest.mark.parametrize("opens", OPENS)
@pytest.mark.parametrize(
    ("name", "given", "said"),
    [("'log'", (), "writes log"), ("?", ("log",), "writes a database that it attaches")],
)
@pytest.mark.long
def test_a_database_that_another_one_attaches_is_written_once(opens, name, given, said, traced):
    report = traced(ATTACHES.format(opens=OPENS[opens], name=name, given=given) + BREAKS)

    assert sqlite3.connect("log").execute("select a from t").fetchall() == [(1,)]
    assert said in trials.verdict(first(report))


def test_a_database_in_memory_that_another_one_attaches_is_no_hindrance(traced):
    attaches = ATTACHES.format(opens=OPENS["asking"], name="':memory:'", given=())
    compacts = "import sqlite3\nsqlite3.connect('log').execute('vacuum')\n"

    assert first(traced(attaches + compacts + BREAKS)).verified


def test_a_fix_is_verified_though_the_program_writes_and_makes_folders(traced):
    report = traced(f"{WRITES['folder']}\n{WRITES['checkpoint']}\n{BREAKS}")
    assert first(report).verified
    assert report.runs == 2
    assert "ran your program twice" in closing.summary(report)


KEEPS = """
import tempfile, torch
torch.manual_seed(0)
net = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
average = torch.zeros(3)
with tempfile.TemporaryDirectory() as folder:
    for step in range(12):
        out = net(torch.randn(4, 4)).tanh().mean(0)
        loss = out.square().sum() + (out * average).sum() * (step > 9)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average = 0.9 * average.detach() + 0.1 * (out if step > 8 else out.detach())
        torch.save(net.state_dict(), f"{folder}/last.pt")
"""


def test_a_folder_that_a_program_removes_at_its_end_is_there_again_in_a_replay(traced):
    report = traced(KEEPS)
    assert (report.findings[0].rule, first(report).verified) == ("GS303", True)


def test_nothing_of_the_programs_runs_after_the_failing_step_of_a_try(traced):
    Path("breaks.py").write_text(BREAKS)
    report = traced(ENDS)

    assert report.runs > 1
    ends = ("atexit", "finally", "uploaded")
    assert {name: Path(name).read_text() for name in ends if Path(name).exists()} == {
        "atexit": "one\n",
        "finally": "one\n",
    }


def test_a_connection_is_made_once_and_the_report_says_where(traced, server, monkeypatch):
    port, came = server
    send = f"import urllib.request as u\nu.urlopen('http://localhost:{port}', data=b'x').read()\n"
    report = traced(f"{send}{BREAKS}{send}")

    assert came == ["x"]
    assert report.runs == 1
    verdict = first(report).verdict
    assert isinstance(verdict, NotTried) and verdict.reason is Reason.OUTSIDE
    assert trials.verdict(first(report)) == (
        f"not tried: the program connects to localhost:{port} at program.py:2 before the failing "
        "step; --rerun runs it again all the same"
    )


def test_rerun_connects_again_before_the_failing_step_and_never_after(traced, server):
    port, came = server
    send = f"u.urlopen('http://localhost:{port}', data=b'%s').read()\n"
    text = f"import urllib.request as u\n{send % 'before'}{BREAKS}{send % 'after'}"
    report = traced(text, rerun=True)

    assert first(report).verified
    assert came == ["before"] * report.runs


def test_what_only_a_second_run_would_do_ends_it_first(traced, server):
    """The first run was stopped by the error in its step; the patched one would go on and upload
    before it gets there."""
    port, came = server
    upload = (
        "if x.grad.isfinite().all():\n"
        "    import urllib.request\n"
        f"    urllib.request.urlopen('http://localhost:{port}', data=b'x')\n"
    )
    report = traced(BREAKS.replace("optimizer.step()", f"{upload}optimizer.step()"))

    assert first(report).verified
    assert came == []


def test_a_bad_gradient_that_a_try_still_holds_when_it_is_ended_counts(traced, server):
    """It is ended before the optimizer would have taken it."""
    port, came = server
    send = f"import urllib.request as u\nu.urlopen('http://localhost:{port}', data=b'x').read()\n"
    Path("program.py").write_text(BREAKS.replace("optimizer.step()", f"{send}optimizer.step()"))
    again = run(parse_target("program.py"), RunOptions(passes=1), repeat=Repeat())

    assert [one.kind for one in again.symptoms] == ["nan-grad"]
    assert came == []


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        ("import subprocess; subprocess.run(['touch', 'made'])", EffectKind.PROCESS, "touch made"),
        ("import os; os.system('touch made')", EffectKind.PROCESS, "touch made"),
        ("import os; os.remove('old')", EffectKind.DELETION, "old"),
        ("import os; os.rename('old', 'backup')", EffectKind.RENAME, "old"),
        ("import shutil; shutil.rmtree('older')", EffectKind.DELETION, "older/one"),
    ],
)
def test_what_cannot_be_hidden_waits_for_rerun(line, kind, said, traced, tmp_path):
    Path("old").write_text("one\n")
    Path("older").mkdir()
    Path("older/one").write_text("one\n")
    report = traced(f"{line}\n{BREAKS}")

    verdict = first(report).verdict
    assert isinstance(verdict, NotTried) and verdict.effect is not None
    assert verdict.effect.kind is kind
    assert verdict.effect.what.endswith(said)
    assert verdict.effect.location.line == 1
    assert report.runs == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("os.kill({pid}, signal.SIGURG)", "signals process {pid} (SIGURG)"),
        (
            "signal.pidfd_send_signal(os.pidfd_open({pid}), signal.SIGURG)",
            "signals process {pid} (SIGURG)",
        ),
        ("os.killpg({group}, signal.SIGURG)", "signals the processes of group {group} (SIGURG)"),
        ("import syslog; syslog.syslog('one')", "connects to the system log"),
        ("import torch.distributed as d; d.FileStore('file', 2)", "connects to file"),
    ],
)
@pytest.mark.skipif(not hasattr(signal, "pidfd_send_signal"), reason="no such signals here")
def test_a_signal_to_others_is_sent_once(line, said, traced):
    with subprocess.Popen(["sleep", "99"], start_new_session=True) as other:
        try:
            whom = {"pid": other.pid, "group": other.pid}
            report = traced(f"import os, signal\n{line.format(**whom)}\n{BREAKS}")
            assert other.poll() is None
        finally:
            other.kill()

    assert report.runs == 1
    assert said.format(**whom) in trials.verdict(first(report))


def test_a_signal_to_its_own_is_no_hindrance(traced):
    text = """
import multiprocessing, os, signal, subprocess, time
signal.signal(signal.SIGUSR1, lambda *_: None)
os.kill(os.getpid(), signal.SIGUSR1)
os.killpg(os.getpgrp(), signal.SIGURG)
os.kill(os.getppid(), 0)
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(99,))
child.start()
child.terminate()
child.join()
forked = os.fork()
if not forked:
    os.kill(os.getppid(), signal.SIGUSR1)
    os._exit(0)
os.waitpid(forked, 0)
"""
    assert first(traced(text + BREAKS)).verified


def test_workers_of_a_loader_are_the_programs_own(traced):
    text = """
import torch
from torch.utils.data import DataLoader, Dataset

class Items(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        with open(f"seen-{i}", "a") as file:
            file.write("one\\n")
        return torch.tensor([float(i)])

x = torch.tensor([1.0], requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)
for item in DataLoader(Items(), num_workers=1, multiprocessing_context="fork"):
    y = x * item[0]
    torch.where(y > 0, y.sqrt(), y).sum().backward()
    optimizer.step()
"""
    report = traced(text)
    assert first(report).verified
    assert {path.read_text() for path in Path().glob("seen-*")} == {"one\n"}


def test_a_try_leaves_no_temporary_files(traced, tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    report = traced(f"import tempfile\ntempfile.mkdtemp()\ntempfile.mkstemp()\n{BREAKS}")

    assert first(report).verified
    assert len(list(temporary.glob("tmp*"))) == 2  # of the first run, beside a folder of torch's


def test_no_more_runs_are_made_than_may_be_and_that_is_said(traced):
    several = "\n".join(
        f"a{i} = torch.tensor([0.0, 1.0], requires_grad=True)\n"
        f"loss = loss + torch.where(a{i} > 0, a{i}.sqrt(), a{i}).sum()"
        for i in range(3)
    )
    text = f"import torch\nopen('starts', 'a').write('x')\nloss = 0.0\n{several}\nloss.backward()\n"
    report = traced(text, verify_runs=1)

    assert report.runs == 2
    assert Path("starts").read_text() == "x"
    reasons = {
        fix.verdict.reason
        for finding in report.findings
        for fix in finding.fixes
        if isinstance(fix.verdict, NotTried)
    }
    assert Reason.RUNS in reasons


def test_the_commands_say_how_often_the_program_ran(gradscope, tmp_path):
    (tmp_path / "program.py").write_text(f"{WRITES['log']}\n{BREAKS}")

    told = gradscope("trace", "program.py", "--format", "json").stdout
    assert json.loads(told)["runs"] == 2

    fixed = gradscope("fix", "program.py")
    assert "ran your program 3 times" in fixed.stderr
    assert fixed.returncode == 0
    assert (tmp_path / "log").read_text() == "one\n" * 2  # once for each command


@pytest.mark.long
def test_a_killed_try_leaves_no_folder(tmp_path):
    """Whatever ends the child, its parent removes what it wrote; and the next run what was left by
    a parent that was killed as well."""
    parent, child = (tmp_path / f"{who}.py" for who in ("parent", "child"))
    writes = "import os, signal\nopen('log', 'w').write('x')\n"
    parent.write_text(f"{writes}os.kill(os.getppid(), signal.SIGKILL)\nsignal.pause()\n")
    child.write_text(f"{writes}os.kill(os.getpid(), signal.SIGKILL)\n")
    temporary = tmp_path / "temporary"
    temporary.mkdir()

    def tried(program: Path) -> str:
        work = (
            "from gradscope.programs import Repeat, RunOptions, parse_target, run\n"
            "repeat = Repeat(allowed=True)  # to kill who is not its own\n"
            f"print(run(parse_target({str(program)!r}), RunOptions(), repeat=repeat).ending.kind)"
        )
        done = subprocess.run(
            [sys.executable, "-c", work],
            env=os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.stdout.strip()

    assert tried(parent) == ""
    (left,) = temporary.iterdir()
    os.utime(left, (0, 0))
    assert tried(child) == "died"
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "log").exists()


def test_a_search_for_edge_inputs_writes_nothing_and_does_not_connect(gradscope, tmp_path):
    (tmp_path / "losses.py").write_text(
        "import os, torch\n\n"
        "def writes(x):\n"
        "    with open('calls', 'a') as file:\n"
        "        file.write('x')\n"
        "    return (x * x).sum()\n\n"
        "def starts(x):\n"
        "    os.system('true')\n"
        "    return (x * x).sum()\n"
    )
    (tmp_path / "gradscope.yaml").write_text(
        "stress: true\n"
        "inputs: {x: {shape: [3], seed: 0, requires_grad: true}}\n"
        "targets: ['losses.py:writes', 'losses.py:starts']\n"
    )
    done = gradscope("check")

    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "calls").read_text() == "x"
    told = " ".join(done.stdout.split())
    assert "edge inputs tried" in told
    assert "not checked: edge inputs (the program starts true at losses.py:9" in told
