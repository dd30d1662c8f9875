# SPDX-License-Identifier: Apache-2.0
"""Headers of host libraries that are not installed, stood in for so that device code compiles without them.

Nothing of a library is known here but the names of its headers and how its names are spelt. What a stand-in declares
is what the sources use: every name takes any arguments and gives a value that converts to any type. So launches in
host code are still read, and the kernels that they instantiate are compiled. Nothing is defined: a program that really
calls such a library does not link.

cuBLAS is the exception: its matrix products are declared as they are, and a program that calls them runs. A function
of it that is not among them says its name when it is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from porter.build import cublas
from porter.build.cache import digest
from porter.build.closure import INCLUDE, closure
from porter.diagnostics import Code, Diagnostic

_HOST_HEADER = re.compile(
    r"(?:torch|ATen|c10|caffe2|pybind11|tvm|dlpack|nvtx3|spdlog|fmt|glog|gtest|gflags|xla|jaxlib|cudnn_frontend)/.*"
    r"|Python\.h|mpi\.h|nvml\.h|nvToolsExt\w*\.h|nvrtc\.h|nvJitLink\.h"
    r"|(?:cublas|cudnn|nccl|cusparse|cusolver|cufft|cutensor|nvshmem_host|cupti)\w*\.(?:h|hpp)"
    r"|(?:curand|cuda_profiler_api|cudaProfiler)\.h"
)
"""Spellings of includes whose libraries only host code calls."""

_NAMESPACES = (
    "torch", "at", "c10", "caffe2", "pybind11", "py", "tvm", "dlpack", "nvtx3", "spdlog", "fmt", "google", "testing",
    "xla", "cudnn_frontend",
)  # fmt: skip

_MENTIONS = (
    *(f"{name}::" for name in _NAMESPACES), "TORCH_", "AT_", "C10_", "PYBIND11_", "TVM", "NVTX", "XLA_", "SPDLOG_",
    "DLD", "kDL", "cublas", "cudnn", "nccl", "nvtx", "nvrtc", "nvml", "curand", "cusparse", "cusolver", "cufft",
    "cutensor", "nvshmem", "cupti", "MPI_", "PyObject",
)  # fmt: skip
"""Of these a file that uses a library holds one; of a large unit, most files hold none."""

_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_ANYWHERE = re.compile(r"\b(?:TORCH|AT|C10|PYBIND11|TVM|NVTX3?|XLA|SPDLOG)_[A-Z0-9_]+\b")
_CALLED = re.compile(rf"({_ANYWHERE.pattern})\s*\(")
_MODULE = re.compile(r"(?:PYBIND11_MODULE|TORCH_LIBRARY\w*|TVM_FFI_STATIC_INIT_BLOCK)")
_QUALIFIED = re.compile(r"(?<![\w:.>])(?:::)?(\w+(?:\s*::\s*[A-Za-z_]\w*)+)\s*(<|\(|\{)?")
_C_NAMES = (
    r"(?:cublas|cudnn|nccl|nvtx|nvrtc|nvml|curand|cusparse|cusolver|cufft|cutensor|nvshmem|cupti|MPI_|Py|DL|TVMFFI)"
    r"[A-Z_]\w*"
)
_C_NAME = re.compile(rf"\b({_C_NAMES})\b\s*(\()?")
_C_CONSTANT = re.compile(r"\b((?:CUBLAS|CUDNN|NCCL|NVTX|NVRTC|NVML|CURAND|CUSPARSE|CUTENSOR|MPI)_[A-Z0-9_]+|kDL\w+)\b")
_LIBRARY_CONSTANT = re.compile(
    r"k[A-Z]\w*|nccl(?:Success|Sum|Prod|Max|Min|Avg|Half|Char|Double|B?[Ff]loat\w*|U?[Ii]nt\d*)"
)
_MEMBER = re.compile(r"(?:\.|->)\s*(?:template\s+)?([A-Za-z_]\w*)\s*(<|\()?")
_OWN_C_NAME = re.compile(
    rf"\b(?:using|struct|class|union|enum|namespace)\s+({_C_NAMES})\s*(?:[:{{;=]|final\b)"
    rf"|\btypedef\b[^;]*?\b({_C_NAMES})\s*;"
    rf"|(?<!\w)(?<!define )([A-Za-z_]\w*)(?:\s*<[^;{{}}]*>)?(?:\s+|\s*[*&]+\s*)({_C_NAMES})\s*(?=[;={{\[,)])"
    rf"|(?<!\w)(?<!define )([A-Za-z_]\w*)(?:\s*<[^;{{}}]*>)?(?:[*&]+\s*|\s+)({_C_NAMES})\s*(?=\()"
    rf"|\(\s*\*\s*({_C_NAMES})\s*\)\s*\("
)
_NO_TYPES = {
    "return", "else", "do", "case", "goto", "throw", "new", "delete", "co_return", "co_yield", "co_await", "and", "or",
    "not", "xor", "typename", "sizeof", "const", "volatile", "static", "extern", "inline", "constexpr", "constinit",
    "mutable", "friend", "virtual", "explicit", "thread_local", "register", "using",
}  # fmt: skip
"""Words before a name that do not make a declaration of it."""
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_OPENED = re.compile(r"\b(?:using\s+namespace|namespace\s+\w+\s*=)\s+(?:::)?([\w:]+)\s*;")
_STANDARD = {"optional", "nullopt", "tuple", "vector", "string", "make_tuple"}
_ALIAS = re.compile(r"\bnamespace\s+(\w+)\s*=\s*(?:::)?([\w:]+)\s*;")


@dataclass(frozen=True)
class HostHeaders:
    """Stand-ins: `files` by the spelling of the include. They are searched last, so that an installed header wins."""

    files: dict[str, str]

    FOLDER = "porter_host_headers"

    @property
    def flags(self) -> list[str]:
        """Options for nvcc, run in the directory that `write` got."""
        return ["-Xcompiler", "-idirafter", "-Xcompiler", self.FOLDER] if self.files else []

    @property
    def texts(self) -> list[str]:
        """What a result depends on."""
        return [f"{name}\0{text}" for name, text in self.files.items()]

    def write(self, directory: Path) -> None:
        for name, text in self.files.items():
            target = directory / self.FOLDER / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")

    def used(self, read: Iterable[Path]) -> tuple[str, ...]:
        """Which includes the stand-ins answered, by the files that the compiler read."""
        names = []
        for path in read:
            parts = path.parts
            if self.FOLDER in parts:
                names.append("/".join(parts[parts.index(self.FOLDER) + 1 :]))
        return tuple(sorted(n for n in set(names) if n not in (_COMMON, cublas.HEADER.name)))


_COMMON = "porter_host_library.h"


def generator_digest() -> str:
    """Of what stand-ins are made by."""
    return digest([Path(__file__).read_bytes(), cublas.HEADER.read_bytes()])


def host_headers(source: Path, include_dirs: Sequence[Path] = (), quote_dirs: Sequence[Path] = ()) -> HostHeaders:
    """Stand-ins for the host headers that a translation unit may include, made from how its files use them."""
    read = closure(source, include_dirs, quote_dirs)
    texts = list(read.texts.values())
    wanted = {name for name in read.absent if _HOST_HEADER.fullmatch(name)}
    if not wanted:
        return HostHeaders({})
    # gcc takes files of equal content for one file, and would name only the first
    texts = [text for i, text in enumerate(texts) if i == 0 or any(word in text for word in _MENTIONS)]
    files = {name: f'#pragma once  // {name}\n#include "{_COMMON}"\n' for name in sorted(wanted)}
    products = not wanted.isdisjoint(cublas.INCLUDES)
    if products:
        files[cublas.HEADER.name] = cublas.HEADER.read_text("utf-8")
    return HostHeaders({**files, _COMMON: library_text(texts, products)})


def library_text(texts: Sequence[str], products: bool = False) -> str:
    """C++ that declares the library names that `texts` use; with `products`, those of cuBLAS as they are."""
    plain = [_COMMENT.sub(lambda m: '""' if m[0].startswith('"') else " ", INCLUDE.sub("", t)) for t in texts]
    defined = {name for text in texts for name in _DEFINED.findall(text)}
    aliases = {name: target for text in texts for name, target in _ALIAS.findall(text)}
    parts = [_HEAD % _members(plain)]
    parts += _macros(plain, defined)
    if products:
        defined |= cublas.declared()
        parts += [f'#include "{cublas.HEADER.name}"', f'extern "C" void {cublas.UNANSWERED}(const char*);']
    parts += _c_names(plain, defined, products)
    parts += _namespaces(plain, aliases)
    return "\n".join(parts) + "\n"


_HEAD = """\
#pragma once
#include <cstddef>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <initializer_list>
#include <ios>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
namespace porter_host {
struct any;
using list = std::initializer_list<any>;
struct any {
    any();
    any(const any&);
    template <class T, class = std::enable_if_t<!std::is_base_of_v<any, std::decay_t<T>>>> any(T&&);
    template <class A, class B, class... C> any(A&&, B&&, C&&...);
    any& operator=(const any&);
    template <class T> any& operator=(T&&);
    template <class T, class = std::enable_if_t<!std::is_base_of_v<any, T>>> operator T() const;
    template <class... A> any operator()(A&&...) const;
    template <class... A> any operator()(list, A&&...) const;
    template <class T> any operator[](T&&) const;
    any operator*() const;
    const any* operator->() const;
    any* begin() const;
    any* end() const;
    template <class T> any& operator<<(T&&);
%s};
#define PORTER_HOST_OPERATOR(op) \\
    template <class A, class B, class = std::enable_if_t<std::is_base_of_v<any, std::decay_t<A>> || \\
                                                         std::is_base_of_v<any, std::decay_t<B>>>> \\
    any operator op(A&&, B&&);
PORTER_HOST_OPERATOR(+) PORTER_HOST_OPERATOR(-) PORTER_HOST_OPERATOR(*) PORTER_HOST_OPERATOR(/)
PORTER_HOST_OPERATOR(%%) PORTER_HOST_OPERATOR(&) PORTER_HOST_OPERATOR(|)
#undef PORTER_HOST_OPERATOR
#define PORTER_HOST_COMPARISON(op) \\
    template <class A, class B, class = std::enable_if_t<std::is_base_of_v<any, std::decay_t<A>> || \\
                                                         std::is_base_of_v<any, std::decay_t<B>>>> \\
    bool operator op(A&&, B&&);
PORTER_HOST_COMPARISON(==) PORTER_HOST_COMPARISON(!=) PORTER_HOST_COMPARISON(<)
PORTER_HOST_COMPARISON(>) PORTER_HOST_COMPARISON(<=) PORTER_HOST_COMPARISON(>=)
#undef PORTER_HOST_COMPARISON
template <class S, class A,
          class = std::enable_if_t<std::is_base_of_v<std::ios_base, S> && std::is_base_of_v<any, std::decay_t<A>>>>
S& operator<<(S&, A&&);
#define PORTER_HOST_MODULE(...) PORTER_HOST_MODULE_(__VA_ARGS__, m)
#define PORTER_HOST_MODULE_(number, name, argument, ...) \\
    static void porter_host_module##number(::porter_host::any argument)
}  // namespace porter_host
struct DLDataType {
    std::uint8_t code, bits;
    std::uint16_t lanes;
};
struct DLDevice {
    int device_type;
    std::int32_t device_id;
};
"""

_WHOLE_NUMBERS = {"size", "stride", "numel", "dim", "ndim", "element_size", "nbytes", "itemsize", "get_device"}
_POINTERS = {"data_ptr", "const_data_ptr", "mutable_data_ptr", "data"}
_OWN = {"begin", "end"}
_STATUS = re.compile(
    r"(?:cublas|cudnn|nccl|nvrtc|nvml|curand|cusparse|cusolver|cufft|cutensor|cupti|MPI_)(?!\w*String)\w*"
)
"""Functions that return a status, which is a number."""
_STATUS_TYPE = re.compile(r"\w*(?:Status|Result)_t|nvrtcResult|CUptiResult")
_EXPRESSION = re.compile(r"CHECK|THROW|ASSERT|DISPATCH|WARN|ERROR|LOG")
"""In the names of macros that stand in code only."""
_KEYWORDS = {
    "operator", "template", "new", "delete", "if", "for", "while", "this", "any", "list", "const", "void", "bool",
    "char", "short", "int", "long", "float", "double", "unsigned", "signed", "auto", "asm", "decltype", "sizeof",
    "alignof", "return", "default", "global",
}  # fmt: skip


def _members(plain: Sequence[str]) -> str:
    methods: set[str] = set()
    fields: set[str] = set()
    for text in plain:
        for name, opened in _MEMBER.findall(text):
            (methods if opened else fields).add(name)
    # a field can be called too
    methods -= fields - _POINTERS - _WHOLE_NUMBERS
    lines = []
    for name in sorted(methods - _KEYWORDS - _OWN):
        if name in _POINTERS:
            lines += [f"template <class T> T* {name}() const;", f"void* {name}() const;"]
            continue
        result = "std::int64_t" if name in _WHOLE_NUMBERS else "any"
        lines.append(f"template <class... A> {result} {name}(A&&...) const;")
        if name not in _WHOLE_NUMBERS:
            lines.append(f"template <class... A> any {name}(list, A&&...) const;")
            lines.append(f"template <class T, class... A> T {name}(A&&...) const;")
    lines += [f"static any& {name};" for name in sorted(fields - methods - _KEYWORDS - _OWN)]
    return "".join(f"    {line}\n" for line in lines)


def _macros(plain: Sequence[str], defined: set[str]) -> list[str]:
    """A macro with arguments that begins a line without indentation stands among declarations, others in code."""
    called: dict[str, bool] = {}
    words: set[str] = set()
    for text in plain:
        words |= set(_ANYWHERE.findall(text))
        for match in _CALLED.finditer(text):
            at_line_start = text[match.start() - 1 : match.start()] in ("", "\n")
            called[match[1]] = called.get(match[1], False) or at_line_start
    lines = []
    for name in sorted(words - defined):
        if _MODULE.fullmatch(name):
            lines.append(f"#define {name}(...) PORTER_HOST_MODULE(__COUNTER__, __VA_ARGS__)")
        elif name not in called:
            lines.append(f"#define {name}")
        elif called[name] and not _EXPRESSION.search(name):
            lines.append(f'#define {name}(...) static_assert(true, "")')
        else:
            # a dispatch gets code as an argument, which has to be read
            given = "__VA_ARGS__" if "DISPATCH" in name else ""
            lines.append(f"#define {name}(...) ::porter_host::any({given})")
    return lines


def _c_names(plain: Sequence[str], defined: set[str], products: bool) -> list[str]:
    functions: set[str] = set()
    others: set[str] = set()
    constants: set[str] = set()
    for text in plain:
        for name, opened in _C_NAME.findall(text):
            (functions if opened and not name.endswith("_t") else others).add(name)
        constants |= set(_C_CONSTANT.findall(text))
        defined = defined | _own_c_names(text)
    constants |= {name for name in others if _LIBRARY_CONSTANT.fullmatch(name)}
    lines = []
    for name in sorted(functions - defined):
        result, body = "int" if _STATUS.fullmatch(name) else "::porter_host::any", ";"
        if products and name.startswith("cublas"):
            result, body = (
                "cublasStatus_t",
                f' {{ {cublas.UNANSWERED}("{name}"); return CUBLAS_STATUS_NOT_SUPPORTED; }}',
            )
        lines.append(f"template <class... A> {result} {name}(A&&...){body}")
    types = others - functions - constants - defined - {"DLDataType", "DLDevice"}
    types, values = _types_and_values(plain, types)
    lines += [f"extern ::porter_host::any {name};" for name in sorted(values)]
    lines += [f"using {name} = int;" if _STATUS_TYPE.fullmatch(name) else _class(name) for name in sorted(types)]
    if constants - defined:
        lines.append(f"enum porter_host_constant {{ {', '.join(sorted(constants - defined))} }};")
    return lines


def _own_c_names(text: str) -> set[str]:
    """Names spelt like a library's that a file declares itself: types, variables, functions and pointers to such."""
    found = set()
    for match in _OWN_C_NAME.finditer(text):
        named, aliased, of_value, value, of_function, function, pointer = match.groups()
        if (of_value or of_function) not in _NO_TYPES:
            found.add(named or aliased or value or function or pointer)
    return found


