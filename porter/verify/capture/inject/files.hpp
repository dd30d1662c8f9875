// SPDX-License-Identifier: Apache-2.0
//
// What the recorder writes: one folder a process, with a line of JSON for each event and raw bytes in files beside it.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

inline std::string quoted(const std::string &text) {
    std::string result = "\"";
    for (unsigned char c : text) {
        char escape[8];
        if (c == '"' || c == '\\' || c < 0x20) {
            std::snprintf(escape, sizeof escape, "\\u%04x", c);
            result += escape;
        } else {
            result += static_cast<char>(c);
        }
    }
    return result + "\"";
}

inline std::string hexadecimal(const void *data, size_t size) {
    static const char digits[] = "0123456789abcdef";
    std::string result;
    for (size_t i = 0; i < size; i++) {
        const unsigned char byte = static_cast<const unsigned char *>(data)[i];
        result += digits[byte >> 4];
        result += digits[byte & 15];
    }
    return result;
}

class Files {
  public:
    // The folder of this process, made on first use: a program that launches nothing leaves none behind.
    void line(const std::string &json) {
        open();
        if (!log_) return;
        std::fprintf(log_, "%s\n", json.c_str());
        std::fflush(log_);  // A program that crashes later keeps its lines.
    }

    // The name of a new file with these bytes; empty if they cannot be written.
    std::string bytes(const void *data, size_t size) {
        open();
        const std::string name = std::to_string(++count_) + ".bin";
        FILE *file = std::fopen((folder_ + "/" + name).c_str(), "wb");
        const bool written = file && std::fwrite(data, 1, size, file) == size;
        const bool closed = file && std::fclose(file) == 0;
        return written && closed ? name : "";
    }

    void into(const char *folder) { folder_ = folder; }

  private:
    void open() {
        if (log_ && process_ == getpid()) return;
        if (process_ == 0) root_ = folder_;
        process_ = getpid();  // A fork begins a folder of its own.
        folder_ = root_ + "/" + std::to_string(process_);
        mkdir(folder_.c_str(), 0777);
        log_ = std::fopen((folder_ + "/events.jsonl").c_str(), "w");
    }

    std::string root_, folder_;
    FILE *log_ = nullptr;
    pid_t process_ = 0;
    unsigned count_ = 0;
};
