"""Fixes of a late failure are tried from a copy of the program, made shortly before."""

import gc
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gradscope.config import Config
from gradscope.facts import Hurdle, Origin, Replay, Report
from gradscope.pipeline import trace
from gradscope.programs import Kept, Repeat, RunOptions, parse_target, run
from gradscope.programs.snapshots import loaders, sleepers
from gradscope.record.forking import survives_a_fork
from gradscope.report.closing import effort
from gradscope.report.json_document import document
from gradscope.rounds import fix_target

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="snapshots need Linux")

BEGIN = """
import atexit, random, tempfile
import numpy as np
import torch
from torch import nn

atexit.register(lambda: open("ended", "a").write("one\\n"))
torch.manual_seed(0)
np.random.seed(0)
random.seed(0)
folder = tempfile.TemporaryDirectory()
log = open("train.log", "a")
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
data = torch.rand(32, 4)
"""
LOSS = """
def distance(output, step):
    return (output * (0.0 if step >= LAST else 1.0)).square().sum(1).sqrt().mean()
"""
STEP = """
def train(step):
    batch = data[np.random.permutation(32)[:8]] * random.random()
    optimizer.zero_grad()
    loss = distance(model(batch), step)
    loss.backward()
    optimizer.step()
    log.write(f"{step} {loss.item()}\\n")
"""
LOOP = "for step in range(10_000):\n    train(step)\n"
WITH_A_WORKER = """
for step, _ in enumerate(torch.utils.data.DataLoader(range(200), num_workers=1)):
    train(step)
"""
IN_ONE_FUNCTION = """
def main():
    for step in range(10_000):
        optimizer.zero_grad()
        output = model(data)
        loss = (output * (0.0 if step >= LAST else 1.0)).square().sum(1).sqrt().mean()
        loss.backward()
        optimizer.step()

main()
"""
IN_NONE = """
for step in range(10_000):
    optimizer.zero_grad()
    output = model(data)
    loss = (output * (0.0 if step >= LAST else 1.0)).square().sum(1).sqrt().mean()
    loss.backward()
    optimizer.step()
"""


TWO_FAULTS = """
def attended(scores, values):
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True) * values

def pooled(values, kept):
    return (values * kept).sum(1) / kept.sum(1)

def train(step):
    kept = torch.ones(4, 6)
    kept[1] = 0 if step >= LAST else 1
    values = torch.randn(4, 6)
    optimizer.zero_grad()
    scores = (values * weight).masked_fill(kept == 0, -torch.inf)
    loss = pooled(attended(scores, values), kept).square().mean()
    loss.backward()
    optimizer.step()

weight = torch.ones(6, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
"""


