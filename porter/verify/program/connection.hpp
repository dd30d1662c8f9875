// SPDX-License-Identifier: Apache-2.0
//
// The stand-in's side of the connection to the simulator.
//
// A frame is two 32-bit words, the length of what follows the frame head and an operation (request) or a cudaError_t
// (reply), and then the body: little-endian words and bytes without padding. protocol.py has the other end.
#pragma once

#include <cuda_runtime_api.h>

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

enum class Op : uint32_t {
    device = 1,
    register_binary,
    register_function,
    register_variable,
    function,
    set_attribute,
    allocate,
    release,
    check_range,
    launch,
    tensor_map,
    symbol,
    memory_info,
    unanswered,
    function_name,
    alias,
    occupancy,
};

// Exit status of a program that met something this library cannot answer. 126 is the shell's "found, cannot run".
constexpr int cannot_go_on = 126;

class Writer {
  public:
    Writer &u32(uint32_t v) { return bytes(&v, sizeof v); }
    Writer &u64(uint64_t v) { return bytes(&v, sizeof v); }
    Writer &address(const void *p) { return u64(reinterpret_cast<uintptr_t>(p)); }
    Writer &text(const char *s) { return bytes(s, std::strlen(s)); }
    Writer &dim(dim3 d) { return u32(d.x).u32(d.y).u32(d.z); }
    Writer &bytes(const void *p, size_t n) {
        body_.append(static_cast<const char *>(p), n);
        return *this;
    }
    const std::string &body() const { return body_; }

  private:
    std::string body_;
};

struct Reply {
    cudaError_t status = cudaSuccess;
    std::string body;
    uint64_t word(size_t index) const {
        uint64_t v = 0;
        if ((index + 1) * sizeof v <= body.size()) std::memcpy(&v, body.data() + index * sizeof v, sizeof v);
        return v;
    }
};

class Parent {
  public:
    static Parent &get() {
        static Parent *parent = new Parent;  // Never destroyed: exit handlers of the program still call in.
        return *parent;
    }

    Reply ask(Op op, const Writer &request = {}) {
        std::lock_guard<std::mutex> guard(mutex_);
        const uint32_t head[2] = {static_cast<uint32_t>(request.body().size()), static_cast<uint32_t>(op)};
        send_all(head, sizeof head);
        send_all(request.body().data(), request.body().size());
        uint32_t answer[2];
        receive_all(answer, sizeof answer);
        Reply reply;
        reply.status = static_cast<cudaError_t>(answer[1]);
        reply.body.resize(answer[0]);
        receive_all(&reply.body[0], answer[0]);
        return reply;
    }

    // Puts the pages of device memory at `device` at the address `host` as well.
    bool map(void *host, const void *device, size_t size) const {
        const auto offset = static_cast<off_t>(reinterpret_cast<uintptr_t>(device) - arena_);
        return mmap(host, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory_, offset) == host;
    }

    uintptr_t arena() const { return arena_; }
    size_t arena_size() const { return arena_size_; }

  private:
    Parent() {
        socket_ = number("PORTER_CUDART_SOCKET");
        memory_ = static_cast<int>(number("PORTER_CUDART_MEMORY"));
        arena_ = number("PORTER_CUDART_ARENA");
        arena_size_ = number("PORTER_CUDART_ARENA_SIZE");
        void *wanted = reinterpret_cast<void *>(arena_);
        void *mapped = mmap(wanted, arena_size_, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, memory_, 0);
        if (mapped != wanted) fail("device memory cannot be mapped at its address");
    }

    static uint64_t number(const char *variable) {
        const char *text = std::getenv(variable);
        if (!text) fail("started outside Porter: the environment names no simulator");
        return std::strtoull(text, nullptr, 0);
    }

    [[noreturn]] static void fail(const char *why) {
        std::fprintf(stderr, "porter: CUDA runtime stand-in: %s\n", why);
        _exit(cannot_go_on);
    }

    void send_all(const void *data, size_t size) {
        auto *p = static_cast<const char *>(data);
        while (size) {
            const ssize_t n = send(static_cast<int>(socket_), p, size, MSG_NOSIGNAL);
            if (n <= 0) fail("the simulator has gone");
            p += n;
            size -= static_cast<size_t>(n);
        }
    }

    void receive_all(void *data, size_t size) {
        auto *p = static_cast<char *>(data);
        while (size) {
            const ssize_t n = recv(static_cast<int>(socket_), p, size, 0);
            if (n <= 0) fail("the simulator has gone");
            p += n;
            size -= static_cast<size_t>(n);
        }
    }

    std::mutex mutex_;
    uint64_t socket_ = 0;
    int memory_ = -1;
    uintptr_t arena_ = 0;
    size_t arena_size_ = 0;
};

inline Reply ask(Op op, const Writer &request = {}) { return Parent::get().ask(op, request); }
