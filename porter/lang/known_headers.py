# SPDX-License-Identifier: Apache-2.0
"""Headers that are no part of a project: the language's, the system's, the toolkit's, and libraries with kernels of
their own or none. Names are as `#include` has them; what a file includes beyond these is its project's."""

from __future__ import annotations

import re

# C++23 [headers], and the C headers that C++ keeps.
_LANGUAGE = """
    algorithm any array atomic barrier bit bitset cassert ccomplex cctype cerrno cfenv cfloat charconv chrono cinttypes
    ciso646 climits clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp csignal
    cstdalign cstdarg cstdbool cstddef cstdint cstdio cstdlib cstring ctgmath ctime cuchar cwchar cwctype deque
    exception execution expected filesystem flat_map flat_set format forward_list fstream functional future generator
    initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map mdspan memory
    memory_resource mutex new numbers numeric optional ostream print queue random ranges ratio regex scoped_allocator
    semaphore set shared_mutex source_location span spanstream sstream stack stacktrace stdexcept stdfloat stop_token
    streambuf string string_view strstream syncstream system_error thread tuple type_traits typeindex typeinfo
    unordered_map unordered_set utility valarray variant vector version cxxabi.h
    assert.h complex.h ctype.h errno.h fenv.h float.h inttypes.h iso646.h limits.h locale.h math.h setjmp.h signal.h
    stdalign.h stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h tgmath.h time.h uchar.h
    wchar.h wctype.h
"""
_LANGUAGE_NAMES = frozenset(_LANGUAGE.split())
# POSIX, Windows and compilers.
_SYSTEM = re.compile(
    r"(?:sys|bits|linux|netinet|arpa|net|asm|ext|experimental|mach|machine)/.*|(?:unistd|pthread|fcntl|dlfcn|getopt|poll"
    r"|sched|semaphore|spawn|strings|termios|syslog|dirent|glob|libgen|link|malloc|alloca|memory|netdb|pwd|values|execinfo"
    r"|windows|Windows|io|direct|process|tchar|intrin|float|features|endian|byteswap|ucontext|omp|numa|numaif"
    r"|\w*intrin)\.h"
)
# The CUDA toolkit with CCCL, and NVIDIA's libraries beside it.
_TOOLKIT = re.compile(
    r"(?:cuda|cub|thrust|nv|nvtx3|cooperative_groups|crt|nvml|nvshmem|cudnn|cudnn_frontend|cublasmp|cublasdx|cusolverdx"
    r"|cufftdx|cutensor)/.*"
    r"|(?:cuda\w*|cu(?:blas|sparse|solver|fft|rand|dnn|tensor|pti|file|d?ss)\w*|curand_?\w*|nv(?:rtc|ml|Tx|ToolsExt|shmem"
    r"|JitLink|jitlink|PTXCompiler|vm|fatbin|jpeg|graph|perf_?|comp)\w*|nccl\w*|npp\w*|cooperative_groups|mma|fatbinary\w*"
    r"|device_\w+|vector_(?:types|functions)|driver_(?:types|functions)|builtin_types|library_types|channel_descriptor"
    r"|host_(?:config|defines)|math_(?:constants|functions)|(?:texture|surface)_\w+|sm_\d\d_\w+|common_functions"
    r"|func_macro|cusolver\w*)\.(?:h|hpp)"
)
_LIBRARIES = re.compile(
    r"(?:cutlass|cute|torch|ATen|c10|caffe2|torchvision|tensorflow|tsl|xla|jax|jaxlib|paddle|pybind11|nanobind|numpy|dlpack"
    r"|tvm|tvm_ffi|gtest|gmock|benchmark|catch2|doctest|fmt|spdlog|glog|gflags|boost|Eigen|absl|google|nlohmann|rapidjson"
    r"|folly|opencv2|zlib|png|OpenGL|GL|GLFW|tbb|hip|rocm|hipcub|rocprim|mpi|NvInfer|executorch)/.*"
    r"|(?:Python|pybind11|mpi|zlib|png|NvInfer\w*|hip\w*|gtest|doctest|catch|json)\.(?:h|hpp)"
)


_TEMPLATES = ("cutlass/", "cute/")
"""Libraries of templates that a project often has a copy of, and that kernels are written in."""


def is_library(name: str, in_project: bool) -> bool:
    """Whether an included name that a search directory answers is a library's, whose constructs are known by their
    names. A header in the project is its own unless it is of CUTLASS."""
    name = name.removeprefix("./")
    return name.startswith(_TEMPLATES) or (not in_project and _LIBRARIES.fullmatch(name) is not None)


def is_known(name: str) -> bool:
    """Whether an included name is of the language, the system, the toolkit or a library, not of the project."""
    name = name.removeprefix("./")
    return name in _LANGUAGE_NAMES or any(p.fullmatch(name) for p in (_SYSTEM, _TOOLKIT, _LIBRARIES))