@pytest.fixture(autouse=True)
def nothing_left() -> None:
    """What earlier tests left in this process would be the program's: a store that shares memory
    with the kernel, functions of another `program.py`."""
    gc.unfreeze()
    gc.collect()


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Report]:
    """The report on a program in a folder of its own, of which snapshots are taken often."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sleepers, "SHARE", 100.0)

    def report(text: str, last: int = 30) -> Report:
        Path("program.py").write_text(text.replace("LAST", str(last)))
        return trace(parse_target("program.py"), Config(steps=400), silent=True)

    return report


def replayed(report: Report) -> Replay:
    """How the fix of the one finding was tried, which holds."""
    (finding,) = report.findings
    assert [fix.verified for fix in finding.fixes][:1] == [True], finding.fixes
    assert report.replay is not None
    return report.replay


@pytest.mark.slow
def test_a_fix_of_a_late_failure_is_tried_from_shortly_before(traced):
    report = traced(BEGIN + LOSS + STEP + LOOP, last=150)

    replay = replayed(report)
    assert replay.origin is Origin.SNAPSHOT
    assert 0 < replay.step <= 150
    assert replay.step + replay.steps == 151
    assert replay.identical is (True if replay.step < 150 else None)
    assert report.runs <= 3  # one in float64 judges its values, one may come where a copy is slow
    assert f"replayed from step {replay.step}" in effort(report)
    assert document(report)["replay"] == {
        "from": "snapshot",
        "step": replay.step,
        "steps": replay.steps,
        "identical": replay.identical,
        "hurdle": None,
    }
    assert len(Path("train.log").read_text().splitlines()) == 151  # until the next loss
    assert Path("ended").read_text() == "one\n"


@pytest.mark.long
def test_the_next_fault_is_repaired_below_the_lines_that_a_patch_added(traced):
    report = traced("import torch\n" + TWO_FAULTS + LOOP)

    assert replayed(report).origin is Origin.SNAPSHOT
    (finding,) = report.findings
    patch = finding.fixes[0].patch or ""
    removed = [line for line in patch.splitlines() if re.match(r"-\s", line)]
    assert len(removed) == 3
    assert "torch.exp(scores" in removed[0]
    assert "/ weights.sum(-1" in removed[1]
    assert "/ kept.sum(1)" in removed[2]
    assert "+    scores_amax = scores.amax(-1, keepdim=True)" in patch


@pytest.mark.long
def test_gradscope_fix_tries_a_late_patch_from_there_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sleepers, "SHARE", 100.0)
    text = BEGIN + LOSS + STEP + LOOP.replace("10_000", "60")
    Path("program.py").write_text(text.replace("LAST", "50"))

    repaired = fix_target(parse_target("program.py"), Config(), may_apply=lambda fix: True)

    assert [one.finding.name for one in repaired.applied] == ["singular-derivative"]
    assert not repaired.left
    assert repaired.runs <= 3  # as it is, with the patch, and one where a copy is slow
    assert Path("ended").read_text() == "one\n"


@pytest.mark.slow
@pytest.mark.parametrize("loop", [IN_ONE_FUNCTION, IN_NONE])
def test_a_loop_that_runs_already_is_patched_where_it_is(loop, traced):
    report = traced(BEGIN + loop)

    assert replayed(report).origin is Origin.SNAPSHOT
    assert report.runs <= 2  # one in float64 judges its values
    assert Path("ended").read_text() == "one\n"


@pytest.mark.long
def test_what_is_over_is_tried_from_the_start(traced):
    once = "scale = torch.rand(()) - 0.5\nlast = torch.log(scale - scale)\n"
    late = "loss = (model(data) + (last if step > LAST else 0.0)).square().mean()"
    loop = IN_NONE.replace(
        IN_NONE.split("loss = ")[1].splitlines()[0], late.removeprefix("loss = ")
    )

    report = traced(BEGIN + once + loop)

    assert report.findings
    assert report.runs > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "hurdle"),
    [
        (
            "import threading\n"
            "threading.Thread(target=threading.Event().wait, daemon=True).start()",
            Hurdle.THREADS,
        ),
        ("import os\npipe = os.pipe()", Hurdle.SHARED),
        ("data.share_memory_()", Hurdle.SHARED),
        ("import sqlite3\nbase = sqlite3.connect('base')", Hurdle.SHARED),
        (
            "import subprocess\nchild = subprocess.Popen(['sleep', '60'])\n"
            "atexit.register(child.kill)",
            Hurdle.PROCESSES,
        ),
    ],
)
def test_a_program_that_cannot_be_copied_is_run_again(line, hurdle, traced):
    report = traced(BEGIN + line + LOSS + STEP + LOOP)

    if report.replay is not None:
        assert (report.replay.origin, report.replay.hurdle) == (Origin.START, hurdle)
        assert "; replayed from the start, since " in effort(report)
    (finding,) = report.findings
    assert finding.name == ("unobserved" if "subprocess" in line else "singular-derivative")


@pytest.mark.long
def test_what_was_done_before_the_snapshot_is_not_done_again(traced):
    """A process that it started at first does not keep its fixes from being tried."""
    line = "import subprocess\nsubprocess.run(['true'])\n"
    replay = replayed(traced(BEGIN + line + LOSS + STEP + LOOP))

    assert replay.origin is Origin.SNAPSHOT


@pytest.mark.slow
def test_a_thread_that_looks_after_a_progress_bar_is_no_hindrance(traced):
    """A daemon that sleeps for seconds, for whose work no computation waits."""
    waits = "import threading\nthreading.Thread("
    waits += "target=threading.Event().wait, args=(60,), daemon=True).start()"
    replay = replayed(traced(BEGIN + waits + LOSS + STEP + LOOP))

    assert replay.origin is Origin.SNAPSHOT


@pytest.mark.slow
def test_the_newest_snapshot_will_do_where_a_step_takes_longer_than_a_copy(traced):
    """It is known to begin with finite parameters: the last step in full need not be repeated."""
    slow = STEP.replace("    loss.backward()", "    time.sleep(0.05)\n    loss.backward()")
    examined = traced(BEGIN + "import time\n" + LOSS + slow + LOOP).trace.replay

    assert examined.origin is Origin.SNAPSHOT
    assert examined.step > 20


@pytest.mark.long
def test_a_file_is_read_on_from_where_it_was(traced):
    """By the program and by the copy, each for itself; what it writes and reads is its own."""
    Path("numbers").write_text("\n".join(str(number / 500) for number in range(1, 500)))
    text = BEGIN + "numbers = open('numbers')\nbook = open('book', 'w+')\n" + LOSS
    text += STEP.replace("random.random()", "float(numbers.readline())") + (
        "    book.write('x')\n    book.flush()\n    book.seek(0)\n"
        "    assert len(book.read()) == step + 1\n" + LOOP
    )
    replay = replayed(traced(text))

    assert replay.origin is Origin.SNAPSHOT and replay.identical is not False
    assert Path("book").read_text() == "x" * 31  # step 30 is over when the next loss tells of it


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.long
def test_a_copy_goes_on_with_the_same_losses(threads, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sleepers, "SHARE", 100.0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    can_be_copied = survives_a_fork()
    torch.set_num_threads(before)
    text = BEGIN + f"torch.set_num_threads({threads})\nwide = torch.rand(300, 300)\n" + LOSS
    text += STEP.replace("data[", "(wide @ wide)[:8, :4] / 90 * data[") + LOOP
    Path("program.py").write_text(text.replace("LAST", "30"))
    with Kept() as kept:
        every_step = RunOptions(full_from=0)
        first = run(parse_target("program.py"), every_step, silent=True, kept=kept)
        assert len(kept.snapshots) == (2 if can_be_copied else 0)
        for step in kept.snapshots * 2:
            options = RunOptions(passes=31, full_from=0)
            again = kept.ask(step, options, Repeat(), timeout=60)
            assert 0 < step <= 30
            assert [one.loss for one in again.steps] == [one.loss for one in first.steps]
            assert again.symptoms == first.symptoms
            assert [g.digest for g in again.gradients] == [g.digest for g in first.gradients]


OF_ITS_OWN = """
from gradscope.programs import Kept, Repeat, RunOptions, parse_target, run
from gradscope.programs.audit import own_work
from gradscope.programs.snapshots import sleepers

