// SPDX-License-Identifier: Apache-2.0
//
// Records the kernel launches of a program: loaded by the driver through CUDA_INJECTION64_PATH, called back by CUPTI.
//
// Around a launch the whole context stands still: what a kernel can reach is copied to files before it begins and, as
// far as it changed, after it has ended. What that is follows from the parameters: every aligned word that points
// into device memory names an allocation, in small allocations (tables of pointers, tensor maps) every such word too.
//
// The environment says what to record; `porter.verify.capture.program` sets it and reads the files.
#include "cupti.hpp"
#include "driver.hpp"
#include "files.hpp"
#include "images.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

constexpr size_t table_bytes = 1 << 20;  // Larger allocations hold data, not addresses.

struct Block {
    CUdeviceptr address;
    size_t size;
    bool on_device;
    std::vector<unsigned char> before;
};

struct Launch {
    std::string kernel;
    CUfunction function;
    unsigned grid[3], block[3], cluster[3] = {1, 1, 1}, shared;
    CUstream stream;
    std::vector<unsigned> attributes;
    std::vector<std::vector<unsigned char>> parameters;
    std::vector<Block> blocks;
};

std::string setting(const char *name) {
    const char *text = std::getenv(name);
    return text ? text : "";
}

std::string triple(const unsigned v[3]) {
    return "[" + std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]) + "]";
}

class Recorder {
  public:
    Recorder()
        : wanted_(setting("PORTER_CAPTURE_KERNEL")),
          limit_(std::strtoull(setting("PORTER_CAPTURE_LIMIT").c_str(), nullptr, 10)),
          bytes_(std::strtoull(setting("PORTER_CAPTURE_BYTES").c_str(), nullptr, 10)) {
        files_.into(setting("PORTER_CAPTURE_FOLDER").c_str());
    }

    void callback(const cupti::CallbackData &data) {
        static thread_local bool inside = false;  // Our own calls of the driver are none of the program's.
        if (inside) return;
        const std::string name = plain(data.function);
        if (name == "cuLaunchKernel" || name == "cuLaunchKernelEx" || name == "cuLaunchCooperativeKernel") {
            inside = true;
            data.site == cupti::enter ? begin(name, data) : end(data);
            inside = false;
        } else if (data.site == cupti::enter && (name == "cuModuleLoadData" || name == "cuModuleLoadDataEx" ||
                                                 name == "cuModuleLoadFatBinary" || name == "cuLibraryLoadData")) {
            std::lock_guard<std::recursive_mutex> guard(mutex_);
            image(static_cast<const cupti::LoadImage *>(data.arguments)->image);
        } else if (data.site == cupti::enter && (name == "cuModuleLoad" || name == "cuLibraryLoadFromFile")) {
            std::lock_guard<std::recursive_mutex> guard(mutex_);
            const void *path = static_cast<const cupti::LoadImage *>(data.arguments)->image;
            files_.line("{\"event\":\"image_file\",\"path\":" + quoted(static_cast<const char *>(path)) + "}");
        }
    }

    void refuse(const std::string &reason, const std::string &kernel = "", const std::string &detail = "") {
        std::lock_guard<std::recursive_mutex> guard(mutex_);
        if (!refused_.insert(reason + kernel).second) return;  // Once, not for each launch of a loop.
        files_.line("{\"event\":\"refused\",\"reason\":" + quoted(reason) + ",\"kernel\":" + quoted(kernel) +
                    ",\"detail\":" + quoted(detail) + "}");
    }

  private:
    // Functions for per-thread default streams have a suffix of their own.
    static std::string plain(std::string name) {
        const size_t at = name.find("_ptsz");
        return at == std::string::npos ? name : name.substr(0, at);
    }

    void image(const void *data) {
        if (!data) return;
        const Bytes found = image_bytes(data);
        if (!found.data) return;
        files_.line("{\"event\":\"image\",\"file\":" + quoted(files_.bytes(found.data, found.size)) + "}");
    }

