"""Any configuration file is read, or refused in one line: no traceback, no exit code of a fault."""

import json
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradscope.cli import main
from gradscope.config import Config, load_config
from gradscope.config.keys import KEYS as READ
from gradscope.config.keys import TARGET_KEYS
from gradscope.errors import GradscopeError

in_one_folder = [HealthCheck.function_scoped_fixture]  # each example writes its file anew
KEYS = sorted({*READ, *TARGET_KEYS, "targets", "max-grad-norm", "shape", "range", "seed"})
WORDS = ["", "train.py", "é☃", "float32", "GS102", "GS1", "2 GiB", "-1 GiB", "error", "a: b", "nan"]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([*WORDS, *KEYS])
    | st.text(max_size=8)
    | st.dates()
)
keys = st.sampled_from(KEYS) | st.text(max_size=6)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)
documents = st.dictionaries(keys, values, max_size=5)
broken = st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,?\t\n \x00é\u2028", max_size=40)


def read(path: Path, text: str) -> Config | GradscopeError:
    """The configuration, or the one line that refuses it."""
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        return load_config(path)
    except GradscopeError as error:
        message = str(error)
        assert message.startswith(str(path))
        assert "\n" not in message and "Traceback" not in message
        return error


def toml_of(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_of, value))}]"
    if isinstance(value, str | bool):
        return json.dumps(value)
    return "0" if value is None else str(value)


@settings(max_examples=150, deadline=None, suppress_health_check=in_one_folder)
@given(document=documents)
def test_any_yaml_is_read_or_refused_in_one_line(document, tmp_path):
    read(tmp_path / "gradscope.yaml", yaml.safe_dump(document, allow_unicode=True))


@settings(max_examples=150, deadline=None, suppress_health_check=in_one_folder)
@given(text=broken)
def test_any_text_is_read_or_refused_in_one_line(text, tmp_path):
    read(tmp_path / "gradscope.yaml", text)
    read(tmp_path / "pyproject.toml", f"[tool.gradscope]\n{text}")


@settings(max_examples=100, deadline=None, suppress_health_check=in_one_folder)
@given(document=documents)
def test_any_toml_is_read_or_refused_in_one_line(document, tmp_path):
    rows = "\n".join(f"{json.dumps(key)} = {toml_of(value)}" for key, value in document.items())
    read(tmp_path / "pyproject.toml", f"[tool.gradscope]\n{rows}\n")


@settings(max_examples=60, deadline=None, suppress_health_check=in_one_folder)
@given(document=documents)
def test_what_is_refused_ends_in_2(document, tmp_path, capsys):
    path = tmp_path / "gradscope.yaml"
    found = read(path, yaml.safe_dump(document, allow_unicode=True))
    if not isinstance(found, GradscopeError):
        return

    assert main(["check", "--config", str(path), "--show-config"]) == 2
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith(f"gradscope: error: {path}")
