"""The user's source: places to the character, operands and masks in every common spelling."""

import ast
import dis
import inspect
from dataclasses import replace

import pytest

from gradscope.facts import Finding, Location, Phase, Severity
from gradscope.source import (
    Source,
    SourceError,
    at,
    definition,
    expression,
    find,
    mask,
    operands,
    pointed,
    read,
    shown,
)
from gradscope.source.text import characters
from gradscope.source.tree import Tree


def location(source: Source, text: str, nth: int = 0) -> Location:
    start = -1
    for _ in range(nth + 1):
        start = source.text.index(text, start + 1)
    return Location(source.file, *source.place(start), *source.place(start + len(text)), "f")


def of(text: str) -> Source:
    return Source(
        "loss.py",
        "import torch\nimport torch as th\nimport torch.nn.functional as F\n"
        "from torch import sqrt as root\n" + text,
    )


@pytest.mark.parametrize(
    ("written", "op", "expected"),
    [
        ("x ** 0.5", "pow", {"self": "x", "exponent": "0.5"}),
        ("x.pow(0.5)", "pow", {"self": "x", "exponent": "0.5"}),
        ("torch.pow(x, exponent=0.5)", "pow", {"self": "x", "exponent": "0.5"}),
        ("x.square()", "pow", {"self": "x"}),
        ("a / b", "div", {"self": "a", "other": "b"}),
        ("a.div(b + 1)", "div", {"self": "a", "other": "b + 1"}),
        ("torch.true_divide(a, b)", "div", {"self": "a", "other": "b"}),
        ("1 / x", "reciprocal", {"self": "x"}),
        ("th.sqrt(v)", "sqrt", {"self": "v"}),
        ("root(v)", "sqrt", {"self": "v"}),
        ("v.sqrt_()", "sqrt", {"self": "v"}),
        ("torch.sqrt(input=v)", "sqrt", {"self": "v"}),
        ("F.log_softmax(z, dim=-1)", "_log_softmax", {"self": "z", "dim": "-1"}),
        ("torch.linalg.norm(v)", "linalg_vector_norm", {"self": "v"}),
        ("v.norm(dim=1)", "linalg_vector_norm", {"self": "v", "dim": "1"}),
        ("torch.linalg.svd(m)", "_linalg_svd", {"self": "m"}),
        ("self.softmax(x)", "_softmax", {"self": "x"}),
        ("-x", "neg", {"self": "x"}),
        ("F.cosine_similarity(a, b)", "div", {}),
        ("abs(x)", "abs", {"self": "x"}),
    ],
)
def test_operands_of_every_spelling(written, op, expected):
    source = of(f"y = {written}\n")
    node = expression(source, location(source, written))

    found = operands(source, node, op)

    assert expected == {role: source.of(part) for role, part in found.items()}


def test_an_augmented_assignment_is_an_op():
    source = of("x /= y\n")
    node = expression(source, location(source, "x /= y"))

    assert {"self": "x", "other": "y"} == {
        role: source.of(part) for role, part in operands(source, node, "div").items()
    }


