#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Programs on a Hopper GPU become cases; these hold on the GPU, in the simulator, and for ports in both.
#   scripts/gpu_capture.sh FOLDER
# FOLDER holds programs, as many of them as there are:
#   gemm_ws          corpus/gemm_ws with its own main(), with PTX in it
#   gemm_ws_binary   the same as a binary only
#   wgmma_tma_sm90   NVIDIA's tutorial (examples/cute/tutorial/hopper/wgmma_tma_sm90.cu), with PTX in it
#   dsl, dsl.ptx     a CuTe DSL kernel (corpus/dsl_gemm) called from C++, and its PTX
# and scripts/torch_gemm.py runs a corpus kernel in a PyTorch extension, where PyTorch is.
programs=$(realpath --relative-to="$(dirname "$0")/.." "$1")
cd "$(dirname "$0")/.." || exit 1
porter=${PORTER:-porter}
cases=build/captured-on-gpu
rm -rf $cases
source=corpus/gemm_ws/gemm_ws.cu
failed=0
export PORTER_TRUST=1

step() {
  echo "\$ porter $*"
  $porter "$@" 2>&1 || failed=1
}

capture() {  # NAME ARGUMENTS-OF-CAPTURE...
  local name=$1
  shift
  echo "== $name"
  step capture -o "$cases/$name" "$@"
}

if [ -x "$programs/gemm_ws" ]; then
  capture gemm_ws --source $source -- "$programs/gemm_ws" 256 256 512
  step verify "$cases/gemm_ws" --backend hopper
  step verify "$cases/gemm_ws" --backend sim
fi
if [ -x "$programs/gemm_ws_binary" ]; then
  capture binary -- "$programs/gemm_ws_binary" 128 256 192
  step verify "$cases/binary" --backend gpu
  step verify "$cases/binary" --backend sim --source $source
fi
if [ -x "$programs/wgmma_tma_sm90" ]; then
  capture tutorial -- "$programs/wgmma_tma_sm90" 256 256 128
  step verify "$cases/tutorial" --backend gpu
  step verify "$cases/tutorial" --backend sim
fi
if [ -x "$programs/dsl" ]; then
  capture dsl --ptx "$programs/dsl.ptx" -- "$programs/dsl"
  step verify "$cases/dsl" --backend gpu
  step verify "$cases/dsl" --backend sim
fi
if python3 -c 'import torch' 2> /dev/null; then
  capture torch --kernel gemm_ws --source $source -- python3 scripts/torch_gemm.py
  step verify "$cases/torch" --backend hopper
  step verify "$cases/torch" --backend sim
fi
[ $failed = 0 ] && echo "all hold"
exit $failed
