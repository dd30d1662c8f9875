# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for packages that a kernel's file imports for its host side and that are not installed.

What a file does with such a package while it is imported (base classes, decorators, constants, annotations, keys of
dictionaries) works on a stand-in and means nothing. Code for the device comes from the DSL, so none of it is lost.
A file that says itself what to do without the package (`try: import torch` with an `except ImportError`) is told
that it is not there.
"""

from __future__ import annotations

import abc
import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import re
import sys
import types
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from porter.build.dsl_tries import prepared_lines

HOST_PACKAGES = {
    "torch": "tensors, custom operators and autograd around kernels",
    "tvm_ffi": "another calling convention of the host function",
    "triton": "kernels of its own, and its autotuner",
    "einops": "views of tensors on the host",
    "jax": "tensors and custom calls around kernels",
    "jax_tvm_ffi": "custom calls around kernels",
    "transformers": "models that use kernels",
    "nvMatmulHeuristics": "advice on tile shapes for a GPU that is asked at run time",
    "cloudpickle": "compiled kernels on disk",
}
"""Packages that never make device code with CuTe DSL, and what a kernel's file has them for."""

_NEW = "99.0.0"
"""The version that stand-ins have: an assertion on a minimum holds."""

_CAPABILITY = (9, 0)
"""The GPU that a kernel for Hopper was written for; the port of one takes the same way through its host code."""

_DTYPE = re.compile(r"(?:bfloat|float|u?int|complex|qu?int)\d+\w*|half|float|double|short|int|long|bool")
"""Names of PyTorch's element types."""


class _Stand(abc.ABCMeta):
    """What every name of an absent package is: a class, so that it can be a base, an annotation and a key; called,
    entered, indexed and computed with, it gives another one. As a decorator it leaves what it decorates."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or name.startswith("_abc_"):
            raise AttributeError(f"{cls.__name__} of a package that is not installed has no {name}")
        found = _stand_in(f"{cls.__qualname__}.{name}", cls.__module__)
        setattr(cls, name, found)
        return found

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if not cls.__dict__.get("_stands_in"):
            return super().__call__(*args, **kwargs)  # a class of the file itself
        if len(args) == 1 and not kwargs and _decorated(args[0]):
            return args[0]
        return _stand_in(f"{cls.__qualname__}()", cls.__module__)

    def __instancecheck__(cls, value: Any) -> bool:
        if (cls.__module__, cls.__qualname__) == ("torch", "dtype"):
            return isinstance(value, _Stand) and _DTYPE.fullmatch(value.__qualname__) is not None
        return super().__instancecheck__(value)

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __enter__(cls) -> Any:
        return cls

    def __exit__(cls, *what: object) -> None:
        return None

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __len__(cls) -> int:
        return 0

    def __bool__(cls) -> bool:
        return not cls.__qualname__.endswith(")")

    def __int__(cls) -> int:
        return 0

    def __index__(cls) -> int:
        return 0

    def __float__(cls) -> float:
        return 0.0

    def __repr__(cls) -> str:
        return f"<{cls.__module__}.{cls.__qualname__}, which is not installed>"


def _same(cls: Any, *others: Any) -> Any:
    return _stand_in(f"{cls.__qualname__}()", cls.__module__)


def _no(cls: Any, other: Any) -> bool:
    return False


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "xor", "lshift", "rshift"):
    setattr(_Stand, f"__{_name}__", _same)
    setattr(_Stand, f"__r{_name}__", _same)
for _name in ("neg", "pos", "abs", "invert"):
    setattr(_Stand, f"__{_name}__", _same)
for _name in ("lt", "le", "gt", "ge"):
    setattr(_Stand, f"__{_name}__", _no)


def _decorated(value: Any) -> bool:
    """Whether this is what a decorator gets: a function, a class, or a function in another decorator's wrapping."""
    if isinstance(value, _Stand):
        return not value.__dict__.get("_stands_in")
    return inspect.isroutine(value) or isinstance(value, type) or hasattr(value, "__wrapped__")


def _stand_in(name: str, module: str) -> _Stand:
    return _Stand(name.rpartition(".")[2], (), {"__qualname__": name, "__module__": module, "_stands_in": True})


class _Operator:
    """A function that was made an operator of PyTorch: it can be called, and told about its other forms."""

    def __init__(self, function: Any) -> None:
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in(f"operator.{name}", "torch")


def _custom_op(name: Any = None, function: Any = None, **_: Any) -> Any:
    return _Operator if function is None or isinstance(function, str) else _Operator(function)


