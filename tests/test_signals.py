"""Signals reach the program as they would without us, and cost none of what was found."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from conftest import Command, paths

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signals here")

LOOP = """
import pathlib, time, torch
x = torch.tensor([0.0, 4.0], requires_grad=True)
torch.where(x > 0, x.sqrt(), x).sum().backward() if BROKEN else x.sum().backward()
pathlib.Path("running").touch()
while not pathlib.Path("enough").exists():
    time.sleep(0.01)
print("finished", flush=True)
"""
SAVES = """
import signal, sys
def save(number, frame):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
"""
HEARS = """
import pathlib, signal
def hear(number, frame):
    print("heard", flush=True)
    pathlib.Path("enough").touch()
signal.signal(signal.SIGUSR1, hear)
"""


def signalled(
    folder: Path,
    program: str,
    number: signal.Signals,
    more: Iterable[str] = (),
    before: signal.Handlers = signal.SIG_DFL,
    stdin: int | None = None,
    send: Callable[[int, int], None] = os.kill,
) -> tuple[int, str]:
    """What `gradscope trace` prints, and its exit code, where it is sent a signal. `before`: what
    it inherits, as under nohup, which ignores one."""
    (folder / "train.py").write_text(program)
    with subprocess.Popen(
        [sys.executable, "-m", "gradscope", "trace", "train.py", *more],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": paths(), "NO_COLOR": "1"},
        stdin=stdin,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(number, before),
    ) as process:
        try:
            while not (folder / "running").exists() and process.poll() is None:
                time.sleep(0.01)
            send(process.pid, number)
            out, _ = process.communicate(timeout=120)
        finally:
            process.kill()  # nothing where it has ended; the program does not outlive it
    return process.returncode, out


def test_the_programs_own_handler_saves_and_the_report_comes_out(tmp_path: Path) -> None:
    program = SAVES + LOOP.replace("BROKEN", "False")

    code, out = signalled(tmp_path, program, signal.SIGTERM)

    assert out.count("saved") == 1
    assert "train.py: healthy" in out
    assert code == 0


def test_what_was_found_is_told_and_nothing_is_tried_any_more(tmp_path: Path) -> None:
    program = SAVES + LOOP.replace("BROKEN", "True")

    code, out = signalled(tmp_path, program, signal.SIGTERM, ["--keep-going"])

    assert out.count("saved") == 1
    assert "error[GS101]" in out
    assert "= verified" not in out
    assert code == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2], ids=str)
@pytest.mark.long
def test_without_a_handler_it_ends_as_it_would(number: signal.Signals, tmp_path: Path) -> None:
    code, out = signalled(tmp_path, LOOP.replace("BROKEN", "False"), number)

    assert f"error: the program died: {number.name}" in out
    assert "finished" not in out
    assert code == 2


@pytest.mark.long
def test_a_program_that_only_listens_goes_on(tmp_path: Path) -> None:
    code, out = signalled(tmp_path, HEARS + LOOP.replace("BROKEN", "False"), signal.SIGUSR1)

    assert out.index("heard") < out.index("finished") < out.index("healthy")
    assert "it was sent SIGUSR1)" in " ".join(out.split())
    assert code == 0


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["to us", "to all"])
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGINT], ids=str)
@pytest.mark.long
def test_at_a_terminal_each_comes_once(
    number: signal.Signals, send: Callable[[int, int], None], tmp_path: Path
) -> None:
    """Its signals go to all processes of the group, of which the program is one there."""
    program = HEARS.replace("SIGUSR1", number.name) + LOOP.replace("BROKEN", "False")
    program = program.replace('print("finished"', 'time.sleep(0.4)\nprint("finished"')
    main, terminal = os.openpty()
    try:
        _, out = signalled(tmp_path, program, number, stdin=terminal, send=send)
    finally:
        os.close(main)
        os.close(terminal)

    assert out.count("heard") == 1
    assert "finished" in out


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT], ids=str)
@pytest.mark.long
def test_the_programs_own_handler_hears_what_we_were_told_to_ignore(
    number: signal.Signals, tmp_path: Path
) -> None:
    """And nobody is in a hurry: whoever started us so wants the report all the same."""
    program = HEARS.replace("SIGUSR1", number.name) + LOOP.replace("BROKEN", "True")

    code, out = signalled(tmp_path, program, number, ["--keep-going"], signal.SIG_IGN)

    assert out.index("heard") < out.index("finished") < out.index("error[GS101]")
    assert "= verified" in out
    assert code == 1


@pytest.mark.long
def test_a_program_without_one_goes_on_under_nohup(tmp_path: Path) -> None:
    program = LOOP.replace("BROKEN", "False").replace("exists():", "exists() and stays():")
    program = "left = [9] * 99\ndef stays():\n    return left and left.pop()\n" + program

    code, out = signalled(tmp_path, program, signal.SIGHUP, before=signal.SIG_IGN)

    assert out.index("finished") < out.index("healthy")
    assert code == 0


@pytest.mark.parametrize("ignored", [True, False])
@pytest.mark.long
def test_what_we_are_to_ignore_the_program_ignores(ignored: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import signal, torch\n"
        "print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))\n"
        "torch.ones(2, requires_grad=True).sum().backward()\n"
    )
    start = "import signal, runpy, sys; sys.argv = ['gradscope', *sys.argv[1:]]; "
    start += "signal.signal(signal.SIGINT, signal.SIG_IGN); " if ignored else ""
    start += "runpy.run_module('gradscope', run_name='__main__')"

    bare, watched = (
        subprocess.run(
            [sys.executable, "-c", start.replace("'gradscope', run", f"{module!r}, run"), *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join((paths(), str(tmp_path)))},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[0]
        for module, words in (("train", ()), ("gradscope", ("trace", "train.py")))
    )

    assert watched.replace("at 0x", "") == bare.replace("at 0x", "")


def test_ctrl_c_in_the_middle_of_an_import_ends_at_once() -> None:
    """Whatever the import would have made of it: numpy's turns it into an ImportError."""
    code = """if True:
        import builtins, os, signal, sys
        from gradscope.__main__ import main

        plainly = builtins.__import__

        def interrupted(name, *rest):
            if name == "numpy":
                try:
                    os.kill(os.getpid(), signal.SIGINT)
                except KeyboardInterrupt:
                    raise ImportError("half of it is there")
            return plainly(name, *rest)

        builtins.__import__ = interrupted
        sys.argv = ["gradscope", "trace", "gamma_mask"]
        sys.exit(main())
    """

    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths()},
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "gradscope: error: interrupted\n"


TIMED = """
import signal, time, torch

class TooLong(Exception):
    pass

def alarm(number, frame):
    assert signal.getsignal(number) is alarm
    raise TooLong

assert signal.signal(signal.SIGALRM, alarm) == signal.SIG_DFL
net = torch.nn.Linear(3, 3)
optimizer = torch.optim.Adam(net.parameters())
net(torch.ones(2, 3)).sum().backward()  # no timer is short for this one
lost = 0
for step in range(60):
    end = time.monotonic() + 1
    signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.0001 * step)
    try:
        while time.monotonic() < end:
            net(torch.ones(2, 3)).sum().item()
            with torch.enable_grad():
                net(torch.ones(2, 3)).pow(2).sum().backward()
        lost += 1
    except TooLong:
        continue
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
print("lost", lost)
"""


def test_a_time_limit_of_the_programs_own_is_met_wherever_it_strikes(
    tmp_path: Path, gradscope: Command
) -> None:
    (tmp_path / "train.py").write_text(TIMED)

    done = gradscope("trace", "train.py", "--every-step", "--no-verify")

    assert "lost 0" in done.stdout
    assert "train.py: healthy" in done.stdout, done.stderr
    assert "GS902" not in done.stdout
