"""Where a program sets a number that it reads elsewhere."""

import ast

import pytest

from gradscope.source import Source
from gradscope.source.literals import setting

OPTION = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=10)
parser.add_argument({flags}, type=float, default=0.5)
use(parser.parse_args().{name})
"""
FIELD = """
class Args:
    steps: int = 10
    learning_rate: float = 0.5
use(Args().learning_rate)
"""


@pytest.mark.parametrize(
    "program",
    [
        "use(0.5)\n",
        "RATE = 0.5\nuse(RATE)\n",
        "def train(rate=0.5):\n    use(rate)\n",
        "class Config:\n    rate = 0.5\n\n\nuse(Config.rate)\n",
        "class Config:\n    def __init__(self):\n        self.rate = 0.5\n\n\nuse(Config().rate)\n",
        "import types\nargs = types.SimpleNamespace(rate=0.5)\nuse(args.rate)\n",
        "config = {'steps': 10, 'rate': 0.5}\nuse(config['rate'])\n",
        "config = {}\nconfig['rate'] = 0.5\nuse(config['rate'])\n",
        "config = dict(rate=0.5)\nuse(config['rate'])\n",
        OPTION.format(flags='"--rate"', name="rate"),
        OPTION.format(flags='"-r", "--learning-rate"', name="learning_rate"),
        OPTION.format(flags='"-r"', name="r"),
        OPTION.format(flags='"--rate", dest="eta"', name="eta"),
        FIELD,
    ],
)
def test_a_number_is_found_where_it_is_set(program):
    found = found_in(program, 0.5)

    assert isinstance(found, ast.Constant) and found.value == 0.5


@pytest.mark.parametrize(
    "program",
    [
        "def train(rate=0.5):\n    use(rate)\ntrain(1.0)\n",
        "config = {'rate': 0.5}\nother = {'rate': 0.25}\nuse(config['rate'])\n",
        FIELD + "args.learning_rate = float(input())\n",
        OPTION.format(flags='"--rate"', name="steps"),
        OPTION.format(flags='"--rate", type=float).set_defaults(rate=1.0', name="other"),
    ],
)
def test_what_may_have_been_set_otherwise_stays_where_it_is_read(program):
    found = found_in(program, 0.5)

    assert ast.unparse(found) in program.rpartition("use(")[2]


def test_another_value_than_the_default_was_given_on_the_command_line():
    found = found_in(OPTION.format(flags='"--rate"', name="rate"), 0.25)

    assert isinstance(found, ast.Attribute)


def found_in(program: str, value: float) -> ast.expr:
    source = Source("program.py", program)
    (call,) = (one for one in source.nodes.every(ast.Call) if ast.unparse(one.func) == "use")
    return setting(source, call.args[0], value)
