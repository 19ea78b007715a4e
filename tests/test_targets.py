"""Targets run in a child process, and how each program ends is told apart from a finding."""

import io
import os
import re
import signal
import sys
import textwrap
import time
from multiprocessing import Pipe
from pathlib import Path

import pytest
import torch

from gradscope.config import Input
from gradscope.errors import GradscopeError
from gradscope.facts import Ending, Report, Trace
from gradscope.programs import (
    Function,
    Parts,
    Reference,
    RunOptions,
    Script,
    parse_parts,
    parse_target,
    run,
)
from gradscope.programs.channel import Final
from gradscope.programs.run import _Wait
from gradscope.programs.run_options import Repeat
from gradscope.report.closing import effort

STEP = "import torch\nw = torch.ones(3, requires_grad=True)\n(w * 2).sum().backward()\n"
INTERRUPT = """
import ctypes, os, signal, time
ctypes.CDLL(None).kill(os.getppid(), signal.SIGINT)  # Ctrl-C that reaches only the command
while True: time.sleep(0.05)
"""
BAD_STEP = "import torch\nw = torch.zeros(3, requires_grad=True)\nw.sqrt().sum().backward()\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def script(text: str, name: str = "program.py") -> Script:
    Path(name).write_text(textwrap.dedent(text))
    return Script(Path(name), shown=name)


def told(capfd) -> list[str]:
    return capfd.readouterr().out.splitlines()


@pytest.fixture
def package(folder) -> Path:
    """A package whose modules import each other relatively, as `python -m` allows."""
    root = folder / "kit"
    root.mkdir()
    (root / "__init__.py").write_text("")
    (root / "roots.py").write_text("def root(x):\n    return x.sqrt()\n")
    (root / "train.py").write_text(
        "import sys, torch\n"
        "from .roots import root\n"
        "if __name__ == '__main__':\n"
        "    print(__spec__.name, __package__, sys.argv[1:])\n"
        "    root(torch.zeros(3, requires_grad=True)).sum().backward()\n"
    )
    return root


def test_a_module_runs_as_python_m_runs_it(package, capfd):
    trace = run(parse_target("kit.train", ["--lr", "1"]))

    assert told(capfd) == ["kit.train kit ['--lr', '1']"]
    assert trace.events[0].blame.location.file == "kit/roots.py"


@pytest.mark.filterwarnings("ignore::ImportWarning")
def test_a_file_of_a_package_is_told_how_it_is_named(package):
    with pytest.raises(GradscopeError) as error:
        run(parse_target("kit/train.py"))

    assert "as for python -m: gradscope trace package.module" in error.value.help


class TestParsing:
    def test_a_dotted_name_is_a_module_to_run(self, package):
        found = parse_target("kit.train", ["--lr", "1"])

        assert isinstance(found, Script)
        assert (found.path, found.module) == (package / "train.py", "kit.train")
        assert (found.name, found.arguments) == ("kit.train", ("--lr", "1"))

    def test_a_package_with_a_main_is_a_module_to_run(self, package):
        (package / "__main__.py").write_text(STEP)

        found = parse_target("kit")

        assert isinstance(found, Script)
        assert found.path == package / "__main__.py"

    @pytest.mark.parametrize("name", ["kit", "kit.trian", "json", "antigravity", "a-b.c", "."])
    def test_what_is_no_module_to_run_is_refused(self, package, name):
        with pytest.raises(GradscopeError):
            parse_target(name)

    def test_a_file_is_a_script(self):
        script(STEP, "a.py")

        assert parse_target("a.py", ["--lr", "1"]) == Script(Path("a.py"), ("--lr", "1"), "a.py")

    @pytest.mark.parametrize("expression", ["loss", "Loss(2.0)", "Losses.focal"])
    def test_what_follows_a_colon_is_an_expression(self, expression):
        script(STEP, "a.py")

        assert parse_target(f"a.py:{expression}") == Function(Reference("a.py", expression))
        assert parse_target(f"pkg.a:{expression}") == Function(Reference("pkg.a", expression))

    def test_a_lambda_or_a_slice_names_no_file(self):
        parts = parse_parts("a:Net", "lambda out: out[1:].sum()", "x[0:2]", where="a")

        assert parts.loss == Reference("a", "lambda out: out[1:].sum()")
        assert parts.batch == Reference("a", "x[0:2]")

    def test_an_example_is_the_script_of_that_name(self):
        target = parse_target("gamma_mask")

        assert isinstance(target, Script)
        assert (target.path.name, target.name) == ("gamma_mask.py", "gamma_mask")

    def test_a_file_comes_before_an_example(self):
        script(STEP, "gamma_mask")

        assert parse_target("gamma_mask") == Script(Path("gamma_mask"), shown="gamma_mask")


