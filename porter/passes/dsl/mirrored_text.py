# SPDX-License-Identifier: Apache-2.0
"""Classes that a port of register accumulators brings along: an MMA that looks like one of a warpgroup.

`@cute@`, `@cutlass@`, `@tcgen05@`, `@nvvm@`, `@copy@` are the file's names of these modules, `@Mma@` and
`@Warpgroup@` those of the classes. The order of the registers is that of tcgen05.ld.16x256b for accumulators of 64
rows, and of tcgen05.st.16x128b for operands A (PTX ISA 9.7.16.8; CUTLASS include/cute/atom/copy_traits_sm100.hpp). An
accumulator of 64 rows takes 16 of 32 lanes (PTX ISA 9.7.16.10.5), so two warpgroups share columns.
"""

from __future__ import annotations

CLASSES = '''
class @Mma@:
    """An MMA of 64 rows in Tensor Memory whose accumulator a warpgroup holds in registers between MMAs.

    Threads hold ((2, 2, N / 8), 1, 1) elements: pairs of columns, rows 8 apart, blocks of 8 columns. `stage` and
    `stage_operand` put registers where the MMA reads them, `fetch` brings the result back. MMAs stand under
    `if mma.issues():`, between `begin` and `finish`.
    """

    def __init__(self, mma, owner):
        self.mma, self.owner = mma, owner
        self.shape_mnk = mma.shape_mnk
        rows, self.columns, _ = self.shape_mnk
        if rows != 64 or mma.op.acc_dtype.width != 32:
            raise ValueError("accumulators in registers are those of 64 rows of 32-bit elements")
        fragment = mma.make_fragment_C(mma.partition_shape_C((rows, self.columns)))
        self.accumulator = @cute@.make_tensor(owner.take(self.columns), fragment.layout)
        self.tv_layout_C = @cute@.make_layout(
            ((4, 8, 4), (2, 2, self.columns // 8)), stride=((128, 1, 16), (64, 8, 512))
        )
        self.tv_layout_C_tiled = self.tv_layout_C
        packed = 32 // mma.op.a_dtype.width
        self.tv_layout_A = @cute@.make_layout(
            ((4, 8, 4), (packed, 2, 2)), stride=((64 * packed, 1, 16), (64, 8, 256 * packed))
        )

    def __extract_mlir_values__(self):
        return @cutlass@.extract_mlir_values(self.mma)

    def __new_from_mlir_values__(self, values):
        other = @copy@.copy(self)
        other.mma = @cutlass@.new_from_mlir_values(self.mma, values)
        return other

    def set(self, field, value):
        self.mma.set(field, value)

    def get_tile_size(self, mode):
        return self.shape_mnk[mode]

    def get_slice(self, thread):
        other = @copy@.copy(self)
        other.thread = thread % 128
        return other

    def partition_A(self, tensor):
        return self.mma.get_slice(0).partition_A(tensor)

    def partition_B(self, tensor):
        return self.mma.get_slice(0).partition_B(tensor)

    def make_fragment_A(self, tensor):
        return self.mma.make_fragment_A(tensor)

    def make_fragment_B(self, tensor):
        return self.mma.make_fragment_B(tensor)

    def partition_shape_C(self, shape):
        if (shape[0], shape[1]) != (64, self.columns):
            raise ValueError(f"a tile of {shape} for MMAs of 64 x {self.columns}; a warpgroup has one accumulator")
        return ((2, 2, self.columns // 8), 1, 1)

    def make_fragment_C(self, shape):
        return @cute@.make_rmem_tensor(shape, self.mma.op.acc_dtype)

    def partition_C(self, tensor):
        """The elements of tiles (64, N, ...) that a slice's thread holds."""
        # Four warps of mma.m16n8 hold the same elements, blocks of 8 columns in a mode of their own.
        op = @cute@.nvgpu.warp.MmaF16BF16Op(@cutlass@.Float16, @cutlass@.Float32, (16, 8, 16))
        part = @cute@.make_tiled_mma(op, (4, 1, 1)).get_slice(self.thread).partition_C(tensor)
        pair, m, n, *rest = part.layout.shape
        d_pair, d_m, d_n, *d_rest = part.layout.stride
        blocks = self.columns // 8
        shape = ((*pair, blocks), m, n // blocks, *rest)
        stride = ((*d_pair, d_n), d_m, d_n * blocks, *d_rest)
        return @cute@.make_tensor(part.iterator, @cute@.make_layout(shape, stride=stride))

    def stage(self, acc):
        """Put an accumulator's registers into Tensor Memory."""
        region = self.accumulator[((None, None), 0, 0)]
        op = @tcgen05@.St16x256bOp(self.owner.repetition(self.columns // 8, 16))
        tiled, part, registers = self.owner.copy(op, acc, region, stores=True)
        @cute@.copy(tiled, registers, part.partition_D(region))

    def fetch(self, acc):
        """Bring an accumulator's registers up to date."""
        region = self.accumulator[((None, None), 0, 0)]
        op = @tcgen05@.Ld16x256bOp(self.owner.repetition(self.columns // 8, 16))
        tiled, part, registers = self.owner.copy(op, acc, region, stores=False)
        @cute@.copy(tiled, part.partition_S(region), registers)
        @cute@.arch.fence_view_async_tmem_load()

    def stage_operand(self, a):
        """Put the registers of an operand A into Tensor Memory, and say where they are."""
        width = a.element_type.width
        columns = @cute@.size(a) * width // 16
        where = self.owner.operand(columns)
        lanes = @cute@.make_layout(((16, 4), columns), stride=((1 << 16, 1 << 21), 1))
        region = @cute@.make_tensor(where, lanes)
        op = @tcgen05@.St16x128bOp(self.owner.repetition(columns // 4, 32))
        tiled, part, registers = self.owner.copy(op, a, region, stores=True)
        @cute@.copy(tiled, registers, part.partition_D(region))
        fragment = self.mma.make_fragment_A(self.mma.partition_shape_A((64, columns * 32 // width)))
        return @cute@.make_tensor(@cute@.recast_ptr(where, dtype=a.element_type), fragment.layout)

    def begin(self):
        """Every thread: what was staged is in place, what was fetched may be overwritten."""
        @cute@.arch.fence_view_async_tmem_store()
        @nvvm@.tcgen05_fence(@nvvm@.Tcgen05FenceKind.BEFORE_THREAD_SYNC)
        @cute@.arch.mbarrier_arrive(self.owner.staged)

    def issues(self):
        return @cute@.arch.make_warp_uniform(@cute@.arch.warp_idx()) % 4 == 0

    def acquire(self):
        """The issuing warp: all threads have begun."""
        @cute@.arch.mbarrier_wait(self.owner.staged, self.owner.phase[0])
        @nvvm@.tcgen05_fence(@nvvm@.Tcgen05FenceKind.AFTER_THREAD_SYNC)

    def commit(self):
        """The issuing warp: its MMAs complete the barrier that `finish` waits for."""
        with @cute@.arch.elect_one():
            @tcgen05@.commit(self.owner.done)

    def finish(self):
        """Every thread: the MMAs are done."""
        phase = self.owner.phase
        @cute@.arch.mbarrier_wait(self.owner.done, phase[0])
        @nvvm@.tcgen05_fence(@nvvm@.Tcgen05FenceKind.AFTER_THREAD_SYNC)
        phase[0] = phase[0] ^ 1


class @Warpgroup@:
    """Tensor Memory and barriers of one warpgroup. Two warpgroups share columns, each in half of the lanes."""

    def __init__(self, tmem_ptr, barriers, warpgroups, rank):
        self.width = 512 // ((warpgroups + 1) // 2)
        offset = (rank // 2) * self.width + (rank % 2) * (16 << 16)
        self.base = tmem_ptr + @cute@.assume(offset, divby=32)
        self.used = 0
        self.staged, self.done = barriers + 2 * rank, barriers + 2 * rank + 1
        self.phase = @cute@.make_rmem_tensor(1, @cutlass@.Int32)
        self.phase.fill(0)

    def take(self, columns):
        where = self.operand(columns)
        self.used += columns
        return where

    def operand(self, columns):
        """The columns behind the accumulators."""
        if self.used + columns > self.width:
            raise ValueError(f"{self.used + columns} columns of Tensor Memory, of {self.width} for a warpgroup")
        return self.base + self.used

    def repetition(self, blocks, most):
        """The widest access that divides a number of blocks."""
        return @tcgen05@.Repetition(min(blocks & -blocks, most))

    def copy(self, op, registers, region, stores):
        """A tiled copy, the thread's part of it, and registers in its order."""
        tiled = @tcgen05@.make_tmem_copy(@cute@.make_copy_atom(op, @cutlass@.Float32), region)
        part = tiled.get_slice(@cute@.arch.thread_idx()[0] % 128)
        tile = @cute@.make_identity_tensor((64, @cute@.size(region, mode=[1])))
        shape = (part.partition_S(tile) if stores else part.partition_D(tile)).shape
        words = @cute@.recast_ptr(registers.iterator, dtype=@cutlass@.Float32)
        return tiled, part, @cute@.make_tensor(words, @cute@.make_layout(shape))
'''