    void begin(const std::string &name, const cupti::CallbackData &data) {
        mutex_.lock();  // Until the launch has ended, so that no other thread's launch changes the memory.
        pending_.reset();
        auto launch = std::make_unique<Launch>();
        launch->kernel = data.symbol ? data.symbol : "";
        if (!is_wanted(launch->kernel)) return;
        if (!driver_ready_) {
            if (const char *missing = driver_.look_up()) {
                refuse("driver", launch->kernel, missing);
                return;
            }
            driver_ready_ = true;
            describe_device();
        }
        void **extra = arguments(name, data, *launch);
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        driver_.stream_capturing(launch->stream, &status);
        if (status != CU_STREAM_CAPTURE_STATUS_NONE) return refuse("graph", launch->kernel);
        if (!parameters(name, data, extra, *launch)) return refuse("parameters", launch->kernel);
        if (recorded_ >= limit_) return refuse("limit", launch->kernel);
        reach(*launch);
        if (!seen_.insert(key(*launch)).second) return;
        size_t total = 0;
        for (const Block &block : launch->blocks) total += block.size;
        if (total > bytes_) return refuse("bytes", launch->kernel, std::to_string(total));
        if (driver_.synchronize() != CUDA_SUCCESS) return refuse("busy", launch->kernel);
        for (Block &block : launch->blocks) {
            if (block.before.empty() && !copy(block, block.before)) return refuse("copy", launch->kernel);
        }
        recorded_++;
        pending_ = std::move(launch);
    }

    void end(const cupti::CallbackData &data) {
        std::unique_ptr<Launch> launch = std::move(pending_);
        if (launch) {
            const CUresult launched = *static_cast<const CUresult *>(data.result);
            if (launched != CUDA_SUCCESS) {
                refuse("failed", launch->kernel, std::to_string(launched));
            } else if (const CUresult ended = driver_.synchronize(); ended != CUDA_SUCCESS) {
                refuse("failed", launch->kernel, std::to_string(ended));
            } else {
                write(*launch);
            }
        }
        mutex_.unlock();
    }

    bool is_wanted(const std::string &kernel) const {
        if (wanted_.empty()) return true;
        const std::regex pattern(wanted_);
        if (std::regex_search(kernel, pattern)) return true;
        int status = 0;
        std::unique_ptr<char, void (*)(void *)> readable(
            abi::__cxa_demangle(kernel.c_str(), nullptr, nullptr, &status), std::free);
        return status == 0 && std::regex_search(readable.get(), pattern);
    }

    void describe_device() {
        CUdevice device = 0;
        char name[256] = "";
        int major = 0, minor = 0, version = 0;
        driver_.current_device(&device);
        driver_.device_name(name, sizeof name, device);
        driver_.device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
        driver_.device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
        driver_.version(&version);
        files_.line("{\"event\":\"device\",\"name\":" + quoted(name) + ",\"capability\":[" + std::to_string(major) +
                    "," + std::to_string(minor) + "],\"driver\":" + std::to_string(version) + "}");
    }