class TestScripts:
    def test_runs_as_python_would_run_it(self, capfd, folder):
        (folder / "sub").mkdir()
        script("VALUE = 42", "sub/neighbour.py")
        program = """
            import os, pickle, sys
            import neighbour
            class Thing: pass
            print(__name__, __file__ == os.path.abspath("sub/main.py"), sys.argv)
            print(sys.path[0] == os.path.dirname(__file__), neighbour.VALUE)
            print(type(pickle.loads(pickle.dumps(Thing()))) is Thing)
            print(os.listdir("."), sys.modules["__main__"].Thing is Thing)
            """
        target = script(textwrap.dedent(program) + STEP, "sub/main.py")

        trace = run(Script(target.path, ("--lr", "0.1"), "sub/main.py"))

        assert told(capfd) == [
            "__main__ True ['sub/main.py', '--lr', '0.1']",
            "True 42",
            "True",
            "['sub'] True",
        ]
        assert (trace.ending.kind, len(trace.steps), trace.target) == ("finished", 1, "sub/main.py")

    def test_this_process_stays_as_it_was(self):
        before = (list(sys.path), list(sys.argv), sys.modules["__main__"], signal.getsignal(2))

        run(script("import sys; sys.path.clear(); sys.argv = []\n" + STEP))

        assert before == (sys.path, sys.argv, sys.modules["__main__"], signal.getsignal(2))

    def test_every_run_starts_from_the_same_random_state(self, capfd):
        target = script(
            "import random, numpy, torch\n"
            "print(random.random(), numpy.random.rand(), torch.rand(1).item())\n" + STEP
        )

        run(target)
        run(target)

        first, second = told(capfd)
        assert first == second

    def test_what_runs_at_the_end_of_a_program_runs(self, capfd):
        target = script(
            """
            import atexit, threading, time, torch
            atexit.register(print, "at exit")
            left_open = open("log.txt", "w")
            left_open.write("kept")
            threading.Thread(target=lambda: (time.sleep(0.5), print("thread"))).start()
            w = torch.zeros(3, requires_grad=True)
            try:
                w.sqrt().sum().backward()
            finally:
                print("finally")
            """
        )

        trace = run(target)

        assert told(capfd) == ["finally", "thread", "at exit"]
        assert Path("log.txt").read_text() == "kept"
        assert trace.ending.kind == "stopped"

    def test_workers_of_a_loader_run(self, capfd):
        program = """
            import torch
            from torch.utils.data import DataLoader
            class Numbers(torch.utils.data.Dataset):
                def __len__(self): return 4
                def __getitem__(self, i): return torch.tensor([float(i + 1)])
            w = torch.ones(1, requires_grad=True)
            if __name__ == "__main__":
                for x in DataLoader(Numbers(), batch_size=2, num_workers=2):
                    (w * x).log().sum().backward()
                print(w.grad)
            """

        trace = run(script(program))

        assert told(capfd) == ["tensor([4.])"]
        assert (trace.ending.kind, len(trace.steps)) == ("finished", 2)

    def test_a_process_that_it_forks_is_not_stopped(self, capfd):
        target = script(
            """
            import multiprocessing, torch
            def work(queue):
                w = torch.zeros(1, requires_grad=True)
                w.sqrt().sum().backward()
                queue.put(w.grad.item())
            if __name__ == "__main__":
                context = multiprocessing.get_context("fork")
                queue = context.Queue()
                process = context.Process(target=work, args=(queue,))
                process.start()
                print(queue.get())
                process.join()
                torch.ones(1, requires_grad=True).sum().backward()
            """
        )

        trace = run(target)

        assert told(capfd) == ["inf"]
        assert (trace.ending.kind, trace.symptoms) == ("finished", ())

    def test_output_can_go_to_stderr_or_nowhere(self, capfd):
        target = script("import sys\nprint('said')\nprint(sys.stdin.read(), 'read')\n" + STEP)

        run(target, RunOptions(stdout_to_stderr=True), silent=True)
        assert capfd.readouterr() == ("", "")

        run(script("print('said')\n" + STEP), RunOptions(stdout_to_stderr=True))
        assert capfd.readouterr() == ("", "said\n")

    def test_a_fresh_interpreter_tells_the_same(self, monkeypatch):
        target = script(BAD_STEP)

        forked = run(target)
        monkeypatch.setattr("gradscope.programs.process.can_fork", lambda: False)
        fresh = run(target)

        assert [(s.kind, s.tensor, s.bad) for s in fresh.symptoms] == [("inf-grad", "w", 3)]
        assert fresh.symptoms == forked.symptoms


