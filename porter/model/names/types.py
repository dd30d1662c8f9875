# SPDX-License-Identifier: Apache-2.0
"""Types of parameters and expressions, as far as overload resolution needs them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from porter.model.functions import ClassScope

INTEGERS = {
    "bool": 0,
    "char": 1,
    "signed char": 1,
    "unsigned char": 1,
    "short": 2,
    "unsigned short": 2,
    "wchar_t": 4,
    "int": 4,
    "unsigned int": 4,
    "long": 8,
    "unsigned long": 8,
    "long long": 9,
    "unsigned long long": 9,
}
"""Integer types, with their rank in conversions."""
FLOATS = {"float": 1, "double": 2, "long double": 3}
_NAMED = {
    "size_t": "unsigned long",
    "ptrdiff_t": "long",
    "ssize_t": "long",
    "intptr_t": "long",
    "uintptr_t": "unsigned long",
    "int8_t": "signed char",
    "int16_t": "short",
    "int32_t": "int",
    "int64_t": "long",
    "uint8_t": "unsigned char",
    "uint16_t": "unsigned short",
    "uint32_t": "unsigned int",
    "uint64_t": "unsigned long",
    "uint": "unsigned int",
    "ushort": "unsigned short",
    "uchar": "unsigned char",
    "ulong": "unsigned long",
}
"""Typedefs of the toolkit and the C library on 64-bit Linux."""
_WITHOUT_NUMBER = "half __half half2 __half2 nv_bfloat16 __nv_bfloat16 nv_bfloat162 __nv_bfloat162 dim3 CUtensorMap"
_VECTORS = "float2 float3 float4 double2 int2 int3 int4 uint2 uint3 uint4 longlong2 ulonglong2"
DISTINCT = frozenset(f"{_WITHOUT_NUMBER} {_VECTORS} __nv_fp8_e4m3 __nv_fp8_e5m2 cudaStream_t".split())
"""Classes of the toolkit's headers: none is another type than itself."""
_SAME = {"__half": "half", "__half2": "half2", "nv_bfloat16": "__nv_bfloat16", "nv_bfloat162": "__nv_bfloat162"}
COMPONENTS = {"float": "float", "double": "double", "int": "int", "uint": "unsigned int", "longlong": "long long"}
COMPONENTS |= {"ulonglong": "unsigned long long"}
"""Element types of vector types, by the name without its count."""


@dataclass(frozen=True)
class Type:
    """A type. `name` is `int`, `float`, …, a class of the toolkit, or a name that the sources do not define.

    `kind`: `arithmetic`, `void`, `class` (of the sources), `toolkit`, `enum`, `null`, `name` (not defined here),
    `param` (a template parameter of the function it is read in) or `unknown`.
    """

    kind: str
    name: str = ""
    classes: tuple[ClassScope, ...] = ()
    """What a class type may be: the primary template and its specializations."""
    args: tuple[str, ...] | None = None
    """Template arguments of a class type, as texts; None if they are not known."""
    const: bool = False
    pointers: int = 0
    extents: tuple[int | str, ...] = ()
    """Extents of an array, outermost first: numbers where they are known, else texts."""
    to_array: bool = False
    """Whether `pointers` point to the array, as in `float (*)[8]`; else the array has pointers in it."""
    reference: str = ""
    lvalue: bool = True
    """Whether an expression of this type has an address."""

    @property
    def is_unknown(self) -> bool:
        return self.kind == "unknown"

    @property
    def is_array(self) -> bool:
        return bool(self.extents) and not self.to_array

    @property
    def is_pointer(self) -> bool:
        return self.pointers > 0 and not self.is_array

    @property
    def is_plain(self) -> bool:
        """Neither a pointer nor an array."""
        return not self.pointers and not self.extents

    @property
    def value(self) -> Type:
        return replace(self, reference="")

    def decayed(self) -> Type:
        """What the type becomes when it is passed by value."""
        if not self.is_array:
            return replace(self, reference="")
        rest = self.extents[1:]
        if self.pointers and rest:
            return UNKNOWN
        return replace(self, reference="", extents=rest, pointers=self.pointers + 1, to_array=bool(rest), lvalue=False)

    def pointed(self) -> Type:
        """The type of `*x` and `x[i]`."""
        if self.kind == "unknown":
            return self
        if self.is_array:
            return replace(self, extents=self.extents[1:], reference="", lvalue=True)
        if not self.pointers:
            return UNKNOWN
        left = self.pointers - 1
        return replace(self, pointers=left, to_array=self.to_array and left > 0, reference="", lvalue=True)

    def address(self) -> Type:
        """The type of `&x`."""
        if self.kind == "unknown" or (self.is_array and self.pointers):
            return UNKNOWN
        return replace(self, pointers=self.pointers + 1, to_array=bool(self.extents), reference="", lvalue=False)


UNKNOWN = Type("unknown")


def arithmetic(name: str, lvalue: bool = False) -> Type:
    return Type("arithmetic", name, lvalue=lvalue)


def builtin(text: str) -> Type | None:
    """The type that words such as `unsigned long long`, `uint32_t` or `float4` mean wherever they stand."""
    words = [w for w in text.split() if w not in ("const", "volatile", "constexpr", "typename", "struct")]
    joined = " ".join(words).removeprefix("std::").removeprefix("::")
    if joined in _NAMED:
        return Type("arithmetic", _NAMED[joined])
    if joined in FLOATS:
        return Type("arithmetic", joined)
    if joined == "void":
        return Type("void", "void")
    if joined in DISTINCT:
        return Type("toolkit", _SAME.get(joined, joined))
    if joined in ("nullptr_t",):
        return Type("null")
    parts = joined.split()
    if parts and all(p in ("unsigned", "signed", "int", "long", "short", "char", "bool") for p in parts):
        return Type("arithmetic", _integer(parts))
    return None


def _integer(words: list[str]) -> str:
    if "bool" in words:
        return "bool"
    unsigned = "unsigned " if "unsigned" in words else ""
    if "char" in words:
        return f"{unsigned}char" if unsigned else ("signed char" if "signed" in words else "char")
    if "short" in words:
        return f"{unsigned}short"
    return unsigned + ("long long" if words.count("long") > 1 else "long" if "long" in words else "int")
