"""What opens files in native code by their name, so that no audit event tells of it."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

from gradscope.record.stand_ins import runs_ops, without_us

Place = Callable[[Any], Any]  # where to write what the program calls so
_Wanted = dict[str, Callable[[Any, Place, Place], None]]  # by module: what changes it


class _Places:
    """Where files are now: a copy of the program has what was put around its writers before. What
    a statement of SQL opens is only told: nobody can put another place into it."""

    is_asked = False
    written: Place = staticmethod(lambda path: path)
    read: Place = staticmethod(lambda path: path)
    attached: Callable[[str | None], None] = staticmethod(lambda name: None)


def hear_attached(hear: Callable[[str | None], None]) -> None:
    """Tell of each database that another one is about to open (`ATTACH`, `VACUUM INTO`); None where
    a parameter names it."""
    _Places.attached = staticmethod(hear)


def install(now_written: Place, now_read: Place = lambda path: path) -> None:
    """Ask these for each file's place before it is opened. Not undone: this process runs one
    program."""
    _Places.written, _Places.read = staticmethod(now_written), staticmethod(now_read)
    if _Places.is_asked:
        return
    _Places.is_asked = True

    def written(path: Any) -> Any:
        return _Places.written(path)

    def read(path: Any) -> Any:
        return _Places.read(path)

    library: Any = torch._C
    for owner, name, number, place in (
        (library, "PyTorchFileWriter", 0, written),  # torch.save
        (library, "PyTorchFileReader", 0, read),
        (library.ScriptModule, "save", 1, written),  # torch.jit.save
        (library.ScriptModule, "_save_for_mobile", 1, written),
        (library.ScriptFunction, "save", 1, written),
        (library, "import_ir_module", 1, read),  # torch.jit.load
        (library, "_load_for_lite_interpreter", 0, read),
        (library._autograd._ProfilerResult, "save", 1, written),  # export_chrome_trace
        (torch.profiler.profiler, "_add_execution_trace_observer", 0, written),
    ):
        if hasattr(owner, name):
            setattr(owner, name, _placed(getattr(owner, name), number, place))
    storage: Any = torch.UntypedStorage
    from_file = storage.from_file

    @wraps(from_file)
    def mapped(filename: Any, shared: bool = False, *args: Any, **kwargs: Any) -> Any:
        """`torch.load` with mmap=True."""
        place = written if shared else read
        return from_file(place(filename), shared, *args, **kwargs)

    storage.from_file = staticmethod(mapped)
    from_file_at_once = torch.from_file

    @wraps(from_file_at_once)
    def made_of(
        filename: Any, shared: bool | None = None, size: int | None = 0, **kwargs: Any
    ) -> Any:
        place = written if shared else read
        return from_file_at_once(place(filename), shared, size, **kwargs)

    torch.from_file = made_of
    if hasattr(os, "mkfifo"):
        os.mkfifo = _placed(os.mkfifo, 0, written)
    wanted: _Wanted = {
        "h5py.h5f": _place_hdf5,
        "safetensors._safetensors_rust": _place_safetensors,
        "sqlite3.dbapi2": _watch_databases,
    }
    for name, put in wanted.items():
        if name in sys.modules:
            put(sys.modules[name], written, read)
    sys.meta_path.insert(0, _Before(wanted, written, read))


class _Before:
    """Finds the modules that open files, so that each is changed once it is there and before
    anybody has it."""

    def __init__(self, wanted: _Wanted, *places: Place) -> None:
        self._wanted, self._places = wanted, places

    def find_spec(self, name: str, *rest: Any) -> Any:
        put = self._wanted.pop(name, None)
        spec = find_spec(name) if put is not None else None
        if put is None or spec is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            put(module, *self._places)

        loader.exec_module = exec_module
        return spec


def _place_hdf5(library: Any, written: Place, read: Place) -> None:
    create, open_ = library.create, library.open

    @wraps(create)
    def created(name: Any, *args: Any, **kwargs: Any) -> Any:
        return create(os.fsencode(written(os.fsdecode(name))), *args, **kwargs)

    @wraps(open_)
    def opened(name: Any, flags: int = library.ACC_RDWR, *args: Any, **kwargs: Any) -> Any:
        place = written if flags & library.ACC_RDWR else read
        return open_(os.fsencode(place(os.fsdecode(name))), flags, *args, **kwargs)

    library.create, library.open = created, opened


def _place_safetensors(library: Any, written: Place, read: Place) -> None:
    package = [one for name, one in sys.modules.items() if name.startswith("safetensors.")]
    for name, number, place in (("serialize_file", 1, written), ("safe_open", 0, read)):
        original = getattr(library, name)
        placed = _placed(original, number, place)
        for module in (library, sys.modules.get("safetensors"), *package):
            if vars(module).get(name) is original:
                setattr(module, name, placed)


def _watch_databases(library: Any, written: Place, read: Place) -> None:
    connect, kind = library.connect, library.Connection

    def may(action: int, name: str | None, *_: Any) -> int:
        if action == library.SQLITE_ATTACH:
            _Places.attached(name)
        return int(library.SQLITE_OK)

    @wraps(connect)
    def connected(*args: Any, **kwargs: Any) -> Any:
        with without_us:
            connection = connect(*args, **kwargs)
        if isinstance(connection, kind):
            with suppress(library.Error):  # its class has closed it, or not opened it
                kind.set_authorizer(connection, may)
        return connection

    runs_ops(connected)
    others: list[Any] = [sys.modules.get(name) for name in ("sqlite3", "_sqlite3")]
    for module in (library, *others):
        if module is not None and vars(module).get("connect") is connect:
            module.connect = connected


def _placed(original: Callable[..., Any], number: int, place: Place) -> Callable[..., Any]:
    """Of a function that takes a path, or an open file, as its argument of that number, or by its
    name."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > number and isinstance(args[number], str | os.PathLike):
            path = place(args[number])
            args = (*args[:number], path, *args[number + 1 :])
        elif isinstance(kwargs.get("filename"), str | os.PathLike):
            kwargs["filename"] = place(kwargs["filename"])
        with without_us:
            return original(*args, **kwargs)

    runs_ops(call)
    return call
