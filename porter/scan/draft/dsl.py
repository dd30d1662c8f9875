# SPDX-License-Identifier: Apache-2.0
"""Drafts of cases for kernels in CuTe DSL: from the parameters of the entry, and what docstrings say of shapes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import libcst as cst

from porter.diagnostics.python_text import parse_python
from porter.lang.python import spelled, walk
from porter.scan.draft.draft import Draft
from porter.scan.draft.references import ATTENTION_FILE

_SHAPE = r"\b{name}\b\s*(?:is|:|=|of shape|has shape)?\s*\(([A-Za-z]\w*(?:\s*,\s*[A-Za-z]\w*)*)\)"
_DTYPES = (("Float8E5M2", "f8e5m2"), ("Float8", "f8e4m3"), ("Int8", "s8"), ("Uint8", "u8"), ("BFloat16", "bf16"),
           ("TFloat32", "tf32"), ("Float16", "f16"))  # fmt: skip
_RUNTIME = {"Float32": "f32", "Float64": "f64", "Int32": "s32", "Int64": "s64", "Uint32": "u32", "Boolean": "bool"}
_SIZES = {"M": 256, "N": 256, "K": 320, "L": 1, "S": 192, "D": 64, "H": 2, "B": 2}
_TILE, _CLUSTER = [128, 128, 64], [1, 1, 1]
_EXACT = re.compile(r"\bexp2?\b|\btanh\b|\brsqrt\b|\berf\b|\blog2?\b|mufu")


@dataclass
class _Entry:
    """What is called: a function or a class with its constructor."""

    name: str
    call: cst.FunctionDef
    init: cst.FunctionDef | None = None
    doc: str = ""
    names: list[str] = field(default_factory=list)


def entries(source: str) -> list[str]:
    """Names of what a file has to call."""
    return [e.name for e in _entries(source)]


def _entries(source: str) -> list[_Entry]:
    tree = parse_python(source)
    module_doc = tree.get_docstring()
    found = []
    for node in tree.body:
        if isinstance(node, cst.ClassDef):
            methods = {m.name.value: m for m in node.body.body if isinstance(m, cst.FunctionDef)}
            call = methods.get("__call__")
            if call is not None and _is_jit(call):
                doc = "\n".join(filter(None, [module_doc, node.get_docstring(), call.get_docstring()]))
                found.append(_Entry(node.name.value, call, methods.get("__init__"), doc))
        elif isinstance(node, cst.FunctionDef) and _is_jit(node) and _launches(node):
            doc = "\n".join(filter(None, [module_doc, node.get_docstring()]))
            found.append(_Entry(node.name.value, node, None, doc))
    return found


def _launches(node: cst.FunctionDef) -> bool:
    called = (n.func for n in walk(node) if isinstance(n, cst.Call))
    return any(isinstance(f, cst.Attribute) and f.attr.value == "launch" for f in called)


def _is_jit(node: cst.FunctionDef) -> bool:
    return any(spelled(d.decorator).split("(")[0].endswith("jit") for d in node.decorators)


def _arguments(node: cst.FunctionDef) -> list[tuple[str, str, bool]]:
    """Name, annotation and whether there is a default, without `self`."""
    return [
        (p.name.value, spelled(p.annotation.annotation) if p.annotation is not None else "", p.default is not None)
        for p in (*node.params.posonly_params, *node.params.params)
        if p.name.value != "self"
    ]


def draft(source: str, path: str, wanted: str | None) -> Draft | None:
    """The draft for an entry of a file, None if there is no such entry."""
    found = [e for e in _entries(source) if wanted in (None, e.name)]
    return _Maker(found[0], source, path).make() if found else None


class _Maker:
    def __init__(self, entry: _Entry, source: str, path: str) -> None:
        self.entry, self.source, self.path = entry, source, path
        self.draft = Draft()
        self.constants: dict[str, Any] = {}
        self.tensors: dict[str, tuple[str, ...]] = {}
        self.dtype = next((d for word, d in _DTYPES if word in source), "f16")

    def make(self) -> Draft:
        fields = self.draft.fields
        call = [self._argument(*a) for a in _arguments(self.entry.call)]
        while call and call[-1] is _LEFT_OUT:
            call.pop()
        init = self._init()
        self._shapes()
        fields |= {"version": 1, "kernel": PurePath(self.path).name, "entry": self.entry.name}
        if self.constants:
            fields["constants"] = self.constants
        used = {s for shape in self.tensors.values() for s in shape} | {v for v in init.values() if isinstance(v, str)}
        fields["sizes"] = {n: v for n, v in _SIZES.items() if n in used} | {
            s: 128 for s in sorted(used) if s not in _SIZES and s.isidentifier() and "." not in s and s in self._all()
        }
        fields["dsl"] = {**({"init": init} if init else {}), "call": [None if c is _LEFT_OUT else c for c in call]}
        if init:
            self.draft.guess("dsl", "how it is constructed: any arguments that it takes will do")
        reference = self._reference()
        fields["tensors"] = {name: self._tensor(name, shape) for name, shape in self.tensors.items()}
        fields["reduction"] = reference[1]
        fields["reference"] = reference[0]
        self.draft.guess("reference", reference[2])
        fields["accumulate"] = "s32" if self.dtype in ("s8", "u8") else "f32"
        if _EXACT.search(self.source):
            fields["exact"] = False
        return self.draft

    def _all(self) -> set[str]:
        return {s for shape in self.tensors.values() for s in shape}

    # --- Arguments

    def _argument(self, name: str, annotation: str, has_default: bool) -> Any:
        if "CUstream" in annotation or name == "stream":
            return "stream"
        if "Tensor" in annotation or (not annotation and f"{name}.element_type" in self.source):
            if has_default:
                return _LEFT_OUT
            self.tensors[name] = ()
            return name
        if has_default:
            return _LEFT_OUT
        kind = next((t for word, t in _RUNTIME.items() if re.search(rf"\b{word}\b", annotation)), None)
        if kind in ("f32", "f64"):
            self.constants[name] = 0.5
            return {"runtime": name, "type": kind}
        if kind is not None:
            self.draft.guess("dsl", f"the value of {name}")
            return {"runtime": 1, "type": kind}
        self.draft.guess("dsl", f"the value of {name}")
        return self._chosen(name, annotation)

    def _init(self) -> dict[str, Any]:
        if self.entry.init is None:
            return {}
        given = _arguments(self.entry.init)
        return {name: self._chosen(name, kind) for name, kind, has_default in given if not has_default}

    def _chosen(self, name: str, annotation: str) -> Any:
        """A value for a compile-time argument, by its name and annotation."""
        count = annotation.count("int") if "uple" in annotation else 3 if name.endswith("mnk") else 2
        if "dtype" in name or "Numeric" in annotation:
            if "acc" in name:
                return "cutlass.Int32" if self.dtype in ("s8", "u8") else "cutlass.Float32"
            return "cutlass.BFloat16" if self.dtype == "bf16" else "cutlass.Float16"
        if "cluster" in name:
            return _CLUSTER[:count]
        if "tile" in name or "block_shape" in name:
            return _TILE[:count]
        if "head_dim" in name:
            return "D"
        if annotation == "bool":
            return False
        if annotation == "str":
            words = re.findall(rf"{name}\s*(?:==|in)\s*\(?\s*[\"']([\w-]+)[\"']", self.source)
            return words[0] if words else ""
        return 128 if annotation == "int" else 1

    # --- Shapes

    def _shapes(self) -> None:
        said = True
        for name in self.tensors:
            match = re.search(_SHAPE.format(name=name), self.entry.doc, re.IGNORECASE)
            if match is not None:
                self.tensors[name] = tuple(s.strip() for s in match.group(1).split(","))
        if not all(self.tensors.values()):
            said = not self.tensors
            self._usual()
        if not said:
            self.draft.guess("tensors", "shapes and number formats, by the names of the parameters")
        else:
            self.draft.guess("tensors", "number formats")

    def _usual(self) -> None:
        """Shapes by names: those of a product, of attention."""
        known = next((len(s) for s in self.tensors.values() if s), 3 if re.search(r"bidz|\bL\b", self.source) else 2)
        product = {"a": ("M", "K", "L"), "b": ("N", "K", "L"), "c": ("M", "N", "L"), "d": ("M", "N", "L")}
        for name, shape in self.tensors.items():
            if shape:
                continue
            letter = re.sub(r"^m(?=[A-Z])|_tensor$|_ptr$", "", name).lower()
            if letter in product:
                self.tensors[name] = product[letter][:known]
            elif re.fullmatch(r"(?:d?[qkvo]|d?out|do)", letter):
                self.tensors[name] = ("S", "D", "H")
            elif re.search(r"lse|delta|dpsum", letter):
                self.tensors[name] = ("S", "H")
            elif re.search(r"bias|col", letter):
                self.tensors[name] = ("N", "L")[: known - 1]
            elif re.search(r"row|scale", letter):
                self.tensors[name] = ("M", "L")[: known - 1]
            else:
                self.tensors[name] = ("M", "N", "L")[:known]

    @property
    def _is_attention(self) -> bool:
        return {"q", "k", "v"} <= {n.lower().removeprefix("m") for n in self.tensors}

    def _outputs(self) -> list[str]:
        """Tensors that the kernel writes: the last of those whose name says so, else the last one."""
        names = list(self.tensors)
        if self._is_attention:
            written = [n for n in names if re.fullmatch(r"m?d[qkv]", n.lower())]
            return written or [n for n in names if re.fullmatch(r"m?(?:o|out|lse|l)", n.lower())]
        found = [n for n in names if re.fullmatch(r"m?(?:d|out\w*|output|y|post\w*)", n.lower())]
        return found or [n for n in names if re.fullmatch(r"m?c", n.lower())] or names[-1:]

    def _tensor(self, name: str, shape: tuple[str, ...]) -> dict[str, Any]:
        is_output = name in self._outputs()
        dtype = self.dtype
        if is_output and dtype in ("s8", "u8"):
            dtype = "s32"
        elif (is_output and dtype in ("f8e4m3", "f8e5m2", "tf32")) or (
            len(shape) <= 2 and shape[-1:] in (("H",), ("L",))
        ):
            dtype = "f32"
        found: dict[str, Any] = {"dtype": dtype, "shape": list(shape)}
        if len(shape) == 3:
            x, y, _ = shape
            plain = self._is_attention and x == "D"
            found["strides"] = [1, x, f"{y} * {x}"] if plain else [y, 1, f"{x} * {y}"]
        elif len(shape) == 2 and shape[1] in ("H", "L"):
            found["strides"] = [1, shape[0]]
        found["role"] = "output" if is_output else "input"
        return found

    # --- Results

    def _reference(self) -> tuple[Any, str | int, str]:
        outputs = self._outputs()
        inputs = [n for n in self.tensors if n not in outputs]
        if self._is_attention and not any(n.lower().startswith("d") for n in outputs):
            return self._attention(inputs, outputs)
        matrices = [n for n in inputs if len(self.tensors[n]) >= 2][:2]
        if len(matrices) == 2 and len(outputs) == 1:
            shapes = [*(self.tensors[m] for m in matrices), self.tensors[outputs[0]]]
            common = [s for s in shapes[0] if s in shapes[1] and s not in shapes[2]]
            if len(common) == 1 and set(shapes[2]) <= set(shapes[0]) | set(shapes[1]):
                return f"{self._factor()}{_einsum(shapes, matrices)}", common[0], "a matrix product"
        return "0", 1, f"what {', '.join(outputs)} should hold"

    def _factor(self) -> str:
        names = [n for n in self.constants if re.search(r"alpha|scale", n)]
        return "".join(f"{n} * " for n in names)

    def _attention(self, inputs: list[str], outputs: list[str]) -> tuple[Any, str | int, str]:
        q, k, v = (next(n for n in inputs if n.lower().removeprefix("m") == letter) for letter in "qkv")
        shape = self.tensors[q]
        order = "SDH"

        def read(name: str) -> str:
            axes = [self.tensors[name].index(s) for s in ("H", "S", "D")]
            return f'np.transpose(inputs["{name}"], {tuple(axes)})'

        results = []
        for name in outputs:
            if len(self.tensors[name]) == len(shape):
                axes = tuple("HSD".index(s) for s in self.tensors[name])
                results.append(f"{name!r}: np.transpose(weights / total @ v, {axes})")
            else:
                results.append(f"{name!r}: np.transpose((largest + np.log(total))[..., 0])")
        if not all(set(self.tensors[n]) == set(order) for n in (q, k, v)):
            return "0", 1, "what attention should give for these shapes"
        scale = next(iter(self.constants), "")
        file = f"{PurePath(self.path).stem}_reference.py"
        self.draft.files[file] = ATTENTION_FILE.format(
            query=read(q), key=read(k), value=read(v), scale=f'sizes["{scale}"]' if scale else "1.0", causal="False",
            results=", ".join(results),
        )  # fmt: skip
        product = f"{_letters(self.tensors[q])},{_letters(self.tensors[k]).replace('s', 't')}->sht"
        scores = f"np.einsum('{product}', {q}, {k})"
        wide = f"2 * {scale or 1} * np.max({scores}, axis=2)"
        bounds = []
        for name in outputs:
            if len(self.tensors[name]) == len(shape):
                bounds.append(f"'{name}': np.max({v}) * (4096 + np.max({wide})) + 0 * {q}")
            else:
                bounds.append(f"'{name}': 16 + {wide}")
        self.draft.fields["steps"] = {"S": 64}
        self.draft.fields["magnitude"] = "{" + ", ".join(bounds) + "}"
        self.draft.fields["families"] = ["normal"]
        return {"python": f"{file}:attention"}, "D", "softmax attention over S, without a mask"


_LEFT_OUT = object()


def _letters(shape: tuple[str, ...]) -> str:
    return "".join(s.lower()[0] for s in shape)


def _einsum(shapes: list[tuple[str, ...]], names: list[str]) -> str:
    letters = dict[str, str]()
    for shape in shapes:
        for size in shape:
            wanted = [c for c in (*size.lower(), *"abcdefghijklmnopqrstuvwxyz") if c not in letters.values()]
            letters.setdefault(size, wanted[0])
    left, right, out = ("".join(letters[s] for s in shape) for shape in shapes)
    if (left, right, out) == ("mk", "nk", "mn"):
        return f"({names[0]} @ {names[1]}.T)"
    return f"np.einsum('{left},{right}->{out}', {', '.join(names)})"