def _types_and_values(plain: Sequence[str], names: set[str]) -> tuple[set[str], set[str]]:
    """A type is followed by what it declares, by `*`, `&` or braces, or stands in angle brackets."""
    types = {name for name in names if name.endswith("_t")}
    for name in names - types:
        used = re.compile(rf"\b{name}\b(?:\s*[&*{{]|\s+[A-Za-z_])|<\s*{name}\s*>")
        if any(used.search(text) for text in plain):
            types.add(name)
    return types, names - types


def _namespaces(plain: Sequence[str], aliases: Mapping[str, str]) -> list[str]:
    uses: dict[tuple[str, ...], set[str]] = {}
    opened: set[tuple[str, ...]] = set()
    for text in plain:
        for name, after in _QUALIFIED.findall(text):
            path = tuple(re.split(r"\s*::\s*", name))
            path = (*aliases.get(path[0], path[0]).split("::"), *path[1:])
            if path[0] in _NAMESPACES:
                uses.setdefault(path, set()).add(after)
        for name in _OPENED.findall(text):
            path = tuple(name.split("::"))
            opened |= {path[:i] for i in range(1, len(path) + 1) if path[0] in _NAMESPACES}
    opened |= {path[:i] for path in uses for i in range(1, len(path))}
    classes = {path for path in opened if path[-1][:1].isupper()}
    spaces = {path for path in opened if not any(path[:i] in classes for i in range(1, len(path) + 1))}
    lines = [f"namespace {'::'.join(path)} {{}}" for path in sorted(spaces)]
    for path in sorted((set(uses) | classes) - spaces):
        if any(path[:i] in classes for i in range(1, len(path))):
            continue
        inside = {p[-1]: after for p, after in uses.items() if p[:-1] == path}
        declared = _declared(path[-1], uses.get(path, set()), inside)
        lines.append(f"namespace {'::'.join(path[:-1])} {{ {declared} }}")
    return lines