_FLOATS = {
    "float64": (64, 53, 1024, -1022), "double": (64, 53, 1024, -1022), "float32": (32, 24, 128, -126),
    "float": (32, 24, 128, -126), "float16": (16, 11, 16, -14), "half": (16, 11, 16, -14),
    "bfloat16": (16, 8, 128, -126),
}  # fmt: skip
"""Bits, precision, and the bounds of the exponent."""


class _FloatLimits:
    """`torch.finfo`."""

    def __init__(self, dtype: Any = None) -> None:
        name = getattr(dtype, "__name__", "float32")
        self.bits, precision, high, low = _FLOATS.get(name, _FLOATS["float32"])
        self.eps = 2.0 ** (1 - precision)
        self.max = (2.0 - self.eps) * 2.0 ** (high - 1)
        self.min = -self.max
        self.tiny = self.smallest_normal = 2.0**low
        if name == "float8_e4m3fn":
            self.bits, self.eps, self.max, self.min, self.tiny = 8, 0.125, 448.0, -448.0, 2.0**-6
        elif name == "float8_e5m2":
            self.bits, self.eps, self.max, self.min, self.tiny = 8, 0.25, 57344.0, -57344.0, 2.0**-14


class _IntegerLimits:
    """`torch.iinfo`."""

    def __init__(self, dtype: Any = None) -> None:
        name = getattr(dtype, "__name__", "int64")
        known = {"uint8": 8, "int8": 8, "short": 16, "int16": 16, "int": 32, "int32": 32}
        self.bits = known.get(name, 64)
        unsigned = name.startswith("u")
        self.min = 0 if unsigned else -(2 ** (self.bits - 1))
        self.max = 2**self.bits - 1 if unsigned else 2 ** (self.bits - 1) - 1


_KNOWN: dict[str, Any] = {
    "torch.finfo": _FloatLimits,
    "torch.iinfo": _IntegerLimits,
    "torch.cuda.is_available": lambda *_: False,
    "torch.cuda.device_count": lambda *_: 0,
    "torch.cuda.get_device_capability": lambda *_, **__: _CAPABILITY,
    "torch.library.custom_op": _custom_op,
    "torch.library.triton_op": _custom_op,
    "torch.version.cuda": "13.0",
    "torch.version.hip": None,
}
"""Names whose value a file may look at while it is imported."""


class AbsentModule(types.ModuleType):
    """Stands for a package or module that is not installed."""

    def __getattr__(self, name: str) -> Any:
        full = f"{self.__name__}.{name}"
        if name == "__version__":
            return _NEW
        if name.startswith("__"):
            raise AttributeError(name)
        if full in _KNOWN:
            return _KNOWN[full]
        if any(known.startswith(full + ".") for known in _KNOWN):
            found: Any = AbsentModule(full)
        else:
            found = _stand_in(name, self.__name__)
        setattr(self, name, found)
        return found


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder: imports stand-ins for `HOST_PACKAGES`, and notes what else nobody found."""

    def __init__(self) -> None:
        self.missed: set[tuple[str, tuple[str, ...] | None]] = set()
        """Names that could not be imported, with the directories that were looked in (None: `sys.path`)."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        self.missed.add((fullname, None if path is None else tuple(path)))
        if fullname.partition(".")[0] not in HOST_PACKAGES:
            return None
        parent = sys.modules.get(fullname.rpartition(".")[0])
        if parent is not None and not isinstance(parent, AbsentModule):
            return None  # a module that an installed package does not have
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return AbsentModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        return None

    def install(self) -> None:
        """From now on imports find stand-ins."""
        sys.meta_path.append(self)
        plain_import, plain_find = builtins.__import__, importlib.util.find_spec

        def guarded_import(
            name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
        ) -> types.ModuleType:
            if level == 0 and self._is_absent(name) and _is_prepared(sys._getframe(1)):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return plain_import(name, globals, locals, fromlist, level)

        def find_spec(name: str, package: str | None = None) -> importlib.machinery.ModuleSpec | None:
            return None if self._is_absent(name) else plain_find(name, package)

        builtins.__import__ = guarded_import
        importlib.util.find_spec = find_spec

    def _is_absent(self, name: str) -> bool:
        root = name.partition(".")[0]
        if root not in HOST_PACKAGES:
            return False
        loaded = sys.modules.get(root)
        if loaded is not None:
            return isinstance(loaded, AbsentModule)
        return importlib.machinery.PathFinder.find_spec(root) is None


def _is_prepared(frame: types.FrameType) -> bool:
    """Whether the import that runs in this frame stands in a `try` that handles its failure."""
    line = frame.f_lineno
    return any(first <= line <= last for first, last in _prepared_lines(frame.f_code.co_filename))


@cache
def _prepared_lines(path: str) -> tuple[tuple[int, int], ...]:
    return prepared_lines(Path(path))