sleepers.SHARE = 100.0
put_off = sleepers.Snapshots.put_off

def told(self, hurdle=None):
    with own_work(), open("hurdles", "a") as file:
        print(self._only, hurdle or "unclean", file=file)
    put_off(self, hurdle)

sleepers.Snapshots.put_off = told

with Kept() as kept:
    first = run(parse_target("program.py"), RunOptions(), silent=True, kept=kept)
    _, oldest = kept.snapshots
    ahead = min(oldest + 3, 29)

    def ask(step):
        options = RunOptions(passes=31, full_from=ahead)
        found = kept.ask(step, options, Repeat(), ahead=ahead, timeout=60)
        return [one.loss for one in found.steps][:30]

    losses = [one.loss for one in first.steps][:30]
    assert ask(oldest) == losses
    assert ahead in kept.snapshots, "no snapshot of its own"
    assert ask(ahead) == ask(ahead) == losses
    assert ask(oldest) == losses and ahead in kept.snapshots
"""


@pytest.mark.parametrize("loop", [LOOP, WITH_A_WORKER])
@pytest.mark.long
def test_a_copy_takes_a_snapshot_of_its_own_before_the_step_that_is_asked_for(loop, tmp_path):
    """Until an older one is asked; what the copy has written until then is there. In a process of
    its own: what other tests left in this one would be the program's."""
    book = "    log.flush()\n    assert len(open('train.log').readlines()) == step + 1\n"
    (tmp_path / "program.py").write_text((BEGIN + LOSS + STEP + book + loop).replace("LAST", "30"))
    command = [sys.executable, "-c", OF_ITS_OWN]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    hurdles = tmp_path / "hurdles"
    in_copy = (
        re.findall(r"^\d+ (.*)$", hurdles.read_text(), re.MULTILINE) if hurdles.exists() else []
    )
    if done.returncode and in_copy and {*in_copy} == {Hurdle.MEMORY}:
        pytest.skip("the machine has no room for one at this moment")
    assert done.returncode == 0, (in_copy, done.stderr)
    assert len((tmp_path / "train.log").read_text().splitlines()) == 31


