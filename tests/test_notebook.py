"""Cells: places and patches from what was typed, the HTML of a report, and `%%gradscope`."""

import re
from pathlib import Path

import pytest

import gradscope
from gradscope.facts import NotTried, Reason
from gradscope.report import Options
from gradscope.source.text import cell_of, text_of

ipython = pytest.importorskip("IPython.core.interactiveshell")
pytestmark = pytest.mark.filterwarnings("default")  # IPython's own are its own

IMPORTS = "import torch\nfrom torch import nn\nimport gradscope"
FUNCTION = """\
def gamma(x):
    mask = (x < 0.003).float()
    return mask * 12.9 * x + (1 - mask) * (x ** 0.5)
"""
STEP = """\
x = torch.tensor([0.0, 0.0025, 0.5, 0.8, 1.0], requires_grad=True)
((x - gamma(x)) ** 2).mean().backward()
"""
HEALTHY = """\
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    loss = (model(torch.randn(16, 4)) - 1).square().mean()
    loss.backward()
    optimizer.step()
loss.item() > 0
"""


@pytest.fixture
def shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    shell = ipython.InteractiveShell.instance()
    shell.history_manager.enabled = False
    shell.display_pub = Published(parent=shell)
    run(shell, IMPORTS)
    yield shell
    shell.restore_sys_module_state()
    ipython.InteractiveShell.clear_instance()


class Published(pytest.importorskip("IPython.core.displaypub").DisplayPublisher):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.shown = []

    def publish(self, data, metadata=None, *, transient=None, update=False, **kwargs):
        self.shown.append(data)


def run(shell, cell):
    result = shell.run_cell(cell, store_history=True)
    result.raise_error()
    return result.result


def test_a_place_is_told_by_the_cell(shell):
    number = shell.execution_count
    run(shell, FUNCTION)

    seen = run(
        shell,
        f"with gradscope.watch() as seen:\n    {STEP.replace(chr(10), chr(10) + '    ')}\nseen",
    )

    (finding,) = seen.findings()
    assert finding.location.file == f"In [{number}]"
    assert finding.location.line == 3
    text = seen.text(options=Options(width=100))
    assert f"--> In [{number}], line 3, column 44, in gamma" in text
    assert "return mask * 12.9 * x + (1 - mask) * (torch.where(mask.bool(), 1.0, x) ** 0.5)" in text
    assert f"+++ b/In [{number}]\t" in finding.fixes[0].patch


def test_what_watches_is_shown_as_html_in_a_cell(shell):
    seen = run(
        shell,
        f"with gradscope.watch() as seen:\n    {FUNCTION.replace(chr(10), chr(10) + '    ')}\nseen",
    )

    formatted, _ = shell.display_formatter.format(seen)
    assert formatted["text/plain"] == str(seen).rstrip()
    page = formatted["text/html"]
    assert page.startswith('<div class="gradscope">')
    assert page.rstrip().endswith("</div>")
    assert "<body" not in page and "<script" not in page
    report, _ = shell.display_formatter.format(seen.report())
    assert report["text/html"] == page


def test_nothing_of_the_page_around_is_styled(shell):
    seen = run(shell, "with gradscope.watch() as seen: pass\nseen")

    (style,) = re.findall(r"<style>\n(.*)</style>", seen._repr_mimebundle_()["text/html"], re.S)
    assert style.startswith("@scope (.gradscope) {")
    assert ":root" not in style and "body" not in style
    assert style.count("{") == style.count("}")


def test_a_cell_with_the_magic_is_watched(shell):
    run(shell, "%load_ext gradscope")
    number = shell.execution_count

    run(shell, f"%%gradscope seen --stop\n{FUNCTION}\n{STEP}\nreached = True")

    seen = shell.user_ns["seen"]
    assert [one.rule for one in seen.findings()] == ["GS101"]
    assert "reached" not in shell.user_ns
    assert seen.findings()[0].location.line == 4  # the magic is the first
    assert "gamma" in shell.user_ns
    (shown,) = shell.display_pub.shown
    assert f"In [{number}], line 4, column 44, in gamma" in shown["text/plain"]
    assert "GS101" in shown["text/html"]


