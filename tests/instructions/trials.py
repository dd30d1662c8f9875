# SPDX-License-Identifier: Apache-2.0
"""Kernels around sample instructions: operands get values, results are written out.

A kernel runs one instruction in every thread of `BLOCKS` blocks on `VALUES` rows of inputs. Registers that it
reads come from columns of an input buffer, chosen by the operand's type; addresses name a slot of the thread's
own in the operand's state space, filled with input; what is synchronized on is initialized. Registers that it
writes and the slot go to the output buffer, `ROW` bytes a thread.

The inputs are the same everywhere (`inputs`), so that a kernel's output can be compared between machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from instructions.samples import HEAD, REGISTERS
from instructions.trial_inputs import MAPS, VALUES, column_offset, map_offset
from porter.ptx.ast import Instruction, Mem, Operand, Pair, Reg, Vec
from porter.ptx.block_scale import legal_scale_types, scale_count
from porter.ptx.forms.grammar import Access, Modifiers, OperandForm
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.idesc_scaled import ScaledDescriptor
from porter.ptx.inline import parse_template
from porter.ptx.smem_desc import Generation, SmemDescriptor
from porter.ptx.special import FORMAT_BYTES
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.table import decode, operand_type
from porter.ptx.umma import AB_TYPES, UmmaOp, legal_d_types

SLOT = 64
RESULTS = 16
MULTIMEM = 1 << 24
"""How far behind the output buffer the multimem addresses of it are."""
ROW = 8 * RESULTS + SLOT
"""Bytes of output of a thread: the registers written, 8 bytes each, then its slot."""

_WARP = 32


@dataclass(frozen=True)
class Trial:
    """A kernel `k` with parameters (input buffer, output buffer of VALUES rows). `blocks` of `threads`."""

    text: str
    ptx: str
    threads: int
    blocks: int
    cluster: int


_VALUE_KINDS = {
    "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64", "f16x2": "f16x2", "bf16x2": "bf16x2",
    "f32x2": "f32x2", "tf32": "f32", "u8": "i8", "s8": "i8", "b8": "i8",
}  # fmt: skip


def _kind(form: OperandForm, given: Modifiers) -> str:
    """The kind of input for a register operand."""
    written = form.type.removeprefix("packed(").removeprefix("wide(").rstrip(")")
    type_ = given.get(written, written)
    matrix = "shape" in given and form.name in ("a", "b", "c")
    if matrix:
        element = given.get({"a": "atype", "b": "btype", "c": "ctype"}[form.name], "f16")
        packed = {"f16": "mma_f16x2", "bf16": "mma_bf16x2", "tf32": "mma_f32", "f32": "mma_f32", "f64": "mma_f64"}
        return packed.get(element, f"mma_{element}" if element in ("e4m3", "e5m2") else "i32")
    if form.name in ("state", "response"):
        return "i64"
    if type_ in _VALUE_KINDS:
        return _VALUE_KINDS[type_]
    if (type_ in FORMAT_BYTES and type_[0] == "e") or type_ == "ue8m0x2":
        return "codes"
    if given.get("stype") == "f16" and form.name in ("a", "b"):
        return "f16"
    return f"i{8 * FORMAT_BYTES.get(operand_type(form, given), 4)}".replace("i128", "i64")


_COLUMNS = {"a": 128, "meta": 256, "scale_a": 320, "scale_b": 384}
"""Where operands lie in Tensor Memory; D is at column 0."""

_BITS = {"c": 8, "h": 16, "w": 32, "l": 64, "f": 32, "d": 64}
_SETTINGS: dict[str, int] = {
    "mask": 0xFFFFFFFF, "size": 16, "tx": 16, "count": 1, "parity": 1, "hint": 100, "primary_size": 128,
    "total_size": 128, "multicast_mask": 1, "targets": 0, "index": 0, "info": 0, "t": 20,
}  # fmt: skip


class _Writer:
    """Writes one trial."""

    def __init__(self, instruction: Instruction, text: str, target: str) -> None:
        self.ins = decode(instruction)
        self.form = self.ins.form
        self.text = text
        self.given = self.ins.modifiers
        self.target = target
        self.sparse = instruction.parts[0] == "tcgen05" and "sp" in instruction.parts
        self.threads = 128 if self.form.issue == "warpgroup" or self.sparse else _WARP
        self.cluster = 2 if "cta_group::2" in instruction.parts else 1
        self.lines: list[str] = []
        self.next: dict[str, int] = {}
        self.results: list[tuple[str, int]] = []
        self.slot = ""

    def value(self, register: str, kind: str) -> None:
        """Load a register from the next column of a kind."""
        letter = register[1]
        column = self.next.get(kind, 0)
        self.next[kind] = column + 1
        place = f"[%zin+{column_offset(kind, column)}]"
        if letter == "p":
            self.lines.append(f"ld.global.b32 %zw2, {place}; and.b32 %zw2, %zw2, 1; setp.ne.b32 {register}, %zw2, 0;")
        elif letter == "q":
            self.lines.append(f"ld.global.b64 %zl2, {place}; mov.b128 {register}, {{%zl2, %zl2}};")
        else:
            self.lines.append(f"ld.global.b{_BITS[letter]} {register}, {place};")

    def registers(self, form: OperandForm, operand: Operand) -> Iterator[tuple[OperandForm, str]]:
        if isinstance(operand, Pair):
            yield from self.registers(form, operand.first)
            assert form.second is not None
            yield from self.registers(form.second, operand.second)
        elif isinstance(operand, Vec):
            for item in operand.items:
                yield from self.registers(form, item)
        elif isinstance(operand, Reg):
            yield form, operand.name

    def operand(self, form: OperandForm, operand: Operand) -> None:
        if isinstance(operand, Mem):
            self.memory(form, operand)
            return
        for part, register in self.registers(form, operand):
            if part.access is Access.WRITE:
                self.result(register)
                continue
            self.source(part, register)
            if part.access is Access.READ_WRITE:
                self.result(register)

    def result(self, register: str) -> None:
        letter = register[1]
        self.results.append((register, 1 if letter == "p" else 128 if letter == "q" else _BITS[letter]))

    def tensor_core(self) -> bool:
        return self.ins.parts[0] in ("wgmma", "tcgen05")

    def descriptor(self, register: str) -> None:
        """A matrix descriptor of the first bytes of the slots: no swizzle, matrices of 8 rows side by side."""
        generation: Generation = "sm_90" if self.ins.parts[0] == "wgmma" else "sm_100"
        word = SmemDescriptor(0, 128, 256, SwizzleMode.NONE).encode(generation)
        self.lines.append(
            f"mov.u32 %zw2, zslots; shr.u32 %zw2, %zw2, 4; and.b32 %zw2, %zw2, 0x3FFF; cvt.u64.u32 {register}, %zw2;"
            f" or.b64 {register}, {register}, {word:#x};"
        )

    def instruction_descriptor(self) -> int:
        op = UmmaOp.of(self.given)
        element = min(AB_TYPES[op.kind])
        d_type = legal_d_types(op.kind, element)[-1]
        if not op.kind.block_scaled:
            return InstructionDescriptor(op.kind, 128, 64, d_type, element, element, sparse=op.sparse).encode()
        scale = legal_scale_types(op.kind, scale_count(op.kind, op.scale_vector))[0]
        found = ScaledDescriptor(op.kind, 128, 64, d_type, element, element, sparse=op.sparse, scale_type=scale)
        return found.encode()

    def source(self, form: OperandForm, register: str) -> None:
        name, letter = form.name, register[1]
        opcode = self.ins.parts[0]
        if self.tensor_core() and letter == "l" and name in ("a", "b", "source_desc"):
            self.descriptor(register)
            return
        if name == "meta" and letter == "w":
            # Sparsity: the first two elements of every four.
            self.lines.append(f"mov.b32 {register}, 0x44444444;")
            return
        if opcode == "tcgen05" and name in ("idesc", "columns", "taddr", "zero_column_mask", "disable_lanes"):
            value = {"idesc": self.instruction_descriptor, "columns": lambda: 512}.get(name, lambda: 0)()
            self.lines.append(f"mov.b{_BITS[letter]} {register}, {value:#x};")
            return
        if name == "policy":
            self.lines.append(f"createpolicy.fractional.L2::evict_last.b64 {register}, 1.0;")
        elif name == "state" and opcode == "mbarrier":
            self.lines.append("mbarrier.arrive.shared::cta.b64 %zl4, [zbar+8];")
            self.lines.append(f"mov.b64 {register}, %zl4;")
        elif name == "mask" and opcode in ("cp", "multimem"):
            self.lines.append(f"mov.b16 {register}, 1;")
        elif opcode == "nanosleep" or (name in _SETTINGS and opcode not in ("fns",) and letter != "p"):
            value = _SETTINGS.get(name, 20)
            self.lines.append(f"mov.b{_BITS[letter]} {register}, {value & ((1 << _BITS[letter]) - 1)};")
        elif opcode == "alloca" or (opcode == "st" and name == "size"):
            self.lines.append(f"mov.b{_BITS[letter]} {register}, 16;")
        elif opcode == "stackrestore":
            self.lines.append(f"stacksave.u{_BITS[letter]} {register};")
        elif name == "select_a" or name == "select_b":
            self.lines.append(f"mov.b16 {register}, 0;")
        elif opcode == "mapa" and name == "b":
            self.lines.append(f"mov.b32 {register}, 0;")
        elif opcode in ("mapa", "getctarank") and name == "a":
            shared = "shared::cluster" in self.ins.parts
            self.address(register, "shared" if shared else "generic shared")
        elif opcode in ("cvta", "isspacep"):
            self.address(register, "global" if "to" in self.ins.parts or opcode == "isspacep" else self.ins.parts[1])
        elif opcode == "tensormap" and name == "value":
            self.lines.append(f"mov.b{_BITS[letter]} {register}, 16;")
        elif opcode == "barrier" or opcode == "bar":
            if letter == "p":
                self.value(register, "i32")
            else:
                self.lines.append(f"mov.b32 {register}, {0 if name == 'a' else self.threads};")
        elif opcode == "fns" and name != "mask":
            self.value(register, "small")
            fix = "and.b32 {0}, {0}, 31;" if name == "base" else "sub.s32 {0}, {0}, 20;"
            self.lines.append(fix.format(register))
        elif opcode == "shfl" and name in ("b", "c"):
            self.value(register, "i32")
            self.lines.append(f"and.b32 {register}, {register}, {31 if name == 'b' else 0x1F1F};")
        elif name == "coords":
            self.lines.append(f"mov.b32 {register}, 0;")
        else:
            self.value(register, _kind(form, self.given))
            if opcode in ("bfe", "bfi") and letter == "w" and form.type == "u32":
                # Position and length have eight bits.
                self.lines.append(f"and.b32 {register}, {register}, 255;")

    def address(self, register: str, space: str) -> None:
        if space in ("shared", "shared::cta", "shared::cluster"):
            self.lines.append(f"mov.b{_BITS[register[1]]} {register}, %zsmem;" if register[1] == "w" else
                              f"cvt.u64.u32 {register}, %zsmem;")  # fmt: skip
        elif space == "generic shared":
            self.lines.append(f"cvt.u64.u32 {register}, %zsmem; cvta.shared.u64 {register}, {register};")
        elif space == "local":
            bits = _BITS[register[1]]
            self.lines.append(f"mov.u{bits} {register}, stack;")
        elif space == "const":
            self.lines.append(f"mov.u64 {register}, fixed;")
        elif space.startswith("param"):
            self.lines.append(f"mov.u64 {register}, parameter;")
        elif "nc" in self.ins.parts:
            # Such a load may miss what this kernel has written.
            self.lines.append(f"mul.wide.u32 %zl5, %zw1, {SLOT}; add.u64 {register}, %zmaps, %zl5;")
            self.lines.append(f"sub.u64 {register}, {register}, {MAPS};")
        else:
            offset = 8 * RESULTS + (MULTIMEM if self.ins.parts[0] == "multimem" else 0)
            self.lines.append(f"add.u64 {register}, %zout, {offset};")

    def memory(self, form: OperandForm, operand: Mem) -> None:
        register = operand.base.name if isinstance(operand.base, Reg) else ""
        space = self.given.get(form.space, form.space)
        for inner, part in zip(form.inner, operand.parts, strict=True):
            self.operand(inner, part)
        if not register:
            return
        generic = register[1] == "l"
        if space == "tmem":
            self.lines.append(f"mov.b32 {register}, {_COLUMNS.get(form.name, 0)};")
            return
        if form.name in ("mbar", "response") and space != "tmem":
            offset = 0 if form.name == "mbar" else 16
            offset += 16 if self.ins.opcode.startswith("mbarrier.init") else 0
            self.lines.append(f"mov.u32 %zw2, zbar; add.u32 %zw2, %zw2, {offset};")
            self.lines.append(f"cvt.u64.u32 {register}, %zw2; cvta.shared.u64 {register}, {register};" if generic else
                              f"mov.u32 {register}, %zw2;")  # fmt: skip
        elif form.name == "map" or self.ins.parts[-1] == "tensormap":
            dims = self.given.get("dim", "2d")[0]
            mode = self.given.get("mode", "")
            kind = 1 if mode.startswith("im2col") else 2 if mode.endswith("4") else 0
            if self.ins.parts[0] == "tensormap":
                self.slot = "map"
                if generic:
                    self.lines.append(f"add.u64 {register}, %zmaps, {map_offset(2, 0)};")
                else:
                    self.lines.append(f"mov.u32 {register}, smem;")
            else:
                self.lines.append(f"add.u64 {register}, %zmaps, {map_offset(int(dims), kind)};")
        elif self.shared_only():
            if generic:
                self.address(register, "generic shared")
            else:
                self.address(register, "shared")
            self.slot = "shared"
        else:
            self.address(register, space)
            self.slot = self.slot or ("shared" if space.startswith("shared") else "global")

    def shared_only(self) -> bool:
        """Generic addresses of these must be in shared memory."""
        p = self.ins.parts
        if p[0] in ("ldmatrix", "stmatrix", "tcgen05"):
            return True
        return p[:2] in (("st", "async"), ("red", "async"), ("st", "bulk"))

    def trial(self) -> Trial:
        for form, operand in self.ins.bound:
            self.operand(form, operand)
        if self.ins.parts[0] in ("addc", "subc", "madc"):
            before = "sub" if self.ins.parts[0] == "subc" else "add"
            self.lines.append(f"{before}.cc.u32 %zw2, %zw1, 0xFFFFFC00;")
        return Trial(self.text, self.module(self.text), self.threads, VALUES // self.threads, self.cluster)

    def module(self, text: str) -> str:
        threads = self.threads
        shared = 32768 if self.tensor_core() else max(threads * SLOT, 4096)
        prelude = f"""