def test_what_a_process_shared_with_those_it_forked_does_not_keep_its_copy_from_being_copied():
    code = """
import os
from gradscope.programs.audit import Effects
from gradscope.programs.snapshots.files import open_files, streams

given = streams(())
effects = Effects(lambda: 0, None)
if os.fork() == 0:
    os._exit(0)
os.wait()
assert open_files((), given) is None
assert open_files(effects.descriptors, given) == ()
effects.begin_again(lambda effect: None)
assert open_files(effects.descriptors, given) == ()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_copy_outlives_the_command(number, tmp_path):
    text = BEGIN + LOSS + STEP + "import time\n" + LOOP + "    time.sleep(0.05)\n"
    (tmp_path / "program.py").write_text(text.replace("LAST", "10_000"))
    code = (
        "import sys\n"
        "from gradscope.programs.snapshots import sleepers\n"
        "sleepers.SHARE = 1.0\n"
        "from gradscope.cli import main\n"
        "main()"
    )
    words = [sys.executable, "-c", code, "trace", "program.py", "--steps", "9999"]
    command = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while len(running_in(tmp_path)) < 4:  # the command, the program and two copies
            assert command.poll() is None
            time.sleep(0.1)
        command.send_signal(number)
        command.wait(60)
        until = time.monotonic() + 20
        while running_in(tmp_path) and time.monotonic() < until:
            time.sleep(0.1)
        assert running_in(tmp_path) == []
    finally:
        command.kill()


def running_in(folder: Path) -> list[int]:
    """The processes whose current folder that is."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/cwd") == str(folder):
                found.append(int(name))
        except OSError:
            continue
    return found


LOADER = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Indexed(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.rand(4) + index, "name", index

class Streamed(IterableDataset):
    def __iter__(self):
        return ((torch.rand(4) + index, "name", index) for index in range(6))

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
# Python 3.14 would have another process start them, of which no copy can be made.
forks = "fork"
loader = DataLoader(DATA, batch_size=4, num_workers=2, multiprocessing_context=forks, OPTIONS)

def distance(output, step):
    return (output * (0.0 if step >= LAST else 1.0)).square().sum(1).sqrt().mean()

def train(batch, step):
    optimizer.zero_grad()
    distance(model(batch), step).backward()
    optimizer.step()

step = 0
for epoch in range(20):
    for batch, _, _ in loader:
        train(batch.div_(12), step)
        step += 1
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "options", "last"),
    [
        ("Indexed()", "shuffle=True", 12),
        ("Indexed()", "shuffle=True, persistent_workers=True", 12),
        ("Streamed()", "prefetch_factor=1", 13),
    ],
)
def test_a_copy_is_served_what_workers_have_sent(data, options, last, traced):
    """Of the next epoch, whose workers no copy starts, or of the one that goes on."""
    replay = replayed(traced(LOADER.replace("DATA", data).replace("OPTIONS", options), last))

    assert replay.origin is Origin.SNAPSHOT
    assert replay.identical is not False


@pytest.mark.slow
def test_a_tape_that_is_full_serves_nobody(traced, monkeypatch):
    monkeypatch.setattr(loaders, "_MOST", 1)

    report = traced(LOADER.replace("DATA", "Indexed()").replace("OPTIONS", "shuffle=True"), last=5)

    replay = replayed(report)
    assert replay.origin is Origin.START
    assert replay.hurdle is Hurdle.MEMORY


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["program", "copies"])
def test_where_those_who_were_to_be_asked_were_killed_a_fix_is_tried_from_the_start(
    whose, traced, monkeypatch
):
    held = Kept.hold

    def hold_and_kill(kept, child, wait):
        held(kept, child, wait)
        pids = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        for pid in [child.pid] if whose == "program" else map(int, pids):
            os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(Kept, "hold", hold_and_kill)

    assert replayed(traced(BEGIN + LOSS + STEP + LOOP)).origin is Origin.START