def _declared(name: str, after: set[str], inside: Mapping[str, set[str]]) -> str:
    """A class can be made of any arguments, so it also serves as a function."""
    if name in _STANDARD:
        return f"using std::{name};"
    if _LIBRARY_CONSTANT.fullmatch(name):
        return f"extern ::porter_host::any {name};"
    if name[:1].islower() and "(" in after:
        plain = f"template <class... A> ::porter_host::any {name}(A&&...);"
        listed = f"template <class... A> ::porter_host::any {name}(::porter_host::list, A&&...);"
        typed = f" template <class T, class... A> ::porter_host::any {name}(A&&...);" if "<" in after else ""
        return f"{plain} {listed}{typed}"
    head = "template <class...> " if "<" in after else ""
    body = "".join(f" static ::porter_host::any {member};" for member in sorted(inside))
    return f"{head}{_class(name, body)}"


def _class(name: str, body: str = "") -> str:
    any_value = "::porter_host::any"
    return f"struct {name} : {any_value} {{ using any::any; {name}(); {name}(const {any_value}&);{body} }};"


def host_headers_note(path: Path | str, stood_in: Iterable[str]) -> list[Diagnostic]:
    """What is said about headers of host libraries that were stood in for; nothing where there were none."""
    names = ", ".join(sorted(set(stood_in)))
    return [Diagnostic(Code.HOST_HEADERS, None, {"path": str(path), "headers": names})] if names else []