def test_fixes_of_an_earlier_cell_are_tried_by_running_the_cell_again(shell, capsys):
    run(shell, "%load_ext gradscope")
    run(shell, FUNCTION)

    run(shell, f"%%gradscope seen\nprint('once')\n{STEP}")

    (finding,) = shell.user_ns["seen"].findings()
    assert finding.fixes[0].verified
    assert capsys.readouterr().out == "once\n"
    assert shell.user_ns["x"].grad.isnan().any()  # nothing but a copy was repaired


def test_fixes_of_the_cell_itself_are_tried_too(shell):
    run(shell, "%load_ext gradscope")

    run(shell, f"%%gradscope seen\n{FUNCTION}\n{STEP}")
    run(shell, "%%gradscope flat\nw = torch.zeros(3, requires_grad=True)\nw.norm().backward()")
    run(
        shell, "%%gradscope flat\nw = torch.zeros(3, requires_grad=True)\nw.sum().sqrt().backward()"
    )

    assert shell.user_ns["seen"].findings()[0].fixes[0].verified
    assert any(fix.verified for fix in shell.user_ns["flat"].findings()[0].fixes)


def test_a_cell_begins_again_with_what_it_began_with(shell):
    """And not with the model and the counts that its first run has left."""
    run(shell, "%load_ext gradscope")
    run(shell, "w = torch.zeros(3, requires_grad=True)\nbias = torch.ones(1)")

    run(shell, "%%gradscope seen\n(w.sum().sqrt() + bias).sum().backward()\nbias += 1")

    assert any(fix.verified for fix in shell.user_ns["seen"].findings()[0].fixes)
    assert shell.user_ns["bias"] == 2
    assert not Path("/proc/thread-self/children").read_text().split()


def test_a_cell_that_is_another_each_time_is_not_tried(shell):
    run(shell, "%load_ext gradscope")
    run(shell, "import os\nw = torch.zeros(3, requires_grad=True)")

    run(
        shell, "%%gradscope seen\n(w.sum().sqrt() + int.from_bytes(os.urandom(2))).sum().backward()"
    )

    assert shell.user_ns["seen"].findings()
    for fix in shell.user_ns["seen"].findings()[0].fixes:
        assert fix.verdict == NotTried(Reason.NOT_REPEATABLE)


def test_a_healthy_cell_is_healthy_and_shows_its_value(shell, capsys):
    run(shell, "%load_ext gradscope")

    run(shell, f"%%gradscope\n{HEALTHY}")

    (shown,) = shell.display_pub.shown
    assert "healthy: every loss and gradient was finite (6 steps" in shown["text/plain"]
    assert "True" in capsys.readouterr().out


def test_an_exception_of_the_cell_is_its_own_and_the_report_is_shown(shell):
    run(shell, "%load_ext gradscope")

    with pytest.raises(ZeroDivisionError):
        run(shell, f"%%gradscope --ignore GS1\n{FUNCTION}\n{STEP}\n1 / 0")

    (shown,) = shell.display_pub.shown
    assert "GS101" not in shown["text/plain"]


def test_an_option_that_there_is_not_is_told(shell, capsys):
    run(shell, "%load_ext gradscope")

    shell.run_cell("%%gradscope --stopp\n1", store_history=True)

    assert "unrecognized arguments: --stopp" in "".join(capsys.readouterr())
    assert shell.display_pub.shown == []


def test_a_number_that_is_used_again_is_told_apart(shell):
    for _ in range(2):
        shell.run_cell("f = lambda x: x.sqrt()  # 1", store_history=False).raise_error()
        first = shell.user_ns["f"]
        shell.run_cell("f = lambda x: x.log()  # another", store_history=False).raise_error()
        second = shell.user_ns["f"]
    names = [cell_of(one.__code__.co_filename) for one in (first, second)]
    assert len(set(names)) == 2
    assert [text_of(name) for name in names] == [
        "f = lambda x: x.sqrt()  # 1\n",
        "f = lambda x: x.log()  # another\n",
    ]


def test_the_extension_is_no_public_name():
    assert "load_ipython_extension" not in gradscope.__all__
    assert callable(gradscope.load_ipython_extension)


def test_a_report_in_colours_is_made_in_silence(monkeypatch):
    """Rich shows what it prints in a cell, wherever it believes that it runs in one."""
    shown: list[object] = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda *given, **known: shown.append(given))
    with gradscope.watch() as seen:
        pass

    assert "not judged" in seen.text(options=Options(color=True))
    assert not shown