    // Grid, block, cluster, shared memory and attributes; gives the argument `extra`.
    void **arguments(const std::string &name, const cupti::CallbackData &data, Launch &launch) {
        if (name != "cuLaunchKernelEx") {
            const auto &a = *static_cast<const cupti::LaunchKernel *>(data.arguments);
            launch.function = a.function;
            std::copy(a.grid, a.grid + 3, launch.grid);
            std::copy(a.block, a.block + 3, launch.block);
            launch.shared = a.shared;
            launch.stream = a.stream;
            required_cluster(launch);
            if (name == "cuLaunchKernel") return a.extra;
            launch.attributes.push_back(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
            return nullptr;
        }
        const auto &a = *static_cast<const cupti::LaunchKernelEx *>(data.arguments);
        const CUlaunchConfig &c = *a.config;
        launch.function = a.function;
        const unsigned grid[] = {c.gridDimX, c.gridDimY, c.gridDimZ}, block[] = {c.blockDimX, c.blockDimY, c.blockDimZ};
        std::copy(grid, grid + 3, launch.grid);
        std::copy(block, block + 3, launch.block);
        launch.shared = c.sharedMemBytes;
        launch.stream = c.hStream;
        required_cluster(launch);
        for (unsigned i = 0; i < c.numAttrs; i++) {
            launch.attributes.push_back(c.attrs[i].id);
            if (c.attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
            const auto &cluster = c.attrs[i].value.clusterDim;
            const unsigned stated[] = {cluster.x, cluster.y, cluster.z};
            std::transform(stated, stated + 3, launch.cluster, [](unsigned n) { return n ? n : 1; });
        }
        return a.extra;
    }

    // The cluster that the kernel was compiled for (`__cluster_dims__`).
    void required_cluster(Launch &launch) {
        const CUfunction_attribute axes[] = {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
                                             CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
                                             CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH};
        for (int i = 0; i < 3; i++) {
            int extent = 0;
            if (driver_.function_attribute(&extent, axes[i], launch.function) == CUDA_SUCCESS && extent > 0)
                launch.cluster[i] = static_cast<unsigned>(extent);
        }
    }

    bool parameters(const std::string &name, const cupti::CallbackData &data, void **extra, Launch &launch) {
        void **pointers = name == "cuLaunchKernelEx"
                              ? static_cast<const cupti::LaunchKernelEx *>(data.arguments)->parameters
                              : static_cast<const cupti::LaunchKernel *>(data.arguments)->parameters;
        const unsigned char *buffer = nullptr;
        for (size_t i = 0; !pointers && extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
            if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = static_cast<unsigned char *>(extra[i + 1]);
        }
        size_t offset = 0, size = 0;
        for (size_t i = 0; parameter(launch.function, i, &offset, &size); i++) {
            const auto *from = pointers ? static_cast<unsigned char *>(pointers[i]) : buffer ? buffer + offset : nullptr;
            if (!from) return false;
            launch.parameters.emplace_back(from, from + size);
        }
        return !launch.parameters.empty() || (!pointers && !buffer);
    }

    // A kernel of a library may be passed where a function is expected.
    bool parameter(CUfunction function, size_t index, size_t *offset, size_t *size) {
        return driver_.function_parameter(function, index, offset, size) == CUDA_SUCCESS ||
               driver_.kernel_parameter(reinterpret_cast<CUkernel>(function), index, offset, size) == CUDA_SUCCESS;
    }

    void reach(Launch &launch) {
        for (const auto &parameter : launch.parameters) follow(launch, parameter, false);
        for (size_t i = 0; i < launch.blocks.size(); i++) {
            if (launch.blocks[i].size > table_bytes) continue;
            std::vector<unsigned char> contents;
            if (driver_.synchronize() != CUDA_SUCCESS || !copy(launch.blocks[i], contents)) continue;
            launch.blocks[i].before = contents;
            follow(launch, contents, true);
        }
    }

    // `near`: only words that look like an address beside the known ones, because data is full of other numbers.
    void follow(Launch &launch, const std::vector<unsigned char> &data, bool near) {
        for (size_t at = 0; at + 8 <= data.size(); at += 8) {
            CUdeviceptr word;
            std::memcpy(&word, data.data() + at, sizeof word);
            const auto holds = [&](const Block &b) { return word >= b.address && word - b.address < b.size; };
            const auto beside = [&](const Block &b) { return word >> 40 == b.address >> 40; };
            const auto &blocks = launch.blocks;
            if (std::any_of(blocks.begin(), blocks.end(), holds)) continue;
            if (word < 4096 || (near && std::none_of(blocks.begin(), blocks.end(), beside))) continue;
            Block found{0, 0, true, {}};
            if (allocation(word, found)) launch.blocks.push_back(std::move(found));
        }
    }

    bool allocation(CUdeviceptr pointer, Block &block) {
        unsigned kind = 0;
        if (driver_.pointer_attribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) != CUDA_SUCCESS) return false;
        block.on_device = kind == CU_MEMORYTYPE_DEVICE;
        if (block.on_device) return driver_.address_range(&block.address, &block.size, pointer) == CUDA_SUCCESS;
        return driver_.pointer_attribute(&block.address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, pointer) ==
                   CUDA_SUCCESS &&
               driver_.pointer_attribute(&block.size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, pointer) == CUDA_SUCCESS;
    }

    bool copy(const Block &block, std::vector<unsigned char> &to) {
        to.resize(block.size);
        if (block.on_device) return driver_.copy_to_host(to.data(), block.address, block.size) == CUDA_SUCCESS;
        return driver_.copy(reinterpret_cast<CUdeviceptr>(to.data()), block.address, block.size) == CUDA_SUCCESS;
    }

    // Equal for launches that differ only in where their memory lies.
    static std::string key(const Launch &launch) {
        std::string text = launch.kernel + triple(launch.grid) + triple(launch.block) + triple(launch.cluster) +
                           std::to_string(launch.shared);
        for (const auto &parameter : launch.parameters) {
            std::vector<unsigned char> bytes = parameter;
            for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
                CUdeviceptr word;
                std::memcpy(&word, bytes.data() + at, sizeof word);
                for (const Block &b : launch.blocks) {
                    if (word < b.address || word - b.address >= b.size) continue;
                    word -= b.address;
                    std::memcpy(bytes.data() + at, &word, sizeof word);
                    break;
                }
            }
            text += hexadecimal(bytes.data(), bytes.size()) + ",";
        }
        for (const Block &b : launch.blocks) text += std::to_string(b.size) + ",";
        return text;
    }