def test_a_span_reported_by_python_is_found(tmp_path):
    """The recorder's own way: f_lasti of a frame through co_positions."""
    file = tmp_path / "chain.py"
    file.write_text("def f(x):\n\ty = 'é' and x.square().sum(-1).sqrt()\n\treturn y\n")
    namespace: dict[str, object] = {}
    code = compile(file.read_text(), str(file), "exec")
    exec(code, namespace)
    inner = namespace["f"].__code__
    places = list(inner.co_positions())
    calls = (one for one in dis.get_instructions(inner) if one.opname == "CALL")
    place = max((places[one.offset // 2] for one in calls), key=lambda p: p[3])
    source = read(file)
    line = source.line(place[0])
    span = Location(
        str(file), place[0], characters(line, place[2]), place[1], characters(line, place[3]), "f"
    )

    assert "x.square().sum(-1).sqrt()" == at(source, span)
    assert ".sqrt()" == at(source, shown(source, span))
    assert expression(source, span) is expression(source, shown(source, span))


def test_a_short_receiver_is_shown_whole():
    source = of("y = image.sqrt()\n")

    assert "image.sqrt()" == at(source, shown(source, location(source, "image.sqrt()")))


@pytest.mark.parametrize(
    "text", ["y = f'{x / z:.3f} é'\n", "g = lambda q: x / z\n", "y = [x / z for x in v]\n"]
)
def test_f_strings_lambdas_and_comprehensions(text):
    source = of(text)
    node = expression(source, location(source, "x / z"))

    assert "x / z" == source.of(node)


def test_a_wrong_span_finds_nothing():
    source = of("y = a / b + c\n")

    assert expression(source, location(source, "/ b +")) is None
    assert expression(source, Location("loss.py", 99, 0, 99, 4, "f")) is None


def test_two_spellings_on_one_line():
    source = of("y = a / b + c.div(d)\n")

    assert ["a / b", "c.div(d)"] == sorted(source.of(node) for node in find(source, 5, "div"))


def masked(text: str, place: str, culprit: str):
    source = of(text)
    node = expression(source, location(source, place))
    root = expression(source, location(source, culprit))
    found = mask(source, node, root)
    return found and (source.of(found.condition), found.kept)


@pytest.mark.parametrize(
    ("text", "place", "culprit", "expected"),
    [
        ("y = torch.where(m, x ** 2, z)\n", "torch.where(m, x ** 2, z)", "x ** 2", ("m", True)),
        ("p = x ** 2\ny = z.where(m, p)\n", "z.where(m, p)", "x ** 2", ("m", False)),
        ("p = x ** 2\ny = p[z > 0]\n", "p[z > 0]", "x ** 2", ("z > 0", True)),
        ("p = x ** 2\np[m] = 0\n", "p[m]", "x ** 2", ("m", False)),
        ("p = x ** 2\nout[m] = p[m]\n", "out[m]", "x ** 2", ("m", True)),
        ("p = x ** 2\ny = p.masked_fill(m, 0)\n", "p.masked_fill(m, 0)", "x ** 2", ("m", False)),
        ("y = (1 - m) * (x ** 2)\n", "(1 - m) * (x ** 2)", "x ** 2", ("m", False)),
        ("y = x ** 2 * m\n", "x ** 2 * m", "x ** 2", ("m", True)),
        ("p = x ** 2\ny = p[:, 0]\n", "p[:, 0]", "x ** 2", None),
    ],
)
def test_the_condition_of_every_mask(text, place, culprit, expected):
    assert expected == masked(text, place, culprit)


def test_newlines_and_tabs_stay(tmp_path):
    file = tmp_path / "dos.py"
    file.write_bytes("\ufeffdef f(x):\r\n\treturn x / 'é'\r\n".encode())
    source = read(file)

    assert "\r\n" == source.newline
    assert ("def f(x):", "\treturn x / 'é'", "") == source.lines
    assert "x / 'é'" == source.of(ast.walk(source.tree).__next__().body[0].body[0].value)


def test_a_form_feed_ends_no_line():
    assert ("a = 1\x0cb", "c") == Source("f.py", "a = 1\x0cb\nc").lines


@pytest.mark.parametrize("raw", [b"x = '\xff'\n", b"# coding: nonsense\n"])
def test_undecodable_source_is_said(tmp_path, raw):
    file = tmp_path / "odd.py"
    file.write_bytes(raw)

    with pytest.raises(SourceError, match="not valid text"):
        read(file)


def test_source_that_is_not_on_disk_is_said():
    with pytest.raises(SourceError, match="cannot be read"):
        read("<stdin>")


def test_this_file_reads_itself():
    source = read(inspect.getfile(test_this_file_reads_itself))

    assert source.text.splitlines()[0] == source.line(1)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("p = exp(z)\nq = p / 2", "exp(z)"),
        ("p = exp(z)\np = p / 2", "exp(z)"),
        ("p = 1\np = exp(z); p = p / 2\np = 3", "exp(z)"),
        ("p = exp(z)\np += 1\np = p / 2", None),
        ("p = exp(z)\nif z:\n    p = 1\nq = p / 2", None),
        ("for p in z:\n    p = exp(p)\n    p = p / 2", "exp(p)"),
        ("for _ in z:\n    q = p / 2\n    p = exp(z)", None),
        ("p = exp(z)\nfor _ in z:\n    q = p / 2\n    p = 1", None),
        ("p = exp(z)\nfor _ in z:\n    q = p / 2\np = 1", "exp(z)"),
        ("p = 1\nif z:\n    p = exp(z)\nelse:\n    q = p / 2", None),
        ("p = 1\nif z:\n    p = exp(z)\n    with z:\n        q = p / 2", "exp(z)"),
        ("try:\n    p = exp(z)\nexcept z as p:\n    q = p / 2", None),
        ("p = exp(z)\np += 1\nq = p / 2", None),
        ("p, r = exp(z)\nq = p / 2", None),
        ("r, p = z, exp(z)\nq = p / 2", "exp(z)"),
        ("p, *r = z, exp(z)\nq = p / 2", None),
        ("p, r = p2 = exp(z), z\nq = p / 2", "exp(z)"),
        ("p = exp(z)\nq = [p / 2 for _ in z]", "exp(z)"),
        ("p = exp(z)\nq = [p / 2 for p in z]", None),
        ("p = exp(z)\nq = lambda p: p / 2", None),
        ("def f(p):\n    p = exp(p)\n    return p / 2", "exp(p)"),
        ("p = exp(z)\ndef f():\n    return p / 2", "exp(z)"),
        ("p = exp(z)\ndef f():\n    global p\n    p = 1\ndef g():\n    return p / 2", None),
        ("def f():\n    p = exp(z)\n    def g():\n        p = 1\n    return p / 2", "exp(z)"),
        (
            "def f():\n    p = exp(z)\n    def g():\n        nonlocal p\n        p = 1\n"
            "    return p / 2",
            None,
        ),
        ("p: int = exp(z)\nq = p / 2", "exp(z)"),
        ("q = p / 2", None),
    ],
)
def test_what_a_name_was_given_last(text, meaning):
    source = of(text)
    use = next(
        node.left
        for node in ast.walk(source.tree)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
    )
    assert isinstance(use, ast.Name)

    given = definition(source, use)

    assert (given and ast.unparse(given)) == meaning


def test_a_place_that_many_findings_share_is_looked_at_once(tmp_path, monkeypatch):
    file = tmp_path / "loss.py"
    file.write_text("y = x.abs().sqrt()\n")
    place = Location(str(file), 1, 4, 1, 18, "<module>")
    one = Finding("GS102", "singular-derivative", Severity.ERROR, Phase.BACKWARD, 0, "sqrt", "", "")
    looked = []
    monkeypatch.setattr(
        "gradscope.source.spans.shown", lambda _, place: looked.append(place) or place
    )

    pointed([replace(one, location=place)] * 9)

    assert looked == [place]


@pytest.mark.parametrize(
    "text",
    [
        "a = [x for x in [y for y in z]]",
        "o = (cat(q) for q in zip(*[buffer[i] for i in n]))",
        "f = lambda q=[i for i in r]: q",
        "def g(a: [u for u in v], *b: {w for w in t}, c=[k for k in d], **e): pass",
        "class C(*[b for b in c]): pass",
        "@d([e for e in f])\ndef h() -> [i for i in j]: pass",
        "x = [(lambda y=[k for k in l]: y) for m in n]",
    ],
)
def test_every_node_knows_its_parent(text):
    nodes = Tree(text)
    for node in ast.walk(nodes.module):
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.expr | ast.stmt | ast.arg | ast.comprehension):
                assert nodes.parents[part] is node
