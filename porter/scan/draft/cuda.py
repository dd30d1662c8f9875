# SPDX-License-Identifier: Apache-2.0
"""Drafts of cases for kernels in CUDA C++."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePath
from typing import Any

from porter.lang.cuda import find
from porter.lang.lexical import lexed
from porter.model.functions import Function
from porter.model.program import Program
from porter.scan.draft import classes as cls
from porter.scan.draft import indices, references, sizes, tensors
from porter.scan.draft import numbers as nums
from porter.scan.draft.draft import UNKNOWN, Draft
from porter.scan.draft.epilogues import Applied, applied, called_by
from porter.scan.draft.launches import Known, best_launch, cluster_of, placed_tiles, struct_types
from porter.scan.draft.numbers import Num
from porter.scan.draft.references import Epilogue, Product, Proposal
from porter.scan.draft.templates import is_open
from porter.scan.draft.tensors import Tensor
from porter.scan.draft.values import MapValue, Offset, Pointer, Record, Scope

SAFE_SHARED = 200 * 1024
"""Bytes of dynamic shared memory that every Hopper GPU gives a block on request."""
_MMA = re.compile(r"wgmma\s*\.\s*mma_async[\w.\s:]*?\.(f32|f16|s32)\s*\.\s*(f16|bf16|tf32|e4m3|e5m2|s8|u8)")
_OPERANDS = re.compile(
    r"wgmma\s*\.\s*mma_async[\w.\s:]*?\.(?:f32|f16|s32)\s*\.\s*(f16|bf16|tf32|e4m3|e5m2|s8|u8)\s*\.\s*(\w+)"
)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_FORMATS = {"f16": "f16", "bf16": "bf16", "tf32": "tf32", "e4m3": "f8e4m3", "e5m2": "f8e5m2", "s8": "s8", "u8": "u8"}
_ROW = re.compile(r"row|\bm0\b|\bm_|_m\b|\bm\b|first_m|\bbm\b", re.IGNORECASE)
_COLUMN = re.compile(r"col|\bn0\b|\bn_|_n\b|\bn\b|first_n|\bbn\b", re.IGNORECASE)
_TYPES = {"f32": "f32", "f64": "f64", "s32": "s32", "u32": "u32", "s64": "s64", "u64": "u64", "s8": "s8", "u8": "u8"}
_SIZE_NAMES = (
    {"m", "rows", "size_m", "m_size", "shape_m"},
    {"n", "cols", "size_n", "shape_n"},
    {"k", "size_k", "shape_k"},
)
_MAP_WORDS = re.compile(
    r"^(?:tensor_?|t|tma_?|desc_?)?(?:map|desc|tma)_?|_?(?:tma_?map|tensor_?map|map|desc|tma)$", re.IGNORECASE
)
_INEXACT = re.compile(r"\b(?:__)?(?:exp2?f?|tanhf?|erff?|rsqrtf?|logf?|expf)\s*\(|ex2\.approx|tanh\.approx")
_ROUGH = re.compile(r"\btanh\.approx\b|\bfast_tanh\b")
_ROUGH_TERMS = 8192
"""How much more than a step of a sum loses what `tanh.approx` may be wrong by, 2^-11 (PTX ISA 9.7.3.22)."""
_LAST_AXIS = "blockIdx.z"
_RELU = re.compile(r"fmaxf?\s*\([^;]*\b0(?:\.0?f?)?\s*\)|__hmax2?\w*\s*\(|max\.f16x2|relu", re.IGNORECASE)
NO_SHAPE = "a guess with `reference`: its shape, too, is not known"
"""What is said of a tensor whose shape follows from what the kernel is taken to compute."""


class CudaDraft:
    """Makes the draft of one kernel of a program."""

    def __init__(self, program: Program, kernel: Function, known: Known | None = None) -> None:
        self.program, self.kernel = program, kernel
        self.facts, self.host, self.has_host = known or best_launch(program, kernel)
        self.draft = Draft()
        self.scope = Scope(function=kernel)
        for name, text in zip(kernel.template_params, self.facts.kernel.template, strict=False):
            self.scope.types[name] = text
        self.maps: dict[str, MapValue] = {}
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, float] = {}
        self.numbers: list[Num] = []
        self._names: dict[int, str] = {}
        self._in_kernel: dict[str, str] = {}
        self.text = "\n".join(lexed(f.source).plain.decode("utf-8", "replace") for f in program.sources.files.values())
        self.code = "\n".join(f.source.decode("utf-8", "replace") for f in program.sources.files.values())
        self.body = kernel.text(kernel.body)
        self.is_clipped = False

    def make(self) -> Draft:
        fields = self.draft.fields
        fields |= {"version": 1, "kernel": PurePath(self.program.sources.root).name, "entry": self._entry()}
        self._collect()
        shaped = {t.name for t in self.tensors.values() if t.shape}
        proposal = self._proposal()
        self._shape(proposal, shaped)
        given, by = self._sizes(proposal)
        if self.facts.kernel.template:
            fields["template"] = [self._template(t) for t in self.facts.kernel.template]
            open_ = [t for t in self.facts.kernel.template if is_open(t, self.program, self.host.classes)]
            if open_:
                self.draft.guess("template", f"what {', '.join(open_)} is")
        if self.constants:
            fields["constants"] = self.constants
        fields["sizes"] = given
        multiples = {n: m for n, m in by.items() if m > 1 and n in given and n != proposal.reduction}
        if multiples:
            fields["multiples"] = multiples
        fields["tensors"] = {t.name: self._tensor(t) for t in self.tensors.values()}
        if self.maps:
            fields["tensor_maps"] = {name: self._map(name, value) for name, value in self.maps.items()}
        fields["launch"] = self._launch(given)
        fields["params"] = [self._param(a, i) for i, a in enumerate(self.facts.arguments)]
        self._results(proposal)
        return self.draft

    # --- Names

    def _entry(self) -> str:
        space = cls.namespace_of(self.kernel.node)
        return f"{space}::{self.kernel.name}" if space else self.kernel.name

    def _template(self, text: str) -> Any:
        if re.fullmatch(r"-?\d+", text):
            return int(text)
        name, _ = cls.template_id(text)
        found = self.host.classes.find(name)
        for enumeration, space in self.host.classes.enumerations.items():
            text = re.sub(rf"(?<![\w:]){enumeration}::", f"{space}::{enumeration}::", text) if space else text
        if found is not None and "::" not in name and found.namespace:
            return f"{found.namespace}::{text}"
        return text == "true" if text in ("true", "false") else text

    def _free(self, name: str) -> str:
        """The name, or one like it that is not taken."""
        taken = {*self.tensors, *self.maps, *self.constants, *(n for x in self.numbers for n in x.names())}
        name = re.sub(r"\W", "_", name) or "x"
        while name in taken or name in ("lambda", "in", "is", "as", "np"):
            name += "_"
        return name

    # --- Arguments

    def _collect(self) -> None:
        """Tensors, tensor maps and numbers of the launch."""
        sizes_named = [*(self.facts.grid or ()), *(self.facts.cluster or ())]
        self.numbers += [n for n in (*sizes_named, self.facts.dynamic_smem) if n is not None]
        for param, argument in zip(self.kernel.params, self.facts.arguments, strict=False):
            self._numbers_in(argument, param.name)
        for param, argument in zip(self.kernel.params, self.facts.arguments, strict=False):
            self._maps_in(argument, param.name)
        for param, argument in zip(self.kernel.params, self.facts.arguments, strict=False):
            self._pointers_in(argument, param.name)
        self.numbers += [n for name, n in self.facts.parameters if isinstance(n, Num) and self._is_size(name)]
        self._roles()

    def _roles(self) -> None:
        """What is read and what is written."""
        unwritten = [t for t in self.tensors.values() if not t.const and t.role != "input"]
        told = [t for t in unwritten if not t.maps or t.is_stored]
        written = self._read_back(told) or unwritten[-1:]
        if not told and len(unwritten) > 1:
            self.draft.guess(f"tensors.{written[0].name}", "that it is the one that is written")
        for t in self.tensors.values():
            t.role = t.role or (self._written(t) if any(t is w for w in written) else "input")
            if t.role == "input" and t.maps and t.dtype == "f32" and self._operand() == "tf32":
                t.dtype = "tf32"

    def _read_back(self, written: list[Tensor]) -> list[Tensor]:
        """Of memory that a kernel may write: without what the host fills, and then has back from another one only."""
        down = [t for t in written if self._is_copied(rf"[^,;]+,\s*(?:\([\w\s*]+\)\s*)?{t.name}\b", "DeviceToHost")]
        if not down:
            return written
        up = [t for t in written if self._is_copied(rf"(?:\([\w\s*]+\)\s*)?{t.name}\s*,", "HostToDevice")]
        kept = [t for t in written if t in down or t not in up or self._is_assigned(t)]
        for t in written:
            if t not in kept:
                self.draft.notes[f"tensors.{t.name}"] = "the host fills it, and does not read it back"
        return kept

    def _is_copied(self, what: str, direction: str) -> bool:
        return re.search(rf"cudaMemcpy(?:Async)?\s*\(\s*{what}[^;]*{direction}", self.text) is not None

    def _is_assigned(self, t: Tensor) -> bool:
        """Whether the text stores through the name that the kernel has for memory."""
        name = self._in_kernel.get(t.name, t.name)
        stores = (
            rf"\b{name}\s*\[[^;]*?\]\s*[-+*/|&^]?=(?!=)|\*\s*\(?\s*{name}\b[^;=]*=(?!=)|atomic\w+\s*\([^;]*\b{name}\b"
        )
        return re.search(stores, self.text) is not None

    def _is_size(self, name: str) -> bool:
        return any(name.lower() in known for known in _SIZE_NAMES)

    def _numbers_in(self, value: Any, param: str) -> None:
        if isinstance(value, Num):
            self._number(value, param)
        elif isinstance(value, Record):
            for item in value.items.values():
                self._numbers_in(item, param)
        elif isinstance(value, MapValue):
            shape = tensors.map_shape(value)
            self.numbers += shape or ()

    def _number(self, value: Num, param: str) -> None:
        node = next((p.node for p in self.kernel.params if p.name == param), None)
        kind = node.child_by_field_name("type") if node is not None else None
        is_float = kind is not None and self.host.resolve(cls.text_of(kind), self.scope) in ("float", "double")
        if is_float and value.op == "name":
            self.constants[value.name] = 0.5
        elif isinstance(value.known, float):
            self.constants.setdefault(self._free(param), value.known)
        else:
            self.numbers.append(value)

    def _maps_in(self, value: Any, param: str) -> None:
        if isinstance(value, MapValue):
            self._add_map(value, param)
        elif isinstance(value, Record):
            for name, item in value.items.items():
                self._maps_in(item, name)

    def _add_map(self, value: MapValue, param: str) -> None:
        name = self._free(param)
        self._names[id(value)] = name
        self.maps[name] = value
        base, _ = tensors.map_base(value)
        dtype = tensors.map_dtype(value)
        if base is None:
            letters = re.sub(r"^[dg](?=[A-Z]$)", "", _MAP_WORDS.sub("", param))
            base = self._argument(letters.upper() if len(letters) == 1 else letters or param)
            base.const |= not self._is_stored(param)
            value.fields["base"] = base
            self.draft.guess(f"tensor_maps.{name}", "what the map is over, with its shape, and its box and swizzle")
        tensor = self._tensor_of(base)
        is_stored = self._is_stored(param)
        tensor.dtype = tensor.dtype or dtype or (None if is_stored else self._operand())
        tensor.maps.append(name)
        tensor.is_stored |= is_stored
        self.facts.conditions += tensors.in_whole_tiles(value)
        shape, offset = tensors.map_shape(value), tensors.map_base(value)[1]
        if shape is not None and not tensor.shape and offset.known == 0:
            tensor.shape = shape
            strides = tensors.map_strides(value, tensors.item_size(tensor.dtype or "f16"))
            if strides is None:
                self.draft.guess(f"tensor_maps.{name}", "that its rows follow each other")
            elif not tensors.same(strides, tensors.row_major(shape)):
                tensor.shape, tensor.strides = tensors.folded(shape, strides)
        elif shape is None and value.fields.get("rank") is not None:
            self.draft.guess(f"tensor_maps.{name}", "that it is over the whole tensor")

    def _argument(self, name: str) -> Pointer:
        """The memory of this name that the kernel is handed as well, or some of its own."""
        given = (a for a in self.facts.arguments if isinstance(a, Pointer) and a.name == name)
        return next(given, None) or Pointer(name, "")

    def _is_stored(self, param: str) -> bool:
        """Whether a tensor map is stored through, by the name of what it is handed to."""
        call = rf"store[\w:]*\s*(?:<[^;()]*>)?\s*\([^;]*\b{param}\b"
        return re.search(call, self.text, re.IGNORECASE) is not None

    def _operand(self) -> str | None:
        """The number format of all MMAs' operands, None if there are several."""
        kinds = {kind for pair in _OPERANDS.findall(self.code) for kind in pair}
        return _FORMATS.get(kinds.pop()) if len(kinds) == 1 else None

    def _tensor_of(self, base: Pointer) -> Tensor:
        if id(base) not in self._names:
            name = self._free(base.name)
            self._names[id(base)] = name
            self.tensors[name] = Tensor(
                name, tensors.dtype_of(base.element), base.shape, (), base.const, base.zeroed, nbytes=base.nbytes
            )
        return self.tensors[self._names[id(base)]]

    def _pointers_in(self, value: Any, param: str) -> None:
        if isinstance(value, Offset):
            value = value.base
        if isinstance(value, Pointer):
            tensor = self._tensor_of(value)
            self._in_kernel.setdefault(tensor.name, param)
            tensor.const |= not tensor.maps and not self._is_used(param)
            self._as_declared(tensor, param)
        elif isinstance(value, Record):
            for name, item in value.items.items():
                self._pointers_in(item, name)

    def _is_used(self, param: str) -> bool:
        """Whether the kernel's own text has a parameter, or a macro; a member of one may be used anywhere."""
        if not any(p.name == param for p in self.kernel.params):
            return True
        word = rf"\b{param}\b"
        macros = (m.group() for m in _MACRO.finditer(self.code))
        return re.search(word, self.body) is not None or any(re.search(word, text) for text in macros)

    def _as_declared(self, tensor: Tensor, param: str) -> None:
        """What the kernel's own parameter says of the memory that it points to."""
        node = next((p.node for p in self.kernel.params if p.name == param), None)
        kind = node.child_by_field_name("type") if node is not None else None
        if node is None or kind is None or "*" not in cls.text_of(node):
            return
        tensor.const |= bool(re.search(r"\bconst\b", cls.text_of(node).split("*")[0]))
        tensor.dtype = tensor.dtype or tensors.dtype_of(self.host.resolve(cls.text_of(kind), self.scope))

    def _written(self, tensor: Tensor) -> str:
        """Whether a kernel also reads what it writes: it adds to it."""
        name = self._in_kernel.get(tensor.name, "")
        adds = rf"\b{name}\s*\[[^;]*?\]\s*\+=|atomicAdd\s*\(\s*&?\s*\(?\b{name}\b"
        if name and re.search(adds, self.text):
            return "output" if tensor.zeroed else "inout"
        reduces = re.search(r"\bred\.(?:\w+\.)*global|\bred\.(?:async|relaxed)", self.code)
        return ("output" if tensor.zeroed else "inout") if reduces else "output"

    # --- What the kernel computes

    def _proposal(self) -> Proposal:
        inputs = [t for t in self.tensors.values() if t.role == "input"]
        outputs = [t for t in self.tensors.values() if t.role != "input"]
        self._shape_operands(inputs)
        qkv = references.looks_like_attention(inputs, self.text)
        if qkv is not None and outputs:
            return self._attention(qkv, outputs)
        found = self._products([t for t in inputs if len(t.shape) >= 2])
        if found and outputs:
            return self._gemm(found, inputs, outputs)
        names = ", ".join(t.name for t in outputs)
        known = next((t for t in inputs if t.shape), None)
        shape = references.texts(known) if known is not None else ("1",)
        return Proposal("0", 1, f"what {names} should hold", {o.name: shape for o in outputs}, is_known=False)

    def _attention(self, qkv: list[Tensor], outputs: list[Tensor]) -> Proposal:
        scale = next(iter(self.constants), "1.0")
        conditions = sizes.fixed(self.facts.conditions)
        flag = next((n for n in conditions if "causal" in n.lower()), "")
        on = str(bool(conditions[flag])) if flag else str("causal" in self.text.lower())
        stem = PurePath(self.program.sources.root).stem
        found = references.attention(qkv, outputs, scale, on, f"{stem}_reference.py")
        keys = references.texts(qkv[1])
        box = next((self._box(name) for name in qkv[1].maps), {})
        if len(keys) > 1 and keys[-2] in box:
            found.steps = {keys[-2]: box[keys[-2]]}
        return found

    def _products(self, matrices: list[Tensor]) -> list[Product]:
        """One operand with each of the others."""
        if len(matrices) < 2:
            return []
        first, *others = matrices
        found = [p for other in others if (p := references.product(first, other)) is not None]
        return [p for p in found if p.reduction == found[0].reduction]

    def _gemm(self, products: list[Product], inputs: list[Tensor], outputs: list[Tensor]) -> Proposal:
        shapes = {o.name: products[min(i, len(products) - 1)].shape for i, o in enumerate(outputs)}
        k = products[0].reduction
        count = len(outputs) if len(products) == len(outputs) else 1
        own = called_by(self.kernel, self.program.functions)
        found = applied(own, self.code)
        self.is_clipped = any(_RELU.search(f.text(f.body)) for f in own)
        epilogue = self._epilogue(products[0], inputs, found)
        whole = [found is None or found.is_whole(self._in_kernel.get(o.name, o.name)) for o in outputs]
        each = [products[min(i, len(products) - 1)] for i in range(len(outputs))]
        results = []
        for output, one, is_whole in zip(outputs, each, whole, strict=True):
            text = epilogue.around(one.expression, is_whole)
            if len(output.shape) == 2 and references.texts(output) == one.shape[::-1] != one.shape:
                text = f"({text}).T"
            results.append(f"{output.name} + {text}" if output.role == "inout" else text)
        why = "a matrix product" + (" with its epilogue" if epilogue != Epilogue() else "")
        open_ = [o.name for o, is_whole in zip(outputs[count:], whole[count:], strict=True) if is_whole]
        if open_:
            why += f"; what {', '.join(open_)} hold is not known"
        reference = results[0]
        if len(outputs) > 1:
            named = {o.name: text for o, text in zip(outputs, results, strict=True)}
            reference = "{" + ", ".join(f"'{n}': {t}" for n, t in named.items()) + "}"
        rough = len(outputs) == 1 and found is not None and _ROUGH.search(self.code) is not None
        magnitude = f"{_ROUGH_TERMS} * ({epilogue.magnitude(each[0].expression)})" if rough else None
        return Proposal(reference, k, why, shapes, exact=not _INEXACT.search(self.code), magnitude=magnitude)

    def _epilogue(self, product: Product, inputs: list[Tensor], function: Applied | None) -> Epilogue:
        found = references.epilogue(product, inputs, self._in_kernel, function)
        found.first.factors[:0] = [name for name in self.constants if not re.search(r"eps", name)]
        found.function = function.text if function is not None else "np.fmax({}, 0)" if self.is_clipped else ""
        return found

    # --- Shapes

    def _shape_operands(self, inputs: list[Tensor]) -> None:
        """Shapes of inputs that no tensor map gives: by what their indices are multiplied with, else by names."""
        known = [t for t in inputs if len(t.shape) >= 2]
        m, n, k = self._mnk()
        for t in inputs:
            if t.shape:
                continue
            index = " ; ".join(self._indices(t))
            stride = self._stride(index)
            depth = k or (None if stride in (m, n) else stride)
            batched = self._batched(t)
            if batched:
                t.shape = batched
                known += [t] if len(batched) > 2 else []
            elif len(known) < 2 and m and n and depth and not re.search(r"bias|scale|residual", t.name, re.IGNORECASE):
                first = not known
                t.shape = (m, depth) if first else (depth, n) if stride == n else (n, depth)
                known.append(t)
                if stride is None or stride not in t.shape[1:]:
                    self._guess_shape(t)
            elif stride is not None and m and n:
                t.shape = (m, stride)
            else:
                self._vector(t, index, known)

    def _guess_shape(self, t: Tensor) -> None:
        """Of a tensor that is known by a map which is a guess itself, the shape is a part of that."""
        unknown = next((m for m in t.maps if f"tensor_maps.{m}" in self.draft.guesses), None)
        if unknown is None and t.fills(t.shape):
            self.draft.notes[f"tensors.{t.name}"] = (
                "all that is allocated; which are its rows is a guess with `reference`"
            )
        elif unknown is None:
            self.draft.guess(f"tensors.{t.name}", "its shape, by the names of the sizes")
        else:
            self.draft.notes[f"tensors.{t.name}"] = f"its shape, too, is what {unknown} is guessed to be over"

    def _vector(self, t: Tensor, index: str, known: list[Tensor]) -> None:
        found = self._products(known)
        if not found:
            t.shape = (nums.name(self._free("size")),)
            self.draft.guess(f"tensors.{t.name}", "its shape")
            return
        rows, columns = found[0].rows, found[0].columns
        said = index or t.name
        if re.search("residual", t.name, re.IGNORECASE):
            t.shape = tuple(self._as_number(s) for s in found[0].shape)
        else:
            is_row = bool(_ROW.search(said)) and not _COLUMN.search(said)
            t.shape = (self._as_number(rows if is_row else columns),)
        if not index:
            self.draft.guess(f"tensors.{t.name}", "its shape")

    def _as_number(self, text: str) -> Num:
        for number in self.numbers:
            for part in number.walk():
                if str(part) == text:
                    return part
        for t in self.tensors.values():
            for extent in t.shape:
                if str(extent) == text:
                    return extent
        return nums.const(int(text)) if text.isdigit() else nums.name(text)

    def _indices(self, t: Tensor) -> list[str]:
        """What the kernel adds to a pointer, or indexes it with."""
        name = self._in_kernel.get(t.name)
        if name is None:
            return []
        found = re.findall(rf"\b{name}\s*\[([^;]*?)\]", self.text)
        begins = re.findall(rf"(\w+)\s*=\s*(?:\w+(?:\.|->))?{name}\s*\+([^;,]*)[;,]", self.text)
        for alias, first in begins:
            inside = re.findall(rf"\b{alias}\s*\[([^;]*?)\]", self.text)
            found += [f"{first.strip()} + ({index})" for index in inside] or [first.strip()]
        rest = re.findall(rf"\b{name}\s*\+\s*([^;,]*)", self.text)
        return found + [text for text in rest if text.strip() not in {first.strip() for _, first in begins}]

    def _size_params(self) -> dict[str, Num]:
        """Sizes by what the kernel calls them: parameters, and members of parameters."""
        found: dict[str, Any] = {}
        for param, argument in zip(self.kernel.params, self.facts.arguments, strict=False):
            items = argument.items if isinstance(argument, Record) else {}
            found |= {param.name: argument} | {f"{param.name}.{name}": item for name, item in items.items()}
        return {
            n: a for n, a in found.items() if isinstance(a, Num) and a.op == "name" and a.name not in self.constants
        }

    def _batched(self, t: Tensor) -> tuple[Num, ...]:
        """The shape of a tensor whose outermost dimension the blocks of the grid's last axis count; empty if it has
        none."""
        named = self._size_params()
        found = indices.levels(self._indices(t), named)
        last = (self.facts.grid or ())[2:]
        if found is None or not last or last[0].known == 1 or len(found.outer) != 1:
            return ()
        (outer,) = found.outer
        begins = rf"\b{re.escape(outer)}\s*=\s*{re.escape(_LAST_AXIS)}\s*[;,]"
        is_block = outer == _LAST_AXIS or re.search(begins, self.text) is not None
        return (last[0], *(named[n] for n in reversed(found.inner))) if is_block else ()

    def _doubt_shapes(self, given: Collection[str]) -> None:
        """Shapes that indices or names gave are guesses where a size stands in an index and not in the shape, or the
        grid has blocks for a dimension that no tensor has."""
        named = self._size_params()
        there = {n for t in self.tensors.values() for x in (*t.shape, *t.strides) for n in x.names()}
        missing = {n for x in (self.facts.grid or ())[2:] for n in x.names()} - there - set(self.constants)
        for t in self.tensors.values():
            own = {n for x in t.shape for n in x.names()}
            strides = {named[n].name for n in indices.sizes_in(self._indices(t), named)} - own
            is_open = f"tensors.{t.name}" not in {**self.draft.guesses, **self.draft.notes}
            if t.name not in given and (missing or strides) and is_open:
                what = ", ".join(sorted(strides or missing))
                self.draft.guess(f"tensors.{t.name}", f"its shape; what {what} counts is not known")

    def _stride(self, index: str) -> Num | None:
        """The size that a row of a tensor is long, by its indices."""
        by_param = {p.name: a for p, a in zip(self.kernel.params, self.facts.arguments, strict=False)}
        for word in re.findall(r"\*\s*(?:\([^()]*\)\s*)?(?:static_cast<[^<>]*>\(\s*)?([A-Za-z_]\w*)", index):
            value = by_param.get(word)
            if isinstance(value, Num) and value.op == "name":
                return value
        return None

    def _mnk(self) -> tuple[Num | None, Num | None, Num | None]:
        """Rows, columns and length of the sum by their names."""
        found: list[Num | None] = []
        names = sorted({n for x in self.numbers for n in x.names()})
        names += [n for n, v in self.facts.parameters if isinstance(v, Num)]
        for known in _SIZE_NAMES:
            match = next((n for n in names if n.lower() in known), None)
            found.append(nums.name(match) if match is not None else None)
        return found[0], found[1], found[2]

    def _shape(self, proposal: Proposal, given: Collection[str]) -> None:
        for name, shape in proposal.shapes.items():
            tensor = self.tensors[name]
            if not tensor.shape:
                product = tuple(self._as_number(s) for s in shape)
                tensor.shape = self._batched(tensor) or product
                if len(tensor.shape) > len(product):
                    proposal.why += f"; {name} has {tensor.shape[0]} of them, whose sum or choice is not known"
                if not proposal.is_known:
                    self.draft.notes[f"tensors.{name}"] = NO_SHAPE
        self._doubt_shapes(given)
        for t in self.tensors.values():
            if not t.shape:
                t.shape = (nums.name("size"),)
                self.draft.guess(f"tensors.{t.name}", "its shape")
            self.numbers += t.shape

    # --- Sizes

    def _box(self, name: str) -> dict[str, int]:
        """How much of each size a box of a tensor map takes."""
        value = self.maps[name]
        shape, box = tensors.map_shape(value), value.fields.get("box")
        if shape is None or not isinstance(box, list):
            return {}
        pairs = zip(reversed(shape), box, strict=False)
        return {d.name: b.known for d, b in pairs if d.op == "name" and isinstance(b, Num) and isinstance(b.known, int)}

    def _sizes(self, proposal: Proposal) -> tuple[dict[str, Any], dict[str, int]]:
        names = list(dict.fromkeys(n for x in self.numbers for n in sorted(x.names()) if n not in self.constants))
        order = {n: i for i, (n, _) in enumerate(self.facts.parameters)}
        names.sort(key=lambda n: order.get(n, 99))
        boxes: dict[str, int] = {}
        for map_name in self.maps:
            for n, b in self._box(map_name).items():
                boxes[n] = max(boxes.get(n, 1), b)
        conditions = sizes.dividing(self.facts.conditions)
        expressions = [*self.numbers, *conditions, *self._divided()]
        by = sizes.strides_of(names, expressions, boxes)
        given = {n: v for n, v in sizes.fixed(self.facts.conditions).items() if n in names}
        found, holds = sizes.choose(names, by, str(proposal.reduction), self.facts.conditions, given)
        if not holds:
            self.draft.guess("sizes", "none was found that all checks of the host code accept")
        asked = conditions + [x for x in self.numbers if "//" in str(x)] + self._divided()
        needed = {n: nums.divisors([p for e in asked for p in e.walk() if p.op in ("%", "//")], n) for n in names}
        return found, needed

    def _divided(self) -> list[Num]:
        """Divisions of its sizes in the kernel."""
        found = []
        for param, argument in zip(self.kernel.params, self.facts.arguments, strict=False):
            if not isinstance(argument, Num) or argument.op != "name":
                continue
            for unit in re.findall(rf"\b{param.name}\s*[/%]\s*\(?\s*([\w:]+)", self.body):
                node = cls.expression(unit)
                value = self.host.value(node, self.scope) if node is not None else None
                if isinstance(value, Num) and isinstance(value.known, int) and value.known > 1:
                    found.append(nums.Num("//", (argument, value)))
        return found

    # --- Fields

    def _tensor(self, t: Tensor) -> dict[str, Any]:
        if t.dtype is None:
            self.draft.guess(f"tensors.{t.name}", "its number format")
        found: dict[str, Any] = {"dtype": t.dtype or "f16", "shape": [s.written() for s in t.shape]}
        if t.strides:
            found["strides"] = [s.written() for s in t.strides]
        found["role"] = t.role or "output"
        if t.zeroed and t.role == "output":
            found["fill"] = 0
        return found

    def _map(self, name: str, value: MapValue) -> dict[str, Any]:
        tensor = self.tensors[self._names[id(tensors.map_base(value)[0])]]
        if not isinstance(value.fields.get("rank"), Num):
            return {"tensor": tensor.name, "box": [64] * max(len(tensor.shape), 1), "swizzle": "128B"}
        found = tensors.described(value, tensor, tensor.name)
        if tensor.dtype == "tf32":
            found["dtype"] = tensors.map_dtype(value) or "f32"
        if "box" not in found:
            found["box"] = [64] * len(tensor.shape)
            self.draft.guess(f"tensor_maps.{name}", "its box")
        return found

    def _launch(self, given: dict[str, Any]) -> dict[str, Any]:
        facts, found = self.facts, dict[str, Any]()
        grid = facts.grid or self._guessed_grid()
        found["grid"] = [g.written() for g in grid]
        if facts.block is not None:
            found["block"] = [b.written() for b in facts.block]
        else:
            found["block"] = [128, 1, 1]
            self.draft.guess("launch.block", "the threads of a block")
        cluster = facts.cluster or cluster_of(self.kernel)
        if cluster is not None:
            found["cluster"] = [c.written() for c in cluster]
        if facts.dynamic_smem is None and (self.has_host or "extern __shared__" in self.text):
            found["dynamic_smem"] = SAFE_SHARED
            self.draft.notes["launch.dynamic_smem"] = "more than it needs does no harm"
        elif facts.dynamic_smem is not None and facts.dynamic_smem.known != 0:
            found["dynamic_smem"] = facts.dynamic_smem.written()
        if facts.cooperative:
            found["cooperative"] = True
        return found

    def _guessed_grid(self) -> tuple[Num, ...]:
        m, n, _ = self._mnk()
        tiles = placed_tiles(self.kernel, self.host, self.scope)
        found = []
        for axis in "xyz":
            name, unit = tiles.get(axis, ("", 0))
            size = n if _COLUMN.search(name) else m
            found.append(nums.apply("ceil_div", size, nums.const(unit)) if unit and size is not None else nums.const(1))
        self.draft.guess("launch.grid", "by what the kernel multiplies blockIdx with")
        return tuple(found)

    def _param(self, value: Any, index: int) -> Any:
        if isinstance(value, MapValue):
            name = self._names[id(value)]
            node = self.kernel.params[index].node
            by_address = node is not None and any(True for _ in find(node, "pointer_declarator"))
            return {"address_of": name} if by_address else name
        if isinstance(value, Pointer):
            return self._names[id(value)]
        if isinstance(value, Offset):
            return {"address_of": self._names[id(value.base)], "offset": value.elements.written()}
        if isinstance(value, Num):
            constant = next((n for n, v in self.constants.items() if value.known == v), None)
            if isinstance(value.known, float) and constant is not None:
                return {"value": constant, "type": "f32"}
            if value.op == "name" and value.name in self.constants:
                return {"value": value.name, "type": "f32"}
            return value.written()
        if isinstance(value, Record):
            return self._struct(value, index)
        self.draft.guess(f"params[{index}]", f"{UNKNOWN}{self.kernel.params[index].name}")
        return 0

    def _struct(self, value: Record, index: int) -> dict[str, Any]:
        kinds = struct_types(value, self.host)
        items = []
        for name, item in value.items.items():
            if isinstance(item, Num):
                kind = tensors.dtype_of(kinds.get(name, "int")) or "s32"
                items.append({"value": item.written(), "type": _TYPES.get(kind, "s32")})
            else:
                items.append(self._param(item, index))
        return {"struct": items}

    def _results(self, proposal: Proposal) -> None:
        fields = self.draft.fields
        fields["reduction"] = proposal.reduction if not str(proposal.reduction).isdigit() else int(proposal.reduction)
        if proposal.steps:
            fields["steps"] = proposal.steps
        fields["reference"] = proposal.reference
        self.draft.guess("reference", proposal.why)
        self.draft.files |= proposal.files
        if proposal.magnitude is not None:
            fields["magnitude"] = proposal.magnitude
        found = _MMA.findall(self.code)
        accumulates = {a for a, _ in found}
        if len(accumulates) == 1:
            fields["accumulate"] = accumulates.pop()
        if not proposal.exact:
            fields["exact"] = False
        if proposal.families:
            fields["families"] = list(proposal.families)


def kernels_to_draft(program: Program, wanted: str | None) -> list[Function]:
    """The kernels that a name or a part of it means; without one those with tensor core instructions, else all."""
    kernels = [k for k in program.kernels if wanted is None or wanted in k.qualified_name]
    exact = [k for k in kernels if wanted in (k.name, k.qualified_name)]
    if exact or wanted is not None:
        return exact or kernels
    ids = program.reaching(s.function for s in program.statements)
    return [k for k in kernels if id(k) in ids] or kernels