.reg .b32 %zw<8>; .reg .b64 %zl<8>; .reg .b64 %zin, %zout, %zmaps; .reg .b32 %zsmem; .reg .pred %zp<4>;
.shared .align 1024 .b8 zslots[{shared}]; .shared .align 16 .b8 zbar[64];
mov.u32 %zw0, %tid.x; mov.u32 %zw1, %ctaid.x; mad.lo.u32 %zw1, %zw1, {threads}, %zw0;
ld.param.u64 %zin, [in]; ld.param.u64 %zmaps, [in]; ld.param.u64 %zout, [out];
mul.wide.u32 %zl0, %zw1, 8; add.u64 %zin, %zin, %zl0; add.u64 %zmaps, %zmaps, {MAPS};
mul.wide.u32 %zl1, %zw1, {ROW}; add.u64 %zout, %zout, %zl1;
mov.u32 %zsmem, zslots; mad.lo.u32 %zsmem, %zw0, {SLOT}, %zsmem;
setp.eq.u32 %zp0, %zw0, 0;
@%zp0 mbarrier.init.shared::cta.b64 [zbar], {4 * threads}; @%zp0 mbarrier.init.shared::cta.b64 [zbar+8], {threads};
"""
        fill = []
        for i in range(SLOT // 8):
            place = column_offset(self.slot_kind(), i + 4)
            fill.append(f"ld.global.b64 %zl3, [%zin+{place}]; st.shared.b64 [%zsmem+{8 * i}], %zl3;"
                        f" st.global.b64 [%zout+{8 * RESULTS + 8 * i}], %zl3;")  # fmt: skip
        fill.append("bar.sync 0;")
        dump = ["bar.sync 0;"]
        place = 0
        for register, bits in self.results[:RESULTS]:
            if bits == 1:
                dump.append(f"selp.b32 %zw2, 1, 0, {register}; st.global.b32 [%zout+{place}], %zw2;")
            elif bits == 128:
                dump.append(f"mov.b128 {{%zl2, %zl3}}, {register}; st.global.b64 [%zout+{place}], %zl2;"
                            f" st.global.b64 [%zout+{place + 8}], %zl3;")  # fmt: skip
                place += 8
            else:
                dump.append(f"st.global.b{bits} [%zout+{place}], {register};")
            place += 8
        if self.allocates():
            prelude += (
                "setp.lt.u32 %zp2, %zw0, 32;"
                " @!%zp2 bra ZA; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [zbar+32], 512; ZA:"
                " mov.u32 %zw2, 0; bar.sync 0;\n"
            )
        if self.sparse:
            # Metadata: the first two elements of every four.
            words = ", ".join(["%zw3"] * 16)
            prelude += (
                "mov.b32 %zw3, 0x44444444; and.b32 %zw2, %zw0, 96; shl.b32 %zw2, %zw2, 16; add.u32 %zw2, %zw2, 256;\n"
                f"tcgen05.st.sync.aligned.32x32b.x16.b32 [%zw2], {{{words}}}; tcgen05.wait::st.sync.aligned;\n"
            )
        if self.ins.parts[0] == "tcgen05":
            dump.append("@%zp0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%zl6];")
            dump.append("ZW: mbarrier.try_wait.parity.shared::cta.b64 %zp1, [zbar+48], 0; @!%zp1 bra ZW;")
            if not self.allocates():
                dump.append("setp.lt.u32 %zp2, %zw0, 32;")
            dump.append("tcgen05.wait::ld.sync.aligned; tcgen05.wait::st.sync.aligned; bar.sync 0; mov.u32 %zw2, 0;")
            if self.ins.parts[1] != "dealloc":
                dump.append("@!%zp2 bra ZD; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %zw2, 512; ZD:")
            prelude += "@%zp0 mbarrier.init.shared::cta.b64 [zbar+48], 1; bar.sync 0;\n"
            prelude += "mov.u32 %zw2, zbar; add.u32 %zw2, %zw2, 48;\n"
            prelude += "cvt.u64.u32 %zl6, %zw2; cvta.shared.u64 %zl6, %zl6;\n"
        if self.slot != "global":
            for i in range(SLOT // 8):
                dump.append(f"ld.shared.b64 %zl3, [%zsmem+{8 * i}]; st.global.b64 [%zout+{8 * RESULTS + 8 * i}], %zl3;")
        head = HEAD.format(version="9.0", target=self.target)
        guard = "@%zp0 " if self.once() else ""
        if self.ins.opcode.startswith("barrier.cluster.wait"):
            self.lines.append("barrier.cluster.arrive;")
        if self.ins.opcode.startswith("tensormap.cp_fenceproxy"):
            # One copy by a warp: all threads name the places of the first.
            self.lines.append("mov.b64 {%zw2, %zw3}, %l1; shfl.sync.idx.b32 %zw2, %zw2, 0, 31, -1;"
                              " shfl.sync.idx.b32 %zw3, %zw3, 0, 31, -1; mov.b64 %l1, {%zw2, %zw3};"
                              " shfl.sync.idx.b32 %w2, %w2, 0, 31, -1;")  # fmt: skip
        return "\n".join([
            head, ".visible .entry k(.param .u64 in, .param .u64 out, .param .align 64 .b8 parameter[64]) {",
            REGISTERS, prelude, *fill, *self.lines, guard + text, *dump, "END: ret;", "}",
        ])  # fmt: skip

    def allocates(self) -> bool:
        return self.ins.parts[0] == "tcgen05" and self.ins.parts[1] != "alloc"

    def slot_kind(self) -> str:
        """What memory holds before."""
        type_ = self.ins.parts[-1]
        return {"f32": "f32", "f64": "f64", "f16": "f16x2", "f16x2": "f16x2", "bf16": "bf16x2", "bf16x2": "bf16x2"}.get(
            type_, "i64"
        )

    def once(self) -> bool:
        """One thread issues it."""
        name = self.ins.parts[0]
        tensor = any(isinstance(o, Mem) and o.parts for o in self.ins.operands)
        single = self.ins.opcode.startswith("mbarrier.init")
        single = single or (name == "tcgen05" and self.form.issue == "thread" and "::" not in self.ins.parts[1])
        alone = name in ("clusterlaunchcontrol", "tensormap") and "aligned" not in self.ins.parts
        return tensor or single or alone


_INCOMPARABLE = (
    "tcgen05", "wgmma", "multimem", "tensormap", "clusterlaunchcontrol", "setmaxnreg", "trap", "brkpt", "discard",
    "createpolicy", "mapa", "getctarank", "cvta", "isspacep", "stack", "alloca", "griddepcontrol", "cp.async",
    "cp.reduce", "st.async", "red.async", "st.bulk", "mbarrier", "exit", "pmevent", "ret", "bra", "brx", "call",
    "activemask", "barrier.cluster",
)  # fmt: skip


def comparable(text: str) -> bool:
    """Whether the results of a trial are the same on any chip that executes it.

    Not so for approximations, for what is opaque (addresses, policies, phases), and for what completes later or
    ends the thread.
    """
    opcode = text.split()[0].rstrip(";")
    parts = set(opcode.split("."))
    return not opcode.startswith(_INCOMPARABLE) and not parts & {
        "approx", "full", "tensormap", "param", "param::entry", "param::func", "const", "local",
    }  # fmt: skip


def trial(text: str, target: str) -> Trial:
    """The kernel of a sample instruction. Raises UnknownInstruction."""
    instruction = parse_template((REGISTERS + text).replace("%", "%%")).instructions()[-1]
    return _Writer(instruction, text, target).trial()
