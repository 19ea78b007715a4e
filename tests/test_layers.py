"""The house rules that a test can keep: who imports whom, what lies where, unique codes."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from house.layers import BESIDE, LAYERS, imports, torch_users, upward

from gradscope.rules import RULES, Rule

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gradscope"

TOP = {
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "configs",
    "gradscope",
    "pyproject.toml",
    "scripts",
    "tests",
}


def test_imports_point_down():
    assert upward(PACKAGE) == []


def test_every_module_has_a_layer():
    modules = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if importable(path)}

    assert modules <= {*LAYERS, *BESIDE}


def importable(path: Path) -> bool:
    return path.suffix == ".py" or (path / "__init__.py").exists()


def test_imports_are_absolute():
    relative = [
        str(file.relative_to(ROOT))
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level
    ]

    assert relative == []


def test_torch_is_imported_only_where_programs_run():
    assert torch_users(PACKAGE) == []


def test_the_guards_see_what_they_guard_against(tmp_path):
    (tmp_path / "facts.py").write_text("from gradscope.errors import ExitCode\nimport torch\n")
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/a.py").write_text("def late():\n    from gradscope import pipeline\n")
    (tmp_path / "report").mkdir()
    (tmp_path / "report/b.py").write_text("import gradscope.rules.rule\n")

    assert upward(tmp_path) == [
        "report/b.py imports gradscope.rules.rule",
        "rules/a.py imports gradscope.pipeline",
    ]
    assert torch_users(tmp_path) == ["facts.py"]


@pytest.mark.parametrize("module", ["rules", "report", "ops", "source", "diagnose", "cli"])
def test_importing_it_does_not_import_torch(module):
    program = f"import json, sys, gradscope.{module}; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True)

    assert "torch" not in json.loads(run.stdout)


@pytest.mark.parametrize("arguments", [["--help"], ["trace", "--help"], ["explain"]])
def test_the_light_commands_do_not_import_torch(arguments):
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gradscope", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in run.stderr.splitlines()}

    assert "gradscope.cli" in imported
    assert "torch" not in imported


def rules_written(base: type[Rule] = Rule) -> Iterator[type[Rule]]:
    """Every rule there is: the registry keeps only one of two that share a code."""
    for rule in base.__subclasses__():
        if "code" in vars(rule) and rule.__module__.startswith("gradscope."):
            yield rule
        yield from rules_written(rule)


def test_codes_and_names_are_unique_and_well_formed():
    rules = list(rules_written())

    assert sorted(rule.code for rule in rules) == sorted(RULES)
    assert len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        assert re.fullmatch(r"GS[1-69]\d\d", rule.code), rule
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name), rule


def test_a_rule_is_a_file_of_its_name():
    for rule in RULES.values():
        assert rule.__module__ == f"gradscope.rules.causes.{rule.name.replace('-', '_')}"


@pytest.mark.parametrize("folder", ["causes", "reading", "wording"])
def test_no_rule_depends_on_a_cause(folder):
    """Nor a cause on another: what two of them ask stands in `reading`."""
    found = [
        f"{file.name} imports {'.'.join(name)}"
        for file, _, name in imports(PACKAGE / "rules" / folder)
        if name[:3] == ["gradscope", "rules", "causes"]
    ]

    assert found == []


def test_causes_are_all_that_lies_among_them():
    files = {file.stem for file in (PACKAGE / "rules/causes").glob("*.py")} - {"__init__"}

    assert files == {rule.name.replace("-", "_") for rule in RULES.values()}


def test_nothing_else_lies_at_the_top():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = {path.split("/")[0] for path in listed.stdout.split("\0") if path}

    assert {name for name in names if not name.startswith(".")} <= TOP


@pytest.mark.parametrize("pattern", ["utils.py", "helpers.py", "common.py", "misc.py"])
def test_no_file_is_named_after_nothing(pattern):
    assert list(PACKAGE.rglob(pattern)) == []


def test_no_file_has_the_name_of_another():
    names = [file.name for file in PACKAGE.rglob("*.py") if file.name != "__init__.py"]

    assert sorted(one for one in set(names) if names.count(one) > 1) == []


def test_files_stay_short():
    long = {
        str(file.relative_to(ROOT)): lines
        for file in sorted(PACKAGE.rglob("*.py"))
        if (lines := file.read_text().count("\n")) > 400
    }

    assert long == {}
