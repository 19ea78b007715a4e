"""What opens files in native code by their name, so that no audit event tells of it."""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

Place = Callable[[Any], Any]  # where to write what the program calls so


def install(written: Place, read: Place = lambda path: path) -> None:
    """Ask `written` and `read` for each file's place before it is opened. Not undone: this process
    runs one program."""
    library: Any = torch._C
    storage: Any = torch.UntypedStorage
    library.PyTorchFileWriter = _placed(library.PyTorchFileWriter, 0, written)  # torch.save
    library.ScriptModule.save = _placed(library.ScriptModule.save, 1, written)  # torch.jit.save
    from_file = storage.from_file

    @wraps(from_file)
    def mapped(filename: Any, shared: bool = False, *args: Any, **kwargs: Any) -> Any:
        """`torch.load` with mmap=True."""
        place = written if shared else read
        return from_file(place(filename), shared, *args, **kwargs)

    storage.from_file = staticmethod(mapped)
    if "h5py" in sys.modules:
        _place_hdf5(written, read)
    else:
        sys.meta_path.insert(0, _BeforeHdf5(written, read))


class _BeforeHdf5:
    """Finds no module, and is asked for that of h5py's files before anything opens one."""

    def __init__(self, written: Place, read: Place) -> None:
        self._places = written, read

    def find_spec(self, name: str, *rest: Any) -> None:
        if name == "h5py._hl.files" and "h5py.h5f" in sys.modules:
            sys.meta_path.remove(self)
            _place_hdf5(*self._places)


def _place_hdf5(written: Place, read: Place) -> None:
    library: Any = sys.modules["h5py.h5f"]
    create, open_ = library.create, library.open

    @wraps(create)
    def created(name: Any, *args: Any, **kwargs: Any) -> Any:
        return create(os.fsencode(written(os.fsdecode(name))), *args, **kwargs)

    @wraps(open_)
    def opened(name: Any, flags: int = library.ACC_RDWR, *args: Any, **kwargs: Any) -> Any:
        place = written if flags & library.ACC_RDWR else read
        return open_(os.fsencode(place(os.fsdecode(name))), flags, *args, **kwargs)

    library.create, library.open = created, opened


def _placed(original: Callable[..., Any], number: int, place: Place) -> Callable[..., Any]:
    """Of a function that takes a path, or an open file, as its argument of that number."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > number and isinstance(args[number], str | os.PathLike):
            path = place(args[number])
            args = (*args[:number], path, *args[number + 1 :])
        return original(*args, **kwargs)

    return call
