#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace ddp::detail {

/// Gathers a part from each rank under a key of a store. The last rank to add a
/// part computes a verdict from all parts, and all ranks read this verdict. For
/// any number of ranks, each rank sends a few requests, and each part is sent
/// twice.
class StoreGather {
 public:
  struct Part {
    int64_t rank = 0;
    std::string content;
  };

  /// Throws `c10::Error` if the store cannot append.
  StoreGather(c10::intrusive_ptr<c10d::Store> store, std::string key);

  /// Adds this rank's part. On the last rank, returns the parts of all `size`
  /// ranks; this rank must then call `decide`, and the other ranks may read the
  /// verdict.
  std::optional<std::vector<Part>> add(const Part& part, int64_t size);

  /// Sets the verdict that the other ranks read.
  void decide(const std::string& verdict);

  /// Sets the verdict unless a rank has already set it. Returns the first
  /// verdict.
  std::string decide_once(const std::string& verdict);

  /// The key that exists once a rank has set the verdict.
  std::string verdict_key() const;

  /// Returns the verdict; empty if no rank has set it. Each rank must call this
  /// once, after all ranks have added their parts; the last call removes all
  /// keys.
  std::string verdict();

  /// The parts that have arrived so far.
  std::vector<Part> parts();

  /// Removes all keys.
  void remove();

 private:
  std::string count_key() const;

  c10::intrusive_ptr<c10d::Store> store_;
  std::string key_;
};

} // namespace ddp::detail