class TestEndings:
    @pytest.mark.parametrize(
        ("end", "kind", "detail", "code", "line"),
        [
            ("", "finished", "", None, None),
            ("raise ValueError('no')", "raised", "ValueError: no", 1, 5),
            ("torch.ones(2) @ torch.ones(3)", "raised", "RuntimeError: inconsistent", 1, 5),
            ("import sys; sys.exit(4)", "exited", "sys.exit(4)", 4, 5),
            ("import sys; sys.exit()", "exited", "sys.exit(0)", 0, 5),
            ("import sys; sys.exit('bye')", "exited", "sys.exit('bye')", 1, 5),
            ("raise KeyboardInterrupt", "interrupted", "Ctrl-C", 130, 5),
            ("import os; os._exit(5)", "exited", "os._exit(5)", 5, None),
            ("import ctypes; ctypes.string_at(0)", "died", "Segmentation fault", -11, 5),
            ("import os; os.abort()", "died", "Aborted", -6, 5),
            ("import os; os.kill(os.getpid(), 9)", "died", "SIGKILL", -9, None),
        ],
    )
    def test_is_told_with_what_was_seen(self, end, kind, detail, code, line):
        trace = run(
            script(STEP + "def last():\n    pass\n".replace("pass", end or "pass") + "last()\n")
        )

        ending = trace.ending
        assert (ending.kind, ending.code) == (kind, code)
        assert ending.detail.startswith(detail)
        assert (ending.location.line if ending.location else None) == line
        assert len(trace.steps) == 1

    def test_a_program_that_closes_all_files_keeps_those_that_it_opens_then(self, tmp_path, capfd):
        files = "import os\nos.closerange(3, 256)\nfiles = [open('f', 'w+') for _ in range(64)]\n"
        told = "os.write(1, b''.join(os.pread(one.fileno(), 99, 0) for one in files))\n"
        trace = run(script(files + STEP + told + "import sys\nsys.exit(5)\n"))

        assert capfd.readouterr().out == ""
        assert (trace.ending.kind, trace.ending.code) == ("died", 5)
        assert "all files closed" in trace.ending.detail

    @pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os.abort()"])
    def test_what_a_death_took_with_it_is_said(self, end):
        trace = run(script(STEP + f"import os, time\ntime.sleep(0.5)\n{end}\n"))

        (note,) = trace.notes
        seconds = re.fullmatch(r"the last (\S+) s of the program were not seen", note)
        assert float(seconds[1]) >= 0.5

    def test_the_steps_that_a_death_took_with_it_are_counted(self):
        *first, last = STEP.splitlines(keepends=True)
        steps = "".join(first) + f"for _ in range(50): {last}"
        trace = run(script(f"{steps}import os\nos.kill(os.getpid(), 9)\n"))

        assert len(trace.steps) + trace.unseen == 50
        assert "50 steps" in effort(Report("t", trace, ()))

    def test_a_last_word_that_comes_as_the_child_goes_is_heard(self):
        """The child ends between the look into its pipe and the look at its status."""
        ours, theirs = Pipe(duplex=False)
        trace = Trace("t", ending=Ending("finished"))

        class GoneAtOnce:
            connection, control, leads = ours, None, False

            def poll(self) -> int:
                if not theirs.closed:
                    theirs.send(Final(trace))
                    theirs.close()
                return 0

            def kill(self) -> None: ...

        wait = _Wait(GoneAtOnce(), None, [], None)
        wait.until_gone()

        assert wait.trace("t", io.StringIO()) == trace

    def test_a_traceback_has_the_users_frames_alone(self):
        trace = run(script(STEP + "torch.nn.Linear(2, 2)(torch.ones(3))\n"))

        files = [x for x in trace.ending.traceback.splitlines() if x.startswith("  File")]
        assert len(files) == 1 and "program.py" in files[0]

    @pytest.mark.parametrize("clause", ["except Exception:", "except:"])
    @pytest.mark.long
    def test_nothing_swallows_our_stopping(self, clause):
        target = script(
            f"{BAD_STEP.splitlines()[0]}\n{BAD_STEP.splitlines()[1]}\nwhile True:\n"
            f"    try:\n        w.sqrt().sum().backward()\n    {clause}\n        pass\n"
        )
        started = time.monotonic()

        trace = run(target)

        assert trace.ending.kind == "stopped"
        assert trace.symptoms
        assert time.monotonic() - started < 10

    def test_steps_end_a_loop(self):
        target = script(
            "import torch\nw = torch.ones(1, requires_grad=True)\nwhile True: w.sum().backward()"
        )

        trace = run(target, RunOptions(steps=4))

        assert (trace.ending.kind, len(trace.steps)) == ("stopped", 4)

    @pytest.mark.parametrize("listens", [True, False])
    def test_a_time_limit_ends_a_program_that_hangs(self, listens):
        wait = "time.sleep(0.05)" if listens else "signal.signal(signal.SIGINT, signal.SIG_IGN)"
        target = script(STEP + f"import signal, time\nwhile True: {wait}\n")

        trace = run(target, timeout=0.5)

        assert (trace.ending.kind, trace.ending.detail) == (
            "interrupted",
            "the time limit of 0.5 s",
        )
        assert (trace.ending.code, len(trace.steps)) == (None, 1)

    def test_ctrl_c_gives_what_was_seen(self):
        target = script(STEP + INTERRUPT)

        trace = run(target)

        assert (trace.ending.kind, trace.ending.code) == ("interrupted", 130)
        assert len(trace.steps) == 1

    def test_ctrl_c_ends_a_trial(self):
        target = script(STEP + INTERRUPT)

        with pytest.raises(KeyboardInterrupt):
            run(target, repeat=Repeat())


