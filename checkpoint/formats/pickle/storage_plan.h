#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace ddp::detail {

/// Decides which tensors of a value share a storage in the file.
class StoragePlan {
 public:
  /// Counts how much of each storage the tensors of `value` use.
  explicit StoragePlan(const c10::IValue& value);

  /// Where a tensor's elements are in the file.
  struct Place {
    size_t storage = 0;
    /// Whether its storage is written as a whole. Otherwise the tensor is
    /// written alone, contiguous, in a separate storage.
    bool whole = true;
  };

  /// The place of a tensor, which may be that of an earlier tensor.
  Place place(const at::Tensor& tensor);

  /// The storages in the order of their first use, each as a tensor of all its
  /// elements.
  std::vector<at::Tensor> take_storages() {
    return std::move(storages_);
  }

 private:
  // In the file, a storage has one dtype.
  using Key = std::pair<const c10::StorageImpl*, c10::ScalarType>;

  static Key key_of(const at::Tensor& tensor);
  void count(const c10::IValue& value);

  std::map<Key, uint64_t> used_bytes_;
  std::map<Key, size_t> places_;
  std::vector<at::Tensor> storages_;
};

} // namespace ddp::detail
