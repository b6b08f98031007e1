#pragma once

#include <cstdlib>
#include <functional>
#include <string>

namespace ddp {

/// Several entries of the log under one key of the store: for each entry, its
/// size, a space, and the entry.
inline void add_block_entry(const std::string& entry, std::string* block) {
  *block += std::to_string(entry.size()) + " " + entry;
}

/// Passes each entry of a block to `take`, up to the first text that is none,
/// since any process can write into the store.
inline void read_block_entries(
    const std::string& block,
    const std::function<void(const std::string&)>& take) {
  for (size_t at = 0; at < block.size();) {
    char* end = nullptr;
    const size_t size = std::strtoull(&block[at], &end, 10);
    at = static_cast<size_t>(end - block.data()) + 1;
    if (*end != ' ' || size > block.size() - at) {
      return;
    }
    take(block.substr(at, size));
    at += size;
  }
}

} // namespace ddp