@pytest.mark.slow
def test_threads_that_use_autograd_first_do_not_crash():
    """In torch's engine, which this process has used before it forks: one of 25 such programs."""
    torch.ones(1, requires_grad=True).sum().backward()
    program = script("""
        import threading, torch
        start = threading.Barrier(8)
        net, x = torch.nn.Linear(4, 4), torch.ones(4, 4)
        def train():
            start.wait()
            torch.autograd.grad(net(x).sum(), net.weight)
        threads = [threading.Thread(target=train) for _ in range(8)]
        for one in threads: one.start()
        for one in threads: one.join()
    """)

    assert {run(program).ending.kind for _ in range(100)} == {"finished"}


class TestPatches:
    def test_the_script_itself(self, capfd):
        target = script("print('as it was')\n" + BAD_STEP)
        text = "print('patched')\n" + STEP

        trace = run(target, patches={str(target.path.resolve()): text})

        assert told(capfd) == ["patched"]
        assert not trace.symptoms
        assert target.path.read_text() == "print('as it was')\n" + BAD_STEP

    def test_an_imported_module_although_its_bytecode_is_cached(self, capfd):
        script("VALUE = 1\n", "constants.py")
        target = script("import constants\nprint(constants.VALUE)\n" + STEP)
        run(target)

        run(target, patches={os.path.abspath("constants.py"): "VALUE = 2\n"})
        run(target)

        assert told(capfd) == ["1", "2", "1"]

    def test_tracebacks_show_the_patched_text(self):
        target = script(STEP)

        trace = run(target, patches={str(target.path.resolve()): STEP + "raise OSError('new')\n"})

        assert "raise OSError('new')" in trace.ending.traceback

    def test_setup_runs_first(self, capfd):
        run(script("print('program')\n" + STEP), setup=lambda: print("setup"))

        assert told(capfd) == ["setup", "program"]


