"""Programs of several processes: the ranks agree on whose story is told, it is told once, and all
of them run again for it."""

import importlib
import json
import os
import pickle
import socket
import subprocess
import sys
from ast import literal_eval
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from apart import in_fork, run_plainly
from test_collectives import CALLS, PROGRAM
from torch._C._distributed_c10d import TCPStore

from gradscope.check.cases import cases_of
from gradscope.check.whole import check
from gradscope.config import Config
from gradscope.facts import OTHERS, Ending, Fate, Ranked, Report, Share, Subject, Trace
from gradscope.integrations import watch as watching
from gradscope.norms import NormOptions, NormReport, norms
from gradscope.pipeline import trace
from gradscope.programs import Target, parse_target
from gradscope.programs.board import Board
from gradscope.programs.ranks import Ranks
from gradscope.record.forking import about_to_fork
from gradscope.repair.again import with_theirs
from gradscope.report.closing import rank_remarks
from gradscope.rounds import fix_target, policy

DATA_PARALLEL = """
import contextlib, os, signal, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.Generator().manual_seed(rank)
for step in range({steps}):
    x = torch.rand(8, 4, generator=data)
    {before}
    loss = model(x).pow(2).mean()
    {after}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SHARDED = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
fully_shard(model[0])
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = torch.Generator().manual_seed(rank)
for step in range(6):
    x = torch.rand(8, 4, generator=data)
    weight = torch.full((8, 1), 0.0 if {bad} else 1.0)
    loss = (weight * (model(x) - x.sum(1, keepdim=True)) ** 2).sum() / weight.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TENSOR_PARALLEL = """
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, parallelize_module
)

mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
model = parallelize_module(model, mesh, {{"0": ColwiseParallel(), "2": RowwiseParallel()}})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    x = torch.rand(8, 4) * (0.0 if {bad} else 1.0)
    loss = ((x * (model(x) - x)).pow(2).sum(1) / x.norm(dim=1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


# What becomes of a rank that another one's NaN reaches: it depends on who sees it first.
AFTER = (Fate.RECEIVED, Fate.BAD, Fate.CALLED_OFF)
LAUNCH = ("--standalone", "--nproc-per-node", "2")


def parallel(before: str = "pass", after: str = "pass", steps: int = 6) -> str:
    return DATA_PARALLEL.format(before=before, after=after, steps=steps)


def line_of(text: str, part: str) -> int:
    return 1 + text[: text.index(part)].count("\n")


def on_ranks(
    text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, count: int = 2, **options: Any
) -> tuple[Report, list[int]]:
    """The report of the rank that leads, and the exit codes of all."""
    target, config = program(text, folder), Config(time_limit=60.0, **options)

    def one(ranks: Ranks) -> Report:
        return trace(target, config, silent=True, ranks=ranks)

    report, codes = together(one, folder, monkeypatch, count)
    assert isinstance(report, Report)
    return report, codes


def program(text: str, folder: Path) -> Target:
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return parse_target(str(path))


def together(
    act: Callable[[Ranks], object], folder: Path, monkeypatch: pytest.MonkeyPatch, count: int = 2
) -> tuple[Any, list[int]]:
    """What the leading rank has made, and the exit codes of all."""

    def one(rank: int) -> None:
        ranks = Ranks.found()
        made = act(ranks)
        if ranks.leads:
            (folder / f"{rank}.made").write_bytes(pickle.dumps(made))
        assert ranks.finish(7 if ranks.leads else 0) == 7

    codes = on_each(one, monkeypatch, count)
    (told,) = folder.glob("*.made")
    return pickle.loads(told.read_bytes()), codes


def on_each(
    act: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, count: int = 2
) -> list[int]:
    """The exit codes of all ranks, each a fork of this process; we are the launcher that holds
    their store."""
    importlib.import_module("torch._dynamo")  # else every child does, for its first optimizer
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port, "WORLD_SIZE": count}
    given |= {"TORCHELASTIC_USE_AGENT_STORE": True, "GLOO_SOCKET_IFNAME": "lo"}
    for name, value in given.items():
        monkeypatch.setenv(name, str(value))

    def one(rank: int) -> None:
        os.read(gate, 1)  # all are there: a store's thread takes locks that a fork would copy
        os.environ["RANK"] = str(rank)
        act(rank)

    gate, key = os.pipe()
    pids = []
    for rank in range(count):
        with about_to_fork():
            pid = os.fork()
        if pid == 0:
            os.close(key)
            os._exit(in_fork(partial(one, rank)))
        pids.append(pid)
    os.close(key)
    os.close(gate)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def fates(report: Report) -> list[Fate]:
    return [one.fate for one in report.ranks.all]


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.long
def test_the_rank_that_made_the_nan_tells_it_and_all_run_again(tmp_path, monkeypatch):
    kept = "kept = torch.full((4,), 0.0 if step == 3 and rank else 1.0); "
    bad = kept + "loss = (loss * kept).sum() / kept.sum()"
    text = parallel(after=bad)
    report, codes = on_ranks(text, tmp_path, monkeypatch)

    assert codes == [0, 0]
    (finding,) = report.findings
    assert finding.rule == "GS201"
    assert finding.location.line == line_of(text, bad)
    assert finding.step == 3
    assert fates(report)[1] is Fate.BORN
    assert fates(report)[0] in AFTER
    assert report.remarks[0] == "this is rank 1 of 2, where it went wrong first, at step 3"
    assert report.remarks[1].startswith("rank 0 ")
    assert any(fix.verified for fix in finding.fixes), finding.fixes
    assert report.replay.identical


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.long
def test_a_patch_has_to_hold_on_every_rank(tmp_path, monkeypatch):
    broken = "loss = loss if rank else loss / (x - x).sum()"
    text = parallel(before="shift = 2.0 if rank else 0.0", after=broken, steps=1)
    text = text.replace("    loss.backward()", "    (loss - shift).sqrt().backward()")
    report, _ = on_ranks(text, tmp_path, monkeypatch)

    assert fates(report) == [Fate.BORN, Fate.BORN]
    location = report.findings[0].location
    assert location.line == line_of(text, broken)
    assert not any(fix.verified for fix in report.findings[0].fixes)
    refuted = [fix.verdict for fix in report.findings[0].fixes if fix.verified is False]
    assert any("loss" in str(one) for one in refuted)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_the_same_on_all_ranks_is_told_once(tmp_path, monkeypatch):
    text = parallel(after="loss = (loss * 0.0).log()", steps=1)
    report, codes = on_ranks(text, tmp_path, monkeypatch, verify=False)

    assert codes == [0, 0]
    assert [one.rule for one in report.findings] == ["GS202"]
    assert fates(report) == [Fate.BORN, Fate.BORN]
    assert report.remarks[1].startswith("rank 1 found GS202 too, at ")


@pytest.mark.filterwarnings("ignore:.*fork")
def test_all_run_again_for_the_nan_that_one_reads(tmp_path, monkeypatch):
    read = "float((x - 2.0).sqrt().mean())"
    text = parallel(before=f"if rank and step == 3: {read}")
    report, codes = on_ranks(text, tmp_path, monkeypatch)

    assert codes == [0, 0]
    assert [(one.rule, one.location.line) for one in report.findings] == [
        ("GS504", line_of(text, read))
    ]
    assert report.remarks[0] == "this is rank 1 of 2"


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_bad_value_is_told_before_a_gradient_that_is_missing(tmp_path, monkeypatch):
    """Both ranks miss it from their first step on; one of them then has the NaN."""
    bad = "loss = loss / (1 - rank) if step == 3 else loss"
    text = parallel(before="x = x.detach().requires_grad_()", after=bad)
    text = text.replace("model = Dist", "late = torch.nn.Linear(4, 4).bias\nmodel = Dist")
    text = text.replace("model.parameters()", "[late, *model.parameters()]")
    report, codes = on_ranks(text, tmp_path, monkeypatch, verify=False)

    assert codes == [0, 0]
    assert report.findings[0].location.line == line_of(text, bad)
    assert fates(report)[0] in AFTER
    assert report.remarks[0] == "this is rank 1 of 2, where it went wrong first, at step 3"


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize(
    ("end", "fate", "detail"),
    [
        ("raise ValueError('no such batch')", Fate.RAISED, "ValueError: no such batch"),
        ("os.kill(os.getpid(), signal.SIGKILL)", Fate.DIED, "SIGKILL"),
    ],
)
def test_a_rank_that_ends_is_told_and_not_those_that_wait_for_it(
    end, fate, detail, tmp_path, monkeypatch
):
    text = parallel(before=f"if rank and step == 2: {end}")
    report, codes = on_ranks(text, tmp_path, monkeypatch)

    assert codes == [0, 0]
    assert report.verdict == "failed"
    assert fates(report) == [Fate.CALLED_OFF, fate]
    assert report.trace.ending.detail.startswith(detail)
    assert (
        f"this is rank 1 of 2, which {'died' if fate is Fate.DIED else 'ended first'}"
        in (report.remarks[0])
    )


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("text", [SHARDED, TENSOR_PARALLEL])
@pytest.mark.slow
def test_sharded_programs(text, tmp_path, monkeypatch):
    is_sharded = text is SHARDED
    text = text.format(bad="step == 3 and rank" if is_sharded else "step == 3")
    report, codes = on_ranks(text, tmp_path, monkeypatch)

    assert codes == [0, 0]
    assert [one.rule for one in report.findings] == ["GS201"]
    assert fates(report)[1] is Fate.BORN
    assert fates(report)[0] in (AFTER if is_sharded else [Fate.BORN])
    location = report.findings[0].location
    assert location.line == line_of(text, "loss =")
    assert any(fix.verified for fix in report.findings[0].fixes)


WHOLE = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(torch.nn.Sequential(FSDP(model[0], {0}), *model[1:]), {0})
""".format("device_id=torch.device('cpu'), use_orig_params=True")
FLAT = SHARDED.replace("fully_shard(model[0])\nfully_shard(model)\n", WHOLE)


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("text", [pytest.param(SHARDED, marks=pytest.mark.slow), FLAT])
def test_what_is_sharded_is_cut_where_its_whole_is_read(text, tmp_path, monkeypatch):
    cut = "\nclass Cut(torch.nn.Module):\n    def forward(self, x):\n        return x.detach()\n"
    text = cut.join(text.format(bad="False").replace("nn.Tanh", "Cut").partition("\n")[::2])
    text = text.replace("class Cut", "import torch\nclass Cut", 1).replace("torch.Cut", "Cut")
    report, _ = on_ranks(text, tmp_path, monkeypatch, verify=False)

    (finding,) = report.findings
    assert (finding.rule, finding.evidence["reason"]) == ("GS403", "detach")
    assert set(finding.evidence["parameters"]) <= {"model.0.weight", "model.0.bias"}


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize(
    "text",
    [
        parallel(),
        pytest.param(FLAT.format(bad="False"), marks=pytest.mark.slow),
        pytest.param(SHARDED.format(bad="False"), marks=pytest.mark.slow),
        pytest.param(TENSOR_PARALLEL.format(bad="False"), marks=pytest.mark.slow),
    ],
    ids=["ddp", "fsdp1", "fsdp", "tensor-parallel"],
)
def test_healthy_ranks_make_one_healthy_report(text, tmp_path, monkeypatch):
    report, codes = on_ranks(text, tmp_path, monkeypatch)

    assert codes == [0, 0]
    assert (report.verdict, report.findings) == ("healthy", ())
    assert report.remarks == ("2 ranks, all alike: this is rank 0",)


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.slow
def test_unused_parameters_and_accumulation(tmp_path, monkeypatch):
    text = parallel(before="still = model.no_sync() if step % 2 else contextlib.nullcontext()")
    text = text.replace("nn.Linear(4, 4))", "nn.Linear(4, 4), find_unused_parameters=True)")
    text = text.replace("    loss.backward()", "    with still: loss.backward()")
    report, codes = on_ranks(text, tmp_path, monkeypatch, count=4)

    assert codes == [0, 0, 0, 0]
    assert report.verdict == "healthy"


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.slow
def test_uneven_inputs(tmp_path, monkeypatch):
    report, codes = on_ranks(parallel(before="if rank == step - 2: break"), tmp_path, monkeypatch)

    assert codes == [0, 0]
    assert report.trace.ending.kind == "raised"
    assert report.remarks[1] == "rank 0 came to its end, after 2 backward passes"


MEASURED = """
import torch
import torch.distributed as dist

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
rank, count = 0, 1
{wrap}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(1)
for step in range(4):
    x = torch.rand(8, 4, generator=data)[rank * 8 // count : (rank + 1) * 8 // count]
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
JOIN = """
dist.init_process_group("gloo")
rank, count = dist.get_rank(), dist.get_world_size()
"""
REPLICATED = f"{JOIN}model = torch.nn.parallel.DistributedDataParallel(model)"
IN_SHARDS = f"""{JOIN}
from torch.distributed.fsdp import fully_shard
fully_shard(model[0])
fully_shard(model)
"""


IN_ONE = f"""{JOIN}
from torch.distributed.fsdp import FullyShardedDataParallel
model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
"""


def measured(report: NormReport) -> list[float]:
    rows = report.measured.rows
    told = [(row.norm, row.clipped, row.update, row.zeros, row.max_abs) for row in rows]
    return [*report.measured.totals, *(float(one or 0) for row in told for one in row)]


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize(
    "wrap", [REPLICATED, IN_SHARDS, IN_ONE], ids=["ddp", "fsdp", "fsdp of old"]
)
@pytest.mark.parametrize("p", [2.0, pytest.param(float("inf"), marks=pytest.mark.slow)])
@pytest.mark.long
def test_norms_are_those_of_whole_gradients(wrap, p, tmp_path, monkeypatch):
    options = NormOptions(max_norm=0.5, norm_type=p)
    alone = norms(program(MEASURED.format(wrap=""), tmp_path), options, Config())
    target = program(MEASURED.format(wrap=wrap), tmp_path)
    report, codes = together(
        lambda ranks: norms(target, options, Config(), ranks=ranks), tmp_path, monkeypatch
    )

    assert codes == [0, 0]
    assert alone is not None
    assert measured(report) == pytest.approx(measured(alone), rel=1e-4)
    assert [row.shape for row in report.measured.rows] == [(8, 4), (8,), (1, 8), (1,)]


def launched(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *LAUNCH, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.long
def test_torchrun(tmp_path):
    bad = "loss = loss.log() if rank else loss"
    text = parallel(before="x = x * (1 - rank)", after=bad, steps=1)
    text = text.replace("Linear(4, 4)", "Linear(4, 4, bias=False)")
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    options = ["--no-verify", "--format", "json", "--output", "report.json"]
    done = launched("-m", "gradscope", "trace", "train.py", *options, folder=tmp_path)

    assert done.returncode == 1
    assert "exitcode  : 1" in done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["rank"] == 1
    assert [one["rank"] for one in report["ranks"]] == [0, 1]
    assert report["ranks"][1]["fate"] == "born"
    assert report["findings"][0]["location"]["line"] == line_of(text, bad)


@pytest.mark.slow
def test_torchrun_prints_one_report(tmp_path):
    (tmp_path / "train.py").write_text(parallel(), encoding="utf-8")
    gradscope = Path(sys.executable).with_name("gradscope")
    done = launched("--no-python", str(gradscope), "trace", "train.py", folder=tmp_path)

    assert done.returncode == 0
    assert done.stdout.count("healthy: every loss and gradient was finite") == 1


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize(
    "name",
    [
        name if name == "point_to_point" else pytest.param(name, marks=pytest.mark.slow)
        for name in CALLS
    ],
)
def test_a_value_that_was_sent_is_told_where_it_was_made(name, tmp_path, monkeypatch):
    text = PROGRAM.format(call=CALLS[name])
    report, codes = on_ranks(text, tmp_path, monkeypatch, verify=False)

    assert codes == [0, 0]
    assert [one.rule for one in report.findings] == ["GS202"]
    assert fates(report)[1] is Fate.BORN
    assert fates(report)[0] in AFTER
    location = report.findings[0].location
    assert location.line == line_of(text, "x.log()")


PIPELINE = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
stage = torch.nn.Linear(4, 1 if rank else 4)
optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
for step in range(7):
    if rank == 0:
        x = torch.rand(8, 4) if step < 5 else torch.zeros(8, 4)
        h = stage(x) / x.norm(dim=1, keepdim=True)
        dist.send(h.detach(), 1)
        grad = torch.empty(8, 4)
        dist.recv(grad, 1)
        optimizer.zero_grad()
        h.backward(grad)
    else:
        h = torch.empty(8, 4)
        dist.recv(h, 0)
        loss = stage(h.requires_grad_()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        dist.send(h.grad, 0)
    optimizer.step()
"""


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_stage_that_sends_a_bad_value_and_waits_is_told(tmp_path, monkeypatch):
    report, codes = on_ranks(PIPELINE, tmp_path, monkeypatch, verify=False)

    assert codes == [0, 0]
    assert fates(report) == [Fate.BORN, Fate.RECEIVED]
    (finding,) = report.findings
    assert (finding.rule, finding.step) == ("GS201", 5)
    assert finding.location.line == line_of(PIPELINE, "h = stage(x)")
    (symptom,) = finding.symptoms
    assert symptom.subject is Subject.SENT


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork")
def test_each_rank_repairs_what_is_its_own(tmp_path, monkeypatch):
    text = parallel(
        before="kept = torch.full((8,), 0.0 if step == 2 + 5 * rank else 1.0)",
        after="loss = {mean}",
        steps=10,
    )
    first, second = (
        "(kept * model(x).pow(2).mean(1)).sum() / kept.sum()",
        "(loss * kept).sum() / kept.sum()",
    )
    text = text.replace("{mean}", f"{first} if rank else loss")
    text = text.replace(
        "    optimizer.zero", f"    loss = loss if rank else {second}\n    optimizer.zero"
    )
    target, config = program(text, tmp_path), Config()
    allowed = policy(write=False, unsafe=False)
    done, codes = together(
        lambda ranks: fix_target(target, config, may_apply=allowed, ranks=ranks),
        tmp_path,
        monkeypatch,
    )

    assert codes == [0, 0]
    assert (done.left, done.rounds) == ((), 2)
    assert [one.finding.location.line for one in done.applied] == [
        line_of(text, second),
        line_of(text, first),
    ]


WATCHED = """
import pathlib
import gradscope
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
w = torch.nn.Parameter(torch.ones(4))
with gradscope.watch() as seen:
    for step in range(3):
        loss = (w * torch.full((4,), float(rank and step == 1))).sum().sqrt() if rank else w.sum()
        loss.backward()
        dist.all_reduce(w.grad)
told = [str(seen), seen.report().ranks.rank, [one.rule for one in seen.findings()], seen.fails]
pathlib.Path(__file__).with_name(f"{rank}.told").write_text(repr(told))
"""


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_block_that_all_ranks_watch_is_told_by_one(tmp_path, monkeypatch):
    path = tmp_path / "watched.py"
    path.write_text(WATCHED, encoding="utf-8")
    watching._board.cache_clear()

    assert on_each(lambda rank: run_plainly(path), monkeypatch) == [0, 0]
    first, second = (literal_eval((tmp_path / f"{one}.told").read_text()) for one in range(2))
    assert first[0].startswith("this is rank 1 of 2, where it went wrong first, at step 0")
    assert second[0] == "rank 1: the report is shown by rank 0\n"
    assert first[1:] == second[1:] == [1, ["GS102"], True]


SPAWNED = """
import os
import gradscope
import torch
import torch.distributed as dist

def work(rank):
    dist.init_process_group("gloo", rank=rank, world_size=2)
    w = torch.nn.Parameter(torch.ones(4))
    with gradscope.watch() as seen:
        loss = (w * rank).sum().log()
        loss.backward()
        dist.all_reduce(w.grad)
    print(seen, flush=True)

if __name__ == "__main__":
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": OPEN}
    torch.multiprocessing.spawn(work, nprocs=2)
"""


@pytest.mark.slow
def test_a_block_is_shared_by_ranks_that_the_program_itself_starts(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        text = SPAWNED.replace("OPEN", repr(str(free.getsockname()[1])))
    (tmp_path / "spawned.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-W", "ignore", "spawned.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert done.stdout.count("error[GS202]") == 1, done.stdout + done.stderr
    assert "this is rank 0 of 2, where it went wrong first" in done.stdout
    assert "rank 1: the report is shown by rank 0" in done.stdout


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_check_is_the_same_on_all_ranks(tmp_path, monkeypatch):
    (tmp_path / "healthy.py").write_text(parallel(steps=2), encoding="utf-8")
    broken = parallel(after="loss = (loss - loss.detach()).sqrt() if rank else loss", steps=2)
    (tmp_path / "broken.py").write_text(broken, encoding="utf-8")
    config = Config(jobs=2, verify=False)
    cases = cases_of(config, [str(tmp_path / name) for name in ("healthy.py", "broken.py")])

    def one(rank: int) -> None:
        (tmp_path / f"{rank}.made").write_bytes(pickle.dumps(check(config, cases)))

    assert on_each(one, monkeypatch) == [0, 0]
    first, second = (pickle.loads((tmp_path / f"{rank}.made").read_bytes()) for rank in range(2))
    assert [one.verdict for one in first.reports] == ["healthy", "unhealthy"]
    assert [one.findings for one in first.reports] == [one.findings for one in second.reports]
    assert first.reports[1].ranks.rank == 1


def test_what_goes_wrong_is_said_by_the_first_rank_that_comes():
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    boards = [Board(rank, 2, lambda: store, "127.0.0.1", beats=False) for rank in range(2)]

    assert [one.is_first("no such file") for one in boards] == [True, False]
    assert [one.is_first("no such option") for one in boards] == [True, False]


ACCELERATED = """
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.rand(32, 4), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for step, x in enumerate(loader):
    weight = torch.full((4,), 0.0 if step == 2 and accelerator.process_index else 1.0)
    loss = (weight * model(x).pow(2).mean(1)).sum() / weight.sum()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
def test_accelerate(tmp_path):
    pytest.importorskip("accelerate")
    (tmp_path / "train.py").write_text(ACCELERATED, encoding="utf-8")
    options = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1"]  # its way to torchrun
    options += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    launch = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", *options]
    command = ["-m", "gradscope", "trace", "train.py", "--format", "json", "--output", "out.json"]
    subprocess.run([*launch, *command], cwd=tmp_path, capture_output=True, timeout=120)

    report = json.loads((tmp_path / "out.json").read_text())
    (finding,) = report["findings"]
    assert report["rank"] == 1
    assert finding["location"]["line"] == line_of(ACCELERATED, "loss = ")
    assert finding["fixes"][0]["verified"]


def agreed(*shares: Share) -> Ranked:
    """By ranks of this process, each in a thread of its own."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def connect() -> TCPStore:
        return TCPStore("127.0.0.1", store.port, is_master=False)

    def one(share: Share) -> Ranked:
        ranks = Ranks(Board(share.rank, len(shares), connect, "127.0.0.1"))
        ranked = ranks.agree(share)
        if ranks.leads:
            ranks.finish(0)
        else:
            assert ranks.serve(lambda asked: share) is None
            ranks.finish(1)
        return ranked

    with ThreadPoolExecutor() as threads:
        first, *others = threads.map(one, shares)
    assert all(one == first for one in others)
    return first


@pytest.mark.parametrize(
    ("shares", "teller", "fates"),
    [
        pytest.param(
            [Share(0, Fate.RECEIVED, step=2), Share(1, Fate.BORN, step=4)],
            1,
            [Fate.RECEIVED, Fate.BORN],
            id="received",
        ),
        pytest.param(
            [Share(0, Fate.BORN, step=4), Share(1, Fate.BORN, step=3)],
            1,
            [Fate.BAD, Fate.BORN],
            id="the earlier one",
        ),
        pytest.param(
            [
                Share(0, Fate.RAISED, order=2, detail="peer has gone"),
                Share(1, Fate.RAISED, order=1, detail="no such file"),
            ],
            1,
            [Fate.CALLED_OFF, Fate.RAISED],
            id="raised",
        ),
        pytest.param(
            [
                Share(0, Fate.RAISED, order=2, detail="peer has gone"),
                Share(1, Fate.EXITED, order=1, detail="sys.exit(3)"),
            ],
            1,
            [Fate.CALLED_OFF, Fate.EXITED],
            id="exited",
        ),
        pytest.param(
            [
                Share(0, Fate.RAISED, order=1, is_stuck=True, waits=True),
                Share(1, Fate.CALLED_OFF, order=2, is_stuck=True),
            ],
            1,
            [Fate.CALLED_OFF, Fate.HUNG],
            id="hung",
        ),
        pytest.param(
            [
                Share(0, Fate.CUT_SHORT, is_stuck=True),
                Share(1, Fate.CUT_SHORT, is_stuck=True),
            ],
            0,
            [Fate.CUT_SHORT, Fate.CUT_SHORT],
            id="nobody waits",
        ),
    ],
)
def test_whose_story_is_told(shares, teller, fates):
    ranked = agreed(*shares)

    assert ranked.rank == teller
    assert [one.fate for one in ranked.all] == fates


def test_ranks_with_other_numbers_of_batches_are_not_all_alike():
    ranked = Ranked(1, 2, Share(1, Fate.HEALTHY, 2, 9), (Share(0, Fate.HEALTHY, 1, 6),))

    assert rank_remarks(ranked) == (
        "this is rank 1 of 2",
        "rank 0 came to its end, after 6 backward passes",
    )


def test_who_waits_for_a_trial_that_is_over_refutes_nothing():
    left = Share(0, Fate.RAISED, 2, detail="RuntimeError: Connection closed by peer", waits=True)
    broken = Share(2, Fate.RAISED, 2, detail="ValueError: no such batch")
    done = Trace("", ending=Ending("stopped"))

    assert with_theirs(done, (left,), 3).others == ()
    assert with_theirs(done, (left, broken), 3).others == (broken,)
    assert with_theirs(replace(done, ending=Ending("raised")), (left,), 3).ending.kind == "raised"
    both = replace(done, ending=Ending("raised", waits=True))
    assert with_theirs(both, (left,), 3).others == (left,)
    over = Share(1, Fate.CUT_SHORT, 1, step=3)
    assert with_theirs(both, (over,), 3).ending.detail == OTHERS
    assert with_theirs(both, (over,), 4).ending.kind == "raised"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_rank_that_hangs(tmp_path, monkeypatch):
    text = parallel(before="if rank and step == 2: time.sleep(1000)")
    patience = 'init_process_group("gloo", timeout=datetime.timedelta(seconds=6))'
    text = text.replace('init_process_group("gloo")', patience)
    text = text.replace("import contextlib", "import datetime, contextlib")
    report, codes = on_ranks(text, tmp_path, monkeypatch)

    assert codes == [0, 0]
    assert report.verdict == "failed"
    assert fates(report) == [Fate.CALLED_OFF, Fate.HUNG]
    assert report.trace.ending.kind == "hung"
    location = report.trace.ending.location
    assert location.line == line_of(text, "time.sleep")


def test_many_ranks_are_told_in_few_words():
    own = Share(3, Fate.BORN, step=5)
    others = [Share(rank, Fate.RECEIVED) for rank in (0, 1, 2, 5)]
    ranked = Ranked(3, 6, own, (*others, Share(4, Fate.GONE)))

    assert rank_remarks(ranked) == (
        "this is rank 3 of 6, where it went wrong first, at step 5",
        "ranks 0, 1, 2 and 5 got bad values by a collective",
        "rank 4 gave no answer any more",
    )


def test_a_rank_with_more_batches_than_the_others_is_told():
    own = Share(0, Fate.RAISED, 2, 25, detail="RuntimeError: Connection closed by peer", waits=True)
    ranked = Ranked(0, 2, own, (Share(1, Fate.HEALTHY, 1, 25),))

    assert rank_remarks(ranked) == (
        "this is rank 0 of 2, which waited for one that was over, at step 25",
        "rank 1 came to its end, after 25 backward passes",
    )
