// SPDX-License-Identifier: Apache-2.0
//
// How long a module is that a program loads from memory.
#pragma once

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

struct Bytes {
    const void *data;
    size_t size;
};

// PTX text, a cubin (ELF), a fat binary, or the wrapper that nvcc puts around one; nothing for anything else.
inline Bytes image_bytes(const void *image) {
    constexpr uint32_t wrapper = 0x466243b1, fat_binary = 0xba55ed50;
    const auto *start = static_cast<const unsigned char *>(image);
    uint32_t magic;
    std::memcpy(&magic, start, sizeof magic);
    if (magic == wrapper) {
        const void *inner;
        std::memcpy(&inner, start + 8, sizeof inner);
        return image_bytes(inner);
    }
    if (magic == fat_binary) {
        uint16_t head;
        uint64_t body;
        std::memcpy(&head, start + 6, sizeof head);
        std::memcpy(&body, start + 8, sizeof body);
        return {image, head + body};
    }
    if (std::memcmp(start, ELFMAG, SELFMAG) == 0) {
        Elf64_Ehdr head;
        std::memcpy(&head, start, sizeof head);
        size_t end = head.e_shoff + size_t(head.e_shnum) * head.e_shentsize;
        end = std::max(end, head.e_phoff + size_t(head.e_phnum) * head.e_phentsize);
        for (unsigned i = 0; i < head.e_shnum; i++) {
            Elf64_Shdr section;
            std::memcpy(&section, start + head.e_shoff + i * size_t(head.e_shentsize), sizeof section);
            if (section.sh_type != SHT_NOBITS) end = std::max<size_t>(end, section.sh_offset + section.sh_size);
        }
        return {image, end};
    }
    const bool text = start[0] == '/' || start[0] == '.' || start[0] == '\n' || start[0] == ' ';
    return text ? Bytes{image, std::strlen(static_cast<const char *>(image))} : Bytes{nullptr, 0};
}
