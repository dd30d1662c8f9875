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
