}  // namespace porter

// ---- CuTe's functions on accumulators -----------------------------------------------------------------------------

namespace cute {
template <class Atom, class Threads, class Permutation, class EngineA, class LayoutA, class EngineB, class LayoutB,
          class Engine, class Layout>
CUTE_DEVICE void gemm(TiledMMA<Atom, Threads, Permutation> const& mma, Tensor<EngineA, LayoutA> const& A,
                      Tensor<EngineB, LayoutB> const& B, Tensor<Engine, Layout>& acc) {
    porter::gemm<Atom>(mma, A, B, acc);
}
template <class Atom, class Threads, class Permutation, class EngineA, class LayoutA, class EngineB, class LayoutB,
          class Engine, class Layout>
CUTE_DEVICE void gemm(TiledMMA<Atom, Threads, Permutation> const& mma, Tensor<EngineA, LayoutA> const& A,
                      Tensor<EngineB, LayoutB> const& B, Tensor<Engine, Layout>&& acc) {
    porter::gemm<Atom>(mma, A, B, acc);
}

// clear, fill, warpgroup_fence_operand: for an accumulator and for a view of one.
template <class T, class F, class Layout>
CUTE_DEVICE void clear(Tensor<porter::MirrorEngine<T, F>, Layout>& acc) {
    porter::fill(acc, 0);
}
template <class T, class F, class Layout>
CUTE_DEVICE void clear(Tensor<ViewEngine<porter::MirrorPtr<T, F>>, Layout>& acc) {
    porter::fill(acc, 0);
}
template <class T, class F, class Layout, class Value>
CUTE_DEVICE void fill(Tensor<porter::MirrorEngine<T, F>, Layout>& acc, Value const& value) {
    porter::fill(acc, value);
}
template <class T, class F, class Layout, class Value>
CUTE_DEVICE void fill(Tensor<ViewEngine<porter::MirrorPtr<T, F>>, Layout>& acc, Value const& value) {
    porter::fill(acc, value);
}
template <class T, class F, class Layout>
CUTE_DEVICE void warpgroup_fence_operand(Tensor<porter::MirrorEngine<T, F>, Layout>&) {}
template <class T, class F, class Layout>
CUTE_DEVICE void warpgroup_fence_operand(Tensor<ViewEngine<porter::MirrorPtr<T, F>>, Layout>&) {}
}  // namespace cute

namespace porter {
// Of an A fragment, a tile of which an MMA has for the accumulator's tile in the other half of the lanes, in a CTA whose
// one warpgroup has both halves.
template <class Operand>
CUTE_DEVICE constexpr void require_own_tiles() {
    if constexpr (operand_columns_of<1, Operand>() > 0) {
        using Layout = OperandLayout<typename remove_cvref_t<Operand>::layout_type>;
        static_assert(run_of_halves<Layout>() == 0, "an m64 tile of A from registers is multiplied into a tile of the "
                      "accumulator with another number, whose lanes do not have it: make the numbers equal");
    }
}
}  // namespace porter
