// SPDX-License-Identifier: Apache-2.0
//
// Runs what a kit holds on the GPU of this machine and writes a record of it. It needs the NVIDIA driver (libcuda.so.1,
// loaded at run time) and nothing else.
//
//     launcher KIT_DIRECTORY RECORD
//
// `manifest` names every file with its SHA-256 and lists the runs; those for this GPU's architecture are done, each in
// a process of its own, so that a fault or a hang ends that run only. Fields are separated by blanks.

#include <cuda.h>
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

using Bytes = std::vector<unsigned char>;
using Words = std::vector<std::string>;

constexpr size_t kGuard = 4096;
constexpr int kTimed = 5;
constexpr int kSeconds = 120;
constexpr size_t kReport = 4096;
constexpr size_t kShown = 128;   // bytes of a probe's output that the record has
constexpr size_t kAnswer = 2048;  // and of an answer

// --- SHA-256 (FIPS 180-4)

class Sha256 {
  public:
    void add(const void* data, size_t size) {
        const auto* bytes = static_cast<const unsigned char*>(data);
        total_ += size;
        while (size != 0) {
            const size_t part = size < 64 - filled_ ? size : 64 - filled_;
            std::memcpy(block_ + filled_, bytes, part);
            filled_ += part, bytes += part, size -= part;
            if (filled_ == 64) mix();
        }
    }

    std::string hex() {
        const uint64_t bits = total_ * 8;
        const unsigned char one = 0x80, none = 0;
        add(&one, 1);
        while (filled_ != 56) add(&none, 1);
        unsigned char end[8];
        for (int i = 0; i < 8; ++i) end[i] = static_cast<unsigned char>(bits >> (56 - 8 * i));
        add(end, 8);
        char text[65];
        for (int i = 0; i < 8; ++i) std::snprintf(text + 8 * i, 9, "%08x", state_[i]);
        return text;
    }

  private:
    static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

    void mix() {
        static const uint32_t k[64] = {
            0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
            0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
            0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
            0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
            0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
            0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
            0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
            0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
        uint32_t w[64];
        for (int i = 0; i < 16; ++i) {
            w[i] = uint32_t(block_[4 * i]) << 24 | uint32_t(block_[4 * i + 1]) << 16 | uint32_t(block_[4 * i + 2]) << 8 |
                   block_[4 * i + 3];
        }
        for (int i = 16; i < 64; ++i) {
            const uint32_t a = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
            const uint32_t b = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
            w[i] = w[i - 16] + a + w[i - 7] + b;
        }
        uint32_t s[8];
        std::memcpy(s, state_, sizeof s);
        for (int i = 0; i < 64; ++i) {
            const uint32_t e = turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25);
            const uint32_t one = s[7] + e + ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
            const uint32_t a = turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22);
            const uint32_t two = a + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
            for (int j = 7; j > 0; --j) s[j] = s[j - 1];
            s[4] += one;
            s[0] = one + two;
        }
        for (int i = 0; i < 8; ++i) state_[i] += s[i];
        filled_ = 0;
    }

    uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned char block_[64];
    size_t filled_ = 0;
    uint64_t total_ = 0;
};

std::string digest(const Bytes& data) {
    Sha256 sum;
    sum.add(data.data(), data.size());
    return sum.hex();
}

[[noreturn]] void stop(const std::string& why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    std::exit(2);
}

Bytes read_file(const std::string& path) {
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) stop("cannot read " + path);
    Bytes data;
    unsigned char part[65536];
    for (size_t n; (n = std::fread(part, 1, sizeof part, file)) != 0;) data.insert(data.end(), part, part + n);
    std::fclose(file);
    return data;
}

Words split(const std::string& line) {
    Words words;
    for (size_t at = 0; at < line.size();) {
        const size_t end = line.find(' ', at) == std::string::npos ? line.size() : line.find(' ', at);
        if (end > at) words.push_back(line.substr(at, end - at));
        at = end + 1;
    }
    return words;
}

std::vector<Words> read_lines(const std::string& path) {
    const Bytes data = read_file(path);
    std::vector<Words> lines;
    std::string line;
    for (unsigned char c : data) {
        if (c == '\n') {
            lines.push_back(split(line));
            line.clear();
        } else {
            line += static_cast<char>(c);
        }
    }
    return lines;
}

uint64_t number(const std::string& word) { return std::strtoull(word.c_str(), nullptr, 10); }

// --- The driver

struct Driver {
    void* library = nullptr;

