#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# NVIDIA's Hopper tutorials in CuTe C++ on a Hopper GPU: their ports, lowered, run with their own main(), which launches
# a kernel a hundred times; and the launches of the originals become cases in which the port gives the original's bits,
# in both modes.
#   scripts/gpu_cute_ports.sh [CUTLASS]     CUTLASS' sources; those of the installed package nvidia-cutlass otherwise
cutlass=${1:-$(python3 -c 'import cutlass_library, pathlib; print(pathlib.Path(cutlass_library.__file__).parent / "source")')}
cd "$(dirname "$0")/.." || exit 1
porter=${PORTER:-porter}
include=(-I "$cutlass/include" -I "$cutlass/tools/util/include")
flags=(-std=c++17 --expt-relaxed-constexpr -O3)
out=build/cute-ports-on-gpu
rm -rf $out
mkdir -p $out
failed=0
export PORTER_TRUST=1

step() {
  echo "\$ $*"
  "$@" 2>&1 || { echo "exit $?"; failed=1; }
}

build() {  # NAME
  local source=$cutlass/examples/cute/tutorial/hopper/$1.cu
  step $porter port --style compat "$source" "${include[@]}" -o "$out/$1" --no-compile
  step nvcc "${flags[@]}" "${include[@]}" -gencode arch=compute_90a,code='[sm_90a,compute_90a]' "$source" -o "$out/$1.original" -lcuda
  step $porter nvcc "${flags[@]}" "${include[@]}" -arch=sm_100a "$(find "$out/$1" -name "$1.cu")" -o "$out/$1.port" -lcuda
}

check() {  # NAME ARGUMENTS
  local source=$cutlass/examples/cute/tutorial/hopper/$1.cu cases=$out/cases/$1-${2// /-} mode
  echo "== $1 $2"
  PORTER_MODE=deferred step timeout 100 "$out/$1.port" $2
  step $porter capture -o "$cases" --source "$source" "${include[@]}" -- "$out/$1.original" $2
  for mode in eager deferred; do
    step timeout 200 $porter verify --style compat "$cases" --backend hopper --mode $mode
  done
}

all() {  # FUNCTION ARGUMENTS-A-LINE: at the same time, each with a log of its own
  local job line logs=()
  while read -r line; do
    logs+=("$out/$1-${line//[ |]/-}.log")
    ( failed=0; "$1" "${line%%|*}" "${line#*|}"; exit $failed ) > "${logs[-1]}" 2>&1 &
  done <<< "$2"
  for job in $(jobs -p); do wait "$job" || failed=1; done
  cat "${logs[@]}"
}

all build "wgmma_sm90
wgmma_tma_sm90"
all check "wgmma_sm90|256 128 256 N T
wgmma_sm90|512 256 192 T N
wgmma_sm90|256 256 320 N T
wgmma_tma_sm90|256 128 256 N T
wgmma_tma_sm90|512 256 192 T N
wgmma_tma_sm90|256 256 320 N T"
[ $failed = 0 ] && echo "all hold"
exit $failed