    void write(const Launch &launch) {
        std::string blocks, parameters, attributes;
        for (const Block &block : launch.blocks) {
            std::vector<unsigned char> after;
            if (!copy(block, after)) return refuse("copy", launch.kernel);
            const std::string before = files_.bytes(block.before.data(), block.size);
            const std::string changed = after == block.before ? "" : files_.bytes(after.data(), block.size);
            if (before.empty() || (changed.empty() && after != block.before)) return refuse("disk", launch.kernel);
            blocks += (blocks.empty() ? "" : ",") + ("{\"address\":" + std::to_string(block.address)) +
                      ",\"size\":" + std::to_string(block.size) + ",\"before\":" + quoted(before) +
                      ",\"after\":" + (changed.empty() ? "null" : quoted(changed)) + "}";
        }
        for (const auto &p : launch.parameters)
            parameters += (parameters.empty() ? "" : ",") + quoted(hexadecimal(p.data(), p.size()));
        for (unsigned id : launch.attributes) attributes += (attributes.empty() ? "" : ",") + std::to_string(id);
        files_.line("{\"event\":\"launch\",\"kernel\":" + quoted(launch.kernel) + ",\"grid\":" + triple(launch.grid) +
                    ",\"block\":" + triple(launch.block) + ",\"cluster\":" + triple(launch.cluster) +
                    ",\"shared\":" + std::to_string(launch.shared) + ",\"attributes\":[" + attributes +
                    "],\"parameters\":[" + parameters + "],\"blocks\":[" + blocks + "]}");
    }

    const std::string wanted_;
    const size_t limit_, bytes_;
    Files files_;
    Driver driver_{};
    bool driver_ready_ = false;
    std::recursive_mutex mutex_;
    std::set<std::string> seen_, refused_;
    size_t recorded_ = 0;
    std::unique_ptr<Launch> pending_;  // Between the two callbacks of a launch; under the mutex.
};

Recorder &recorder() {
    static Recorder *one = new Recorder;  // Never destroyed: exit handlers of the program may still launch.
    return *one;
}

}  // namespace

// The driver calls this when it is initialized, with the library named in CUDA_INJECTION64_PATH.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
    const std::string path = setting("PORTER_CAPTURE_CUPTI");
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        recorder().refuse("cupti", "", dlerror());
        return 0;
    }
    const auto subscribe = reinterpret_cast<cupti::Subscribe>(dlsym(library, "cuptiSubscribe"));
    const auto enable = reinterpret_cast<cupti::EnableDomain>(dlsym(library, "cuptiEnableDomain"));
    const auto callback = [](void *, int domain, uint32_t, const cupti::CallbackData *data) {
        if (domain == cupti::driver_domain) recorder().callback(*data);
    };
    void *subscriber = nullptr;
    int status = subscribe && enable ? subscribe(&subscriber, callback, nullptr) : -1;
    if (status == 0) status = enable(1, subscriber, cupti::driver_domain);
    if (status != 0) recorder().refuse("cupti", "", "status " + std::to_string(status));
    return 1;
}