    template <class Function>
    Function get(const char* name) {
        auto found = reinterpret_cast<Function>(dlsym(library, name));
        if (found == nullptr) stop(std::string("the driver has no ") + name);
        return found;
    }
};

Driver driver;

#define DRIVER(name, symbol) driver.get<decltype(&name)>(symbol)

std::string failed(const char* call, CUresult status) {
    const char* name = nullptr;
    DRIVER(cuGetErrorName, "cuGetErrorName")(status, &name);
    return std::string(call) + ":" + (name != nullptr ? name : "?");
}

struct Failure {
    std::string what;
};

#define CALL(name, symbol, ...)                                          \
    do {                                                                 \
        const CUresult status_ = DRIVER(name, symbol)(__VA_ARGS__);      \
        if (status_ != CUDA_SUCCESS) throw Failure{failed(#name, status_)}; \
    } while (0)

struct Device {
    CUdevice handle = 0;
    int major = 0, minor = 0;

    int attribute(CUdevice_attribute which) const {
        int value = 0;
        CALL(cuDeviceGetAttribute, "cuDeviceGetAttribute", &value, which, handle);
        return value;
    }
};

Device open_device() {
    Device device;
    CALL(cuInit, "cuInit", 0);
    CALL(cuDeviceGet, "cuDeviceGet", &device.handle, 0);
    device.major = device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    device.minor = device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return device;
}

// --- One run

struct Run {
    Words head;
    std::vector<Words> lines;
};

struct Memory {
    CUdeviceptr start = 0;
    size_t size = 0;
    Bytes before;
};

CUdeviceptr allocate(size_t size, int value) {
    CUdeviceptr found = 0;
    CALL(cuMemAlloc, "cuMemAlloc_v2", &found, size);
    CALL(cuMemsetD8, "cuMemsetD8_v2", found, static_cast<unsigned char>(value), size);
    return found;
}

CUtensorMap encode(const Words& w, CUdeviceptr base) {
    // map NAME TENSOR OFFSET TYPE RANK sizes strides box steps interleave swizzle l2 oob
    const unsigned rank = static_cast<unsigned>(number(w[5]));
    size_t at = 6;
    cuuint64_t sizes[5] = {}, strides[5] = {};
    cuuint32_t box[5] = {}, steps[5] = {};
    for (unsigned i = 0; i < rank; ++i) sizes[i] = number(w[at++]);
    for (unsigned i = 0; i + 1 < rank; ++i) strides[i] = number(w[at++]);
    for (unsigned i = 0; i < rank; ++i) box[i] = static_cast<cuuint32_t>(number(w[at++]));
    for (unsigned i = 0; i < rank; ++i) steps[i] = static_cast<cuuint32_t>(number(w[at++]));
    CUtensorMap map;
    CALL(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled", &map, static_cast<CUtensorMapDataType>(number(w[4])), rank,
         reinterpret_cast<void*>(base + number(w[3])), sizes, strides, box, steps,
         static_cast<CUtensorMapInterleave>(number(w[at])), static_cast<CUtensorMapSwizzle>(number(w[at + 1])),
         static_cast<CUtensorMapL2promotion>(number(w[at + 2])),
         static_cast<CUtensorMapFloatOOBfill>(number(w[at + 3])));
    return map;
}

Bytes unhex(const std::string& text) {
    Bytes data;
    for (size_t i = 0; i + 1 < text.size(); i += 2) {
        data.push_back(static_cast<unsigned char>(std::strtoul(text.substr(i, 2).c_str(), nullptr, 16)));
    }
    return data;
}

Words parts_of(const std::string& word) {
    Words parts(1);
    for (char c : word) {
        if (c == ':') parts.emplace_back();
        else parts.back() += c;
    }
    return parts;
}

class Launch {
  public:
    Launch(const std::string& kit, const Run& run) : kit_(kit), run_(run) {}

    // Writes `time` and `out` lines to `to`.
    void go(std::FILE* to) {
        for (const Words& w : run_.lines) {
            if (w[0] == "tensor") place(w);
            else if (w[0] == "map") maps_[w[1]] = encode(w, memory_.at(w[2]).start + kGuard);
        }
        for (const Words& w : run_.lines) {
            if (w[0] == "param") add_parameter(w);
            else if (w[0] == "image") load(w);
            else if (w[0] == "launch") configure(w);
        }
        for (const Words& w : run_.lines) {
            if (w[0] == "emulate") emulate(w);
        }
        start();
        std::fprintf(to, "status ok\n");
        for (const Words& w : run_.lines) {
            if (w[0] == "tensor" && (w[4] == "out" || w[4] == "probe")) report(w, to);
        }
        if (!is_emulated_) {
            std::fprintf(to, "microseconds");
            for (int i = 0; i < kTimed; ++i) std::fprintf(to, " %.3f", 1000.0 * start());
            std::fprintf(to, "\n");
        }
        // What an answer says of time is of the last launch, when caches and clocks are warm.
        for (const Words& w : run_.lines) {
            if (w[0] == "tensor" && w[4] == "answer") show(w[1], inner(memory_.at(w[1]), read_back(w[1])), kAnswer, to);
        }
        std::fflush(to);
    }

  private:
    void place(const Words& w) {
        Memory memory;
        const size_t size = number(w[2]);
        memory.size = size;
        memory.before.assign(size + 2 * kGuard, 0xff);
        if (w[3].compare(0, 5, "fill:") == 0) {
            const Bytes word = unhex(w[3].substr(5));
            for (size_t i = 0; i < size; ++i) memory.before[kGuard + i] = word[i % word.size()];
        } else if (w[3] != "-") {
            const Bytes data = read_file(kit_ + "/" + w[3]);
            if (data.size() != size) throw Failure{"size-of:" + w[3]};
            std::memcpy(memory.before.data() + kGuard, data.data(), size);
        }
        memory.start = allocate(size + 2 * kGuard, 0xff);
        CALL(cuMemcpyHtoD, "cuMemcpyHtoD_v2", memory.start, memory.before.data(), memory.before.size());
        memory_[w[1]] = memory;
    }

    void add_parameter(const Words& w) {
        Bytes data = unhex(w[1] == "-" ? "" : w[1]);
        for (size_t i = 2; i < w.size(); ++i) {
            const Words part = parts_of(w[i]);
            const size_t at = number(part[0]);
            CUdeviceptr address = 0;
            if (part[1] == "tensor") {
                address = memory_.at(part[2]).start + kGuard + number(part[3]);
            } else if (part[1] == "map") {
                std::memcpy(data.data() + at, &maps_.at(part[2]), sizeof(CUtensorMap));
                continue;
            } else {
                address = allocate(sizeof(CUtensorMap), 0);
                CALL(cuMemcpyHtoD, "cuMemcpyHtoD_v2", address, &maps_.at(part[2]), sizeof(CUtensorMap));
            }
            std::memcpy(data.data() + at, &address, sizeof address);
        }
        // A tensor map has to lie at a multiple of 64 bytes.
        auto* aligned = static_cast<unsigned char*>(std::aligned_alloc(128, (data.size() + 127) / 128 * 128 + 128));
        std::memcpy(aligned, data.data(), data.size());
        parameters_.push_back(aligned);
    }

    void load(const Words& w) {
        const Bytes image = read_file(kit_ + "/" + w[1]);
        CALL(cuModuleLoadData, "cuModuleLoadData", &module_, image.data());
        CALL(cuModuleGetFunction, "cuModuleGetFunction", &function_, module_, w[2].c_str());
    }

    void configure(const Words& w) {
        config_ = CUlaunchConfig{};
        config_.gridDimX = unsigned(number(w[1])), config_.gridDimY = unsigned(number(w[2]));
        config_.gridDimZ = unsigned(number(w[3]));
        config_.blockDimX = unsigned(number(w[4])), config_.blockDimY = unsigned(number(w[5]));
        config_.blockDimZ = unsigned(number(w[6]));
        config_.sharedMemBytes = unsigned(number(w[10]));
        if (config_.sharedMemBytes != 0) {
            CALL(cuFuncSetAttribute, "cuFuncSetAttribute", function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                 static_cast<int>(config_.sharedMemBytes));
        }
        const uint64_t ctas = number(w[7]) * number(w[8]) * number(w[9]);
        if (ctas > 8) {
            CALL(cuFuncSetAttribute, "cuFuncSetAttribute", function_,
                 CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
        }
        attributes_.clear();
        if (ctas > 1) {
            CUlaunchAttribute cluster = {};
            cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            cluster.value.clusterDim.x = unsigned(number(w[7])), cluster.value.clusterDim.y = unsigned(number(w[8]));
            cluster.value.clusterDim.z = unsigned(number(w[9]));
            attributes_.push_back(cluster);
        }
        if (number(w[11]) != 0) {
            CUlaunchAttribute together = {};
            together.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
            together.value.cooperative = 1;
            attributes_.push_back(together);
        }
        config_.attrs = attributes_.data();
        config_.numAttrs = unsigned(attributes_.size());
    }

    // Memory that stands for Tensor Memory, and the module's variable that says where it is.
    void emulate(const Words& w) {
        // emulate VARIABLE TMEM STATES QUEUE SMS PATIENCE CTAS MODE
        is_emulated_ = true;
        void* host = nullptr;
        CUdeviceptr report = 0;
        CALL(cuMemHostAlloc, "cuMemHostAlloc", &host, kReport, CU_MEMHOSTALLOC_DEVICEMAP);
        std::memset(host, 0, kReport);
        CALL(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", &report, host, 0);
        uint64_t block[8] = {allocate(number(w[2]), 0xff), allocate(number(w[3]), 0), allocate(number(w[4]), 0),
                             allocate(number(w[5]), 0),    report,                    number(w[6]),
                             number(w[7]) | (number(w[8]) & 0xffffffff) << 32,
                             number(w[8]) >> 32};
        CUdeviceptr variable = 0;
        size_t size = 0;
        CALL(cuModuleGetGlobal, "cuModuleGetGlobal_v2", &variable, &size, module_, w[1].c_str());
        if (size != sizeof block) throw Failure{"size-of:" + w[1]};
        CALL(cuMemcpyHtoD, "cuMemcpyHtoD_v2", variable, block, sizeof block);
    }

    // Milliseconds of one launch, to its end.
    double start() {
        CUevent begin, end;
        CALL(cuEventCreate, "cuEventCreate", &begin, 0);
        CALL(cuEventCreate, "cuEventCreate", &end, 0);
        CALL(cuEventRecord, "cuEventRecord", begin, nullptr);
        CALL(cuLaunchKernelEx, "cuLaunchKernelEx", &config_, function_, parameters_.data(), nullptr);
        CALL(cuEventRecord, "cuEventRecord", end, nullptr);
        CALL(cuCtxSynchronize, "cuCtxSynchronize");
        float milliseconds = 0;
        CALL(cuEventElapsedTime, "cuEventElapsedTime", &milliseconds, begin, end);
        return milliseconds;
    }

    void report(const Words& w, std::FILE* to) {
        const Memory& memory = memory_.at(w[1]);
        const Bytes after = read_back(w[1]);
        const bool stray = std::memcmp(after.data(), memory.before.data(), kGuard) != 0 ||
                           std::memcmp(after.data() + kGuard + memory.size, memory.before.data() + kGuard + memory.size,
                                       kGuard) != 0;
        const Bytes written = inner(memory, after);
        std::fprintf(to, "out %s %s %s\n", w[1].c_str(), digest(written).c_str(), stray ? "stray" : "whole");
        if (w[4] == "probe") show(w[1], written, kShown, to);
    }

    Bytes read_back(const std::string& name) {
        const Memory& memory = memory_.at(name);
        Bytes after(memory.before.size());
        CALL(cuMemcpyDtoH, "cuMemcpyDtoH_v2", after.data(), memory.start, after.size());
        return after;
    }

    static Bytes inner(const Memory& memory, const Bytes& after) {
        const auto begin = after.begin() + kGuard;
        return Bytes(begin, begin + static_cast<long>(memory.size));
    }

    static void show(const std::string& name, const Bytes& data, size_t most, std::FILE* to) {
        std::fprintf(to, "bytes %s ", name.c_str());
        for (size_t i = 0; i < data.size() && i < most; ++i) std::fprintf(to, "%02x", data[i]);
        std::fprintf(to, "\n");
    }

    std::string kit_;
    const Run& run_;
    std::map<std::string, Memory> memory_;
    std::map<std::string, CUtensorMap> maps_;
    std::vector<void*> parameters_;
    std::vector<CUlaunchAttribute> attributes_;
    CUlaunchConfig config_ = {};
    CUmodule module_ = nullptr;
    CUfunction function_ = nullptr;
    bool is_emulated_ = false;
};

// Runs `work` in a process of its own; what it wrote, or a `status` line that says how it ended.
template <class Work>
std::string apart(Work work) {
    int ends[2];
    if (pipe(ends) != 0) stop("no pipe");
    const pid_t child = fork();
    if (child < 0) stop("no process");
    if (child == 0) {
        close(ends[0]);
        std::FILE* to = fdopen(ends[1], "w");
        try {
            work(to);
        } catch (const Failure& failure) {
            std::fprintf(to, "status %s\n", failure.what.c_str());
        }
        std::fflush(to);
        _exit(0);
    }
    close(ends[1]);
    std::string text;
    char part[4096];
    for (pollfd wait = {ends[0], POLLIN, 0};;) {
        if (poll(&wait, 1, kSeconds * 1000) <= 0) {
            kill(child, SIGKILL);
            text = "status timeout\n";
            break;
        }
        const ssize_t n = read(ends[0], part, sizeof part);
        if (n <= 0) break;
        text.append(part, static_cast<size_t>(n));
    }
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return text.empty() ? "status ended\n" : text;
}

std::string one_line(std::string text) {
    for (char& c : text) c = c == ' ' ? '_' : c;
    return text;
}

void describe(std::FILE* to) {
    const Device device = open_device();
    char name[128] = "";
    int version = 0;
    CALL(cuDeviceGetName, "cuDeviceGetName", name, sizeof name, device.handle);
    CALL(cuDriverGetVersion, "cuDriverGetVersion", &version);
    std::fprintf(to, "device %s\n", one_line(name).c_str());
    std::fprintf(to, "capability %d.%d\n", device.major, device.minor);
    std::fprintf(to, "driver %d\n", version);
    std::fprintf(to, "multiprocessors %d\n", device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    std::fprintf(to, "clock_khz %d\n", device.attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) stop("usage: launcher KIT_DIRECTORY RECORD");
    const std::string kit = argv[1];
    const std::vector<Words> lines = read_lines(kit + "/manifest");
    if (lines.size() < 2 || lines[0] != Words{"porter-kit", "1"} || lines[1].size() != 2) stop("this is no kit");
    std::vector<Run> runs;
    for (const Words& w : lines) {
        if (w.empty()) continue;
        if (w[0] == "file" && digest(read_file(kit + "/" + w[2])) != w[1]) stop("the kit is damaged: " + w[2]);
        if (w[0] == "run") runs.push_back({w, {}});
        else if (!runs.empty()) runs.back().lines.push_back(w);
    }
    driver.library = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver.library == nullptr) stop("there is no NVIDIA driver: libcuda.so.1 is not found");
    const std::string device = apart(describe);
    if (device.find("capability ") == std::string::npos) stop("no GPU: " + device);
    const size_t at = device.find("capability ") + 11;
    const std::string capability = device.substr(at, device.find('\n', at) - at);
    std::string record = "porter-kit-record 1\nkit " + lines[1][1] + "\n" + device;
    int done = 0, other = 0, wrong = 0;
    for (const Run& run : runs) {
        // run NUMBER CAPABILITY SOURCE INPUTS CASE SIZES FAMILY SEED PROGRAM
        if (run.head[2] != capability) {
            ++other;
            continue;
        }
        const std::string text = apart([&](std::FILE* to) {
            const Device used = open_device();
            CUcontext context;
            CALL(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", &context, used.handle);
            CALL(cuCtxSetCurrent, "cuCtxSetCurrent", context);
            Launch(kit, run).go(to);
        });
        ++done;
        bool same = text.compare(0, 10, "status ok\n") == 0;
        for (const Words& w : run.lines) {
            if (w[0] == "expect") same = same && text.find("out " + w[1] + " " + w[2] + " whole") != std::string::npos;
        }
        wrong += same ? 0 : 1;
        std::string label;
        for (size_t i = 5; i < run.head.size(); ++i) label += (i == 5 ? "" : " ") + run.head[i];
        record += "run " + label + " " + run.head[3] + " " + run.head[4] + "\n" + text;
        std::printf("%s  %s\n", same ? "as expected" : "OTHERWISE  ", label.c_str());
        std::fflush(stdout);
    }
    Sha256 sum;
    sum.add(record.data(), record.size());
    record += "sha256 " + sum.hex() + "\n";
    std::FILE* file = std::fopen(argv[2], "wb");
    if (file == nullptr || std::fwrite(record.data(), 1, record.size(), file) != record.size() || std::fclose(file) != 0) {
        stop(std::string("cannot write ") + argv[2]);
    }
    std::printf("%d runs on a GPU of compute capability %s, %d of them not as expected; %d are for other GPUs\n", done,
                capability.c_str(), wrong, other);
    std::printf("record: %s\n", argv[2]);
    return done == 0 ? 6 : 0;
}