class TestFunctions:
    @pytest.fixture(autouse=True)
    def losses(self):
        script(
            """
            import torch
            SCALE = 3.0
            class Out: pass
            def plain(x): return (x * 2).sum()
            def pair(x): return (x * 2).sum(), "more"
            def mapping(x): return {"loss": (x * 2).sum(), "x": x}
            def carrier(x):
                out = Out(); out.loss = (x * 2).sum()
                return out
            def trains():
                w = torch.ones(2, requires_grad=True)
                for _ in range(3): (w * 2).sum().backward()
            def tells(x, n=0):
                print(x.requires_grad, x.dtype, n)
                return (x.double() * torch.ones((), requires_grad=True)).sum()
            class Net(torch.nn.Module):
                def __init__(self, n=3):
                    super().__init__()
                    self.fc = torch.nn.Linear(n, 1)
                def forward(self, x): return self.fc(x)
            def batch(): return torch.ones(4, 3), torch.zeros(4, 1)
            def loss(output, target): return (output - target).square().mean()
            def together(model, batch): return loss(model(batch[0]), batch[1])
            """,
            "losses.py",
        )

    @pytest.mark.parametrize("name", ["plain", "pair", "mapping", "carrier"])
    def test_the_loss_is_found_in_what_it_returns(self, name):
        trace = run(Function(Reference("losses.py", name), (Input("x", "torch.ones(3)"),)))

        assert [step.loss for step in trace.steps] == [6.0]

    def test_a_function_may_go_backward_itself(self):
        assert len(run(Function(Reference("losses.py", "trains"))).steps) == 3

    @pytest.mark.parametrize(
        ("expression", "says"),
        [
            ("torch.ones(2)", "True torch.float32 0"),
            ("torch.ones(2, requires_grad=False)", "False torch.float32 0"),
            ("torch.ones(2).half()", "True torch.float16 0"),
            ("torch.arange(2)", "False torch.int64 0"),
            ("SCALE * torch.ones(2)", "True torch.float32 0"),
        ],
    )
    def test_floating_inputs_require_grad_unless_they_say_otherwise(self, capfd, expression, says):
        run(Function(Reference("losses.py", "tells"), (Input("x", expression),)))

        assert told(capfd) == [says]

    def test_inputs_are_seeded_and_may_use_each_other(self, capfd):
        inputs = (Input("x", "torch.randn(2)"), Input("n", "x.sum().item()"))
        target = Function(Reference("losses.py", "tells"), inputs)

        run(target)
        run(target)

        first, second = told(capfd)
        assert first == second

    def test_the_configurations_inputs_are_used_where_they_fit(self, capfd):
        inputs = (Input("x", "torch.ones(1)", optional=True), Input("other", "1", optional=True))

        run(Function(Reference("losses.py", "tells"), inputs))

        assert told(capfd) == ["True torch.float32 0"]

    def test_a_module_by_its_dotted_name_and_a_package_by_its_file(self, folder):
        (folder / "pkg").mkdir()
        script("", "pkg/__init__.py")
        script("def two(x): return x * 2", "pkg/maths.py")
        script("from .maths import two\ndef loss(x): return two(x).sum()", "pkg/losses.py")
        inputs = (Input("x", "torch.ones(3)"),)

        by_name = run(Function(Reference("pkg.losses", "loss"), inputs))
        by_file = run(Function(Reference("pkg/losses.py", "loss"), inputs))

        assert by_name.steps[0].loss == by_file.steps[0].loss == 6.0

    def test_a_file_called_like_an_installed_package(self, folder):
        script("def loss(x): return x.sum()", "yaml.py")

        trace = run(Function(Reference("yaml.py", "loss"), (Input("x", "torch.ones(3)"),)))

        assert trace.steps[0].loss == 3.0

    @pytest.mark.parametrize(
        ("model", "loss", "batch"),
        [
            ("losses.py:Net", "losses.py:loss", "losses.py:batch"),
            ("losses.py:Net(3)", "F.mse_loss", "(torch.ones(4, 3), torch.zeros(4, 1))"),
            ("losses.py:Net", "nn.MSELoss", "{'x': torch.ones(4, 3), 'target': torch.zeros(4, 1)}"),
            ("losses.py:Net", "losses.py:together", "losses.py:batch"),
            ("losses.py:Net", "lambda out: out.square().mean()", "torch.ones(4, 3)"),
            (
                "losses.py:Net",
                "F.mse_loss",
                "torch.utils.data.DataLoader([(torch.ones(3), torch.zeros(1))])",
            ),
            ("lambda x: nn.Linear(3, 1)(x).mean()", None, "torch.ones(4, 3)"),
            ("lambda: nn.Linear(3, 1)", "F.mse_loss", "losses.py:batch"),
        ],
    )
    def test_a_model_its_loss_and_a_batch(self, model, loss, batch):
        trace = run(parse_parts(model, loss, batch))

        assert (trace.ending.kind, len(trace.steps)) == ("finished", 1)

    def test_names_without_a_place_are_looked_up_in_the_target(self):
        parts = parse_parts("Net", "loss", "batch", where="losses.py")

        assert isinstance(parts, Parts) and parts.name == "losses.py:Net"
        assert len(run(parts).steps) == 1

    def test_what_cannot_be_evaluated_reaches_the_caller(self):
        with pytest.raises(GradscopeError, match=r"losses\.py has no plian"):
            run(Function(Reference("losses.py", "plian")))

    @pytest.mark.parametrize(
        ("model", "loss", "says"),
        [
            ("losses.py:Net", "lambda a, b, c: a", r"lambda.*: TypeError: .* missing 1 required"),
            ("lambda: 3", "F.mse_loss", "is a int and cannot be called"),
            ("math.sqrt", "F.mse_loss", r"math\.sqrt cannot be called like this"),
        ],
    )
    def test_a_call_that_the_user_named_wrongly_is_no_fault_of_ours(self, model, loss, says):
        with pytest.raises(GradscopeError, match=says):
            run(parse_parts(model, loss, "losses.py:batch"))

    def test_a_builtin_is_given_what_the_user_gave(self):
        with pytest.raises(GradscopeError, match="torch:zeros cannot be called like this") as told:
            run(Function(Reference("torch", "zeros"), (Input("size", "'three'"),)))

        assert told.value.help == "it was given size by name"
