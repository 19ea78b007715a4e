"""A parsed configuration that can still tell where each key stands, for one-line messages."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradscope.errors import GradscopeError


class Document:
    """A parsed file that can still tell where each key stands."""

    path: Path
    content: Mapping[str, Any]

    def place(self, keys: tuple[str, ...]) -> tuple[int, int]:
        raise NotImplementedError

    def error(self, keys: tuple[str, ...], message: str) -> GradscopeError:
        line, column = self.place(keys)
        message, _, help = message.partition("\n")
        return GradscopeError(f"{self.path}:{line}:{column}: {message}", help=help)


class Yaml(Document):
    def __init__(self, path: Path, text: str) -> None:
        import yaml

        self.path = path
        loader = yaml.SafeLoader(text)
        try:
            self._root: Any = loader.get_single_node()
            self._refuse_twins()
            self.content = loader.construct_document(self._root) if self._root else {}
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
            raise GradscopeError(f"{path}{place}: {error.problem or error.context}") from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise GradscopeError(f"{path}: not YAML: {error}") from None
        finally:
            loader.dispose()
        if not isinstance(self.content, dict):
            raise GradscopeError(f"{path}:1:1: expected keys with values", help="such as steps: 10")
        self.content = {str(key): value for key, value in self.content.items()}

    def _refuse_twins(self) -> None:
        """YAML would silently take the last of two equal keys."""
        seen = set()
        for key, _ in self._root.value if self._root and self._root.id == "mapping" else ():
            if not isinstance(key.value, str):
                continue
            if key.value in seen:
                mark = key.start_mark
                place = f"{self.path}:{mark.line + 1}:{mark.column + 1}"
                raise GradscopeError(f"{place}: {key.value} is given twice")
            seen.add(key.value)

    def place(self, keys: tuple[str, ...]) -> tuple[int, int]:
        line, column = 0, 0
        node = self._root
        for key in keys:
            pairs = node.value if node.id == "mapping" else ()
            found = next((pair for pair in pairs if pair[0].value == key), None)
            if found is None:
                break
            line, column = found[0].start_mark.line, found[0].start_mark.column
            node = found[1]
        return line + 1, column + 1


class Toml(Document):
    def __init__(self, path: Path, text: str) -> None:
        self.path, self._text = path, text
        try:
            self.content = tomllib.loads(text).get("tool", {}).get("gradscope", {})
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
            place = f":{found[1]}:{found[2]}" if found else ""
            raise GradscopeError(f"{path}{place}: {re.sub(r' [(]at .*', '', str(error))}") from None

    def place(self, keys: tuple[str, ...]) -> tuple[int, int]:
        """tomllib keeps no places: the first line after the table's head that sets the key."""
        lines = self._text.splitlines()
        start = next(
            (i for i, line in enumerate(lines) if line.strip().startswith("[tool.gradscope")), 0
        )
        for key in reversed(keys):
            pattern = re.compile(rf"[\s\[{{,]*(?:tool\.gradscope\.)?[\"']?{re.escape(key)}\b")
            for number, line in enumerate(lines[start:], start + 1):
                if pattern.match(line):
                    return number, line.index(key) + 1
        return start + 1, 1
