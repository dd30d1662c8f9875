# --- MMAs of 128 rows


class _Wide(_Emitter):
    """Tile (m, n) of a list of them is one half of the MMA that makes it with another one. An MMA has `rows`, in the
    CTAs of a `group`."""

    rows = 128
    group = nvvm.CTAGroupKind.CTA_1

    def _issued(self, event: _Event) -> Iterator[tuple[int, tuple[int, int], Any]]:
        """The first column behind the accumulator's, (m, n) of the first of both tiles, and the flag of each MMA."""
        for (start, place), enable in zip(event.tiles, event.enabled, strict=True):
            yield start, place, enable

    def _issue(self, event: _Event) -> None:
        kind, description = _instruction(event.mma.op)
        description += (self.rows - 64) >> 4 << 24
        blocks = cute.size(event.b, mode=[2]) if cute.rank(event.b) > 2 else 1
        for k in range(blocks):
            for start, (i, j), enable in self._issued(event):
                if event.operand is None:
                    a = _descriptor(event.a, i, k)
                else:
                    array = event.operand
                    a = _tensor_memory(self.base + array.column + array.width + 8 * event.places[i, k])
                d, b = _tensor_memory(self.base + event.array.column + start), _descriptor(event.b, j, k)
                adds = (enable if k == 0 else cutlass.Boolean(True)).ir_value()
                nvvm.tcgen05_mma(kind, self.group, d, a, b, cutlass.Int32(description).ir_value(), adds)
