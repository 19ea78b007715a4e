"""A parsed configuration that can still tell where each key stands, for one-line messages."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradscope.errors import GradscopeError

LARGEST = 1024**2  # bytes of a configuration
_MOST_NODES = 100_000  # of a configuration, aliases unfolded


_TARGET_TABLE = re.compile(r"\[\[tool\.gradscope\.targets\]\]")


def text_of(path: Path, largest: int = LARGEST) -> str:
    """What stands in a file. Raises GradscopeError where it is larger than `largest` bytes, and
    OSError and UnicodeDecodeError as `open` does."""
    with path.open("rb") as file:
        raw = file.read(largest + 1)
    if len(raw) > largest:
        raise GradscopeError(f"{path} is larger than {largest // 1024**2} MiB, and was not read")
    return raw.decode()


class Document:
    """A parsed file that can still tell where each key stands."""

    path: Path
    content: Mapping[str, Any]

    def place(self, keys: tuple[str, ...]) -> tuple[int, int]:
        raise NotImplementedError

    def shown(self, keys: tuple[str, ...]) -> str:
        line, column = self.place(keys)
        return f"{self.path}:{line}:{column}"

    def error(self, keys: tuple[str, ...], message: str) -> GradscopeError:
        message, _, help = message.partition("\n")
        return GradscopeError(f"{self.shown(keys)}: {message}", help=help)


class Yaml(Document):
    def __init__(self, path: Path, text: str) -> None:
        import yaml

        self.path = path
        try:
            loader = yaml.SafeLoader(text)
        except yaml.reader.ReaderError as error:
            line, column = text.count("\n", 0, error.position) + 1, error.position
            column -= text.rfind("\n", 0, error.position)
            place = f"{path}:{line}:{column}"
            raise GradscopeError(
                f"{place}: U+{error.character:04X} is not allowed in text"
            ) from None
        try:
            self._root: Any = loader.get_single_node()
            self._refuse_twins()
            self.content = loader.construct_document(self._root) if self._root else {}
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
            words = error.problem or error.context or "not YAML"
            if words.startswith("but "):
                words = f"{error.context}, {words}"
            raise GradscopeError(f"{path}{place}: {words}") from None
        except RecursionError:
            raise GradscopeError(f"{path}: its brackets nest too deeply") from None
        except (yaml.YAMLError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise GradscopeError(f"{path}: not YAML: {reason}") from None
        finally:
            loader.dispose()
        if not isinstance(self.content, dict):
            raise GradscopeError(f"{path}:1:1: expected keys with values", help="such as steps: 10")
        self.content = {str(key): value for key, value in self.content.items()}

    def _refuse_twins(self) -> None:
        """YAML would silently take the last of two equal keys, and unfold aliases for ever."""
        waiting = [self._root] if self._root else []
        for _ in range(_MOST_NODES):
            if not waiting:
                return
            node = waiting.pop()
            if node.id == "sequence":
                waiting += node.value
            elif node.id == "mapping":
                self._refuse_twins_in(node)
                waiting += [value for _, value in node.value]
        raise GradscopeError(f"{self.path}: more than {_MOST_NODES:,} values")

    def _refuse_twins_in(self, mapping: Any) -> None:
        seen = set()
        for key, _ in mapping.value:
            if not isinstance(key.value, str):
                continue
            if key.value in seen:
                mark = key.start_mark
                place = f"{self.path}:{mark.line + 1}:{mark.column + 1}"
                raise GradscopeError(f"{place}: {key.value} is given twice")
            seen.add(key.value)

    def place(self, keys: tuple[str, ...]) -> tuple[int, int]:
        mark, node = None, self._root
        for key in keys:
            if node.id == "sequence" and key.isdecimal() and int(key) < len(node.value):
                node = node.value[int(key)]
                mark = node.start_mark
                continue
            pairs = node.value if node.id == "mapping" else ()
            found = next((pair for pair in pairs if pair[0].value == key), None)
            if found is None:
                break
            mark, node = found[0].start_mark, found[1]
        return (mark.line + 1, mark.column + 1) if mark else (1, 1)


class Toml(Document):
    def __init__(self, path: Path, text: str) -> None:
        self.path, self._text = path, text
        try:
            self.content = tomllib.loads(text).get("tool", {}).get("gradscope", {})
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
            place = f":{found[1]}:{found[2]}" if found else ""
            raise GradscopeError(f"{path}{place}: {re.sub(r' [(]at .*', '', str(error))}") from None
        if not isinstance(self.content, dict):
            raise self.error(("gradscope",), "expected a table [tool.gradscope]")

    def place(self, keys: tuple[str, ...]) -> tuple[int, int]:
        """tomllib keeps no places: the first line after the table's head that sets the key."""
        lines = self._text.splitlines()
        start = next(
            (i for i, line in enumerate(lines) if line.strip().startswith("[tool.gradscope")), 0
        )
        if keys[:1] == ("targets",) and len(keys) > 1:
            heads = [
                i for i, line in enumerate(lines) if _TARGET_TABLE.match(line.replace(" ", ""))
            ]
            if int(keys[1]) < len(heads):
                start = heads[int(keys[1])]
                if len(keys) == 2:
                    return start + 1, 1
            keys = ("targets", *keys[2:])
        for key in reversed(keys):
            pattern = re.compile(rf"[\s\[{{,]*(?:tool\.gradscope\.)?[\"']?{re.escape(key)}\b")
            for number, line in enumerate(lines[start:], start + 1):
                if pattern.match(line):
                    return number, line.index(key) + 1
        return start + 1, 1
