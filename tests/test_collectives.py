"""What a collective brings from another rank is told as that, and never as bad data: two processes,
and a NaN on one of them."""

import os
import socket
from pathlib import Path

import pytest
from apart import in_fork, traced

from gradscope.facts import Report
from gradscope.record.forking import about_to_fork

PROGRAM = """
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

dist.init_process_group("gloo")
rank = dist.get_rank()
w = torch.nn.Parameter(torch.ones(2))
x = torch.tensor([0.0 if rank else 3.0, 4.0])
stat = x.log() * x  # NaN on rank 1
both = torch.zeros(4)
{call}
loss = (w * stat).sum()
loss.backward()
"""
CALLS = {
    "all_reduce": "dist.all_reduce(stat)",
    "async": "dist.all_reduce(stat, async_op=True).wait()",
    "broadcast": "dist.broadcast(stat, src=1)",
    "all_gather": "dist.all_gather([both[:2], both[2:]], stat); stat = both[2:]",
    "all_gather_single": "dist.all_gather_into_tensor(both, stat); stat = both[2:]",
    "reduce_scatter": "dist.reduce_scatter_tensor(stat, stat.repeat(2))",
    "point_to_point": "dist.send(stat, 0) if rank else dist.recv(stat, 1)",
    "into_empty": "to = torch.empty(2); dist.send(stat, 0) if rank else dist.recv(to, 1);"
    " stat = stat if rank else to",
    "object": "held = [stat]; dist.broadcast_object_list(held, 1); stat = held[0]",
    "objects": "held = [0, 0]; dist.all_gather_object(held, {'of': stat}); stat = held[1]['of']",
    "functional": "stat = functional.all_reduce(stat, 'sum', dist.group.WORLD) + 0",
}
LINE = 1 + PROGRAM[: PROGRAM.index("{call}")].count("\n")
DATA_PARALLEL = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
loss = model(torch.ones(1, 2) * (1 - rank)).pow(2).sum()
(loss.sqrt() if rank else loss).backward()  # of 0 on rank 1
"""


def on_two_ranks(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Report, int]:
    """The report of rank 0, and what rank 1 found: 0 if it was the place that is marked."""
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port), ("WORLD_SIZE", 2)):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")

    def other() -> None:
        os.environ["RANK"] = "1"
        (finding,) = traced(path).findings
        assert finding.rule in ("GS202", "GS102"), finding.message

    with about_to_fork():
        pid = os.fork()
    if pid == 0:
        os._exit(in_fork(other))
    monkeypatch.setenv("RANK", "0")
    report = traced(path)
    return report, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.long
def test_a_value_from_another_rank_is_told_as_that(name, tmp_path, monkeypatch):
    report, other = on_two_ranks(PROGRAM.format(call=CALLS[name]), tmp_path, monkeypatch)

    (finding,) = report.findings
    assert finding.rule == "GS902"
    assert "came from another rank with NaN at 1 of" in finding.message
    assert finding.location.line == LINE
    assert report.verdict == "unhealthy"
    assert other == 0


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_gradient_that_is_averaged_over_ranks(tmp_path, monkeypatch):
    report, other = on_two_ranks(DATA_PARALLEL, tmp_path, monkeypatch)

    (finding,) = report.findings
    assert finding.rule == "GS902"
    assert "came from another rank" in finding.message
    assert other == 0


TORN = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
w = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([w], lr=0.1)


def gone(grad):
    w.grad = torch.full((2,), torch.nan)  # what the collective was to fill
    raise RuntimeError("connection closed by peer")


for step in range(7):
    loss = (w * w).sum()
    if step == 6:
        loss.register_hook(gone)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_what_a_broken_collective_leaves_behind_is_no_gradient(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(TORN, encoding="utf-8")
    report = traced(path)

    assert report.trace.symptoms == ()
    assert report.trace.ending.detail == "RuntimeError: connection closed by peer"
