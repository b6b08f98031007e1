#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <c10/util/strides.h>
#include <checkpoint/formats/pickle/pickle_globals.h>
#include <checkpoint/formats/pickle/pickle_writer.h>
#include <checkpoint/formats/values.h>
#include <ddp/internal/check.h>
#include <ddp/support/plain_memory.h>
#include <ddp/support/plain_tensor.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace ddp::detail {
namespace {

// Whether the memory holds the values: lazily conjugated and negated values
// must be computed, and lazy zeros have no memory.
bool plain(const at::Tensor& tensor) {
  return why_unreadable(tensor).empty() && has_plain_memory(tensor);
}

// All elements of the tensor's storage.
at::Tensor whole_storage(const at::Tensor& tensor) {
  const auto elements =
      static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  auto all = at::empty({0}, tensor.options());
  all.set_(tensor.storage(), 0, {elements}, {1});
  return all;
}

/// Decides which tensors of a value share a storage in the file.
class StoragePlan {
 public:
  /// Counts how much of each storage the tensors of `value` use.
  explicit StoragePlan(const c10::IValue& value) {
    count(value);
  }

  /// The location of a tensor's elements in the file.
  struct Place {
    size_t storage = 0;
    /// Whether its storage is written as a whole. Otherwise the tensor is
    /// written alone, contiguous, in a separate storage.
    bool whole = true;
  };

  /// The place of a tensor, which may be that of an earlier tensor.
  Place place(const at::Tensor& tensor) {
    const auto key = key_of(tensor);
    const auto used = used_bytes_.find(key);
    const bool whole = plain(tensor) && used != used_bytes_.end() &&
        used->second >= tensor.storage().nbytes() / 2;
    if (!whole) {
      storages_.push_back(tensor);
      return {storages_.size() - 1, false};
    }
    const auto [found, fresh] = places_.emplace(key, storages_.size());
    if (fresh) {
      storages_.push_back(whole_storage(tensor.detach()));
    }
    return {found->second, true};
  }

  /// The storages in the order of their first use, each as a tensor of all its
  /// elements.
  std::vector<at::Tensor> take_storages() {
    return std::move(storages_);
  }

 private:
  // In the file, a storage has one dtype.
  using Key = std::pair<const c10::StorageImpl*, c10::ScalarType>;

  static Key key_of(const at::Tensor& tensor) {
    return {tensor.storage().unsafeGetStorageImpl(), tensor.scalar_type()};
  }

  void count(const c10::IValue& value) {
    if (value.isTensor() && plain(value.toTensor())) {
      used_bytes_[key_of(value.toTensor())] += value.toTensor().nbytes();
    }
    for_each_item(value, [&](const auto& /*key*/, const c10::IValue& item) {
      count(item);
    });
  }

  std::map<Key, uint64_t> used_bytes_;
  std::map<Key, size_t> places_;
  std::vector<at::Tensor> storages_;
};

using Op = torch::jit::PickleOpCode;

constexpr uint8_t kProtocol = 2;

class PickleWriter {
 public:
  explicit PickleWriter(const c10::IValue& value) : plan_(value) {
    put(Op::PROTO);
    put_number(kProtocol);
    write(value);
    put(Op::STOP);
  }

  PickledValue take() {
    return {std::move(pickle_), plan_.take_storages()};
  }

 private:
  void write(const c10::IValue& value) {
    if (value.isTensor()) {
      write_tensor(value.toTensor());
    } else if (value.isNone()) {
      put(Op::NONE);
    } else if (value.isBool()) {
      put(value.toBool() ? Op::NEWTRUE : Op::NEWFALSE);
    } else if (value.isInt()) {
      write_int(value.toInt());
    } else if (value.isDouble()) {
      write_double(value.toDouble());
    } else if (value.isString()) {
      write_text(value.toStringRef());
    } else {
      write_items(value);
    }
  }

  void write_items(const c10::IValue& value) {
    if (!value.isTuple()) {
      put(value.isList() ? Op::EMPTY_LIST : Op::EMPTY_DICT);
    }
    put(Op::MARK);
    for_each_item(value, [&](const c10::IValue& key, const c10::IValue& item) {
      if (value.isGenericDict()) {
        write(key);
      }
      write(item);
    });
    put(value.isTuple()      ? Op::TUPLE
            : value.isList() ? Op::APPENDS
                             : Op::SETITEMS);
  }

  // torch._utils._rebuild_tensor_v2(storage, offset, size, stride,
  // requires_grad, hooks), and v3 also with the dtype.
  void write_tensor(const at::Tensor& tensor) {
    const auto dtype = tensor.scalar_type();
    const bool untyped = python_storage(dtype).empty();
    const auto place = plan_.place(tensor);
    const uint64_t bytes =
        place.whole ? tensor.storage().nbytes() : tensor.nbytes();
    // Python accepts any offset of an empty tensor; 0 is in every storage.
    const bool at_offset = place.whole && tensor.numel() > 0;
    write_global(
        "torch._utils", untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    put(Op::MARK);
    write_storage(place.storage, dtype, bytes / tensor.element_size());
    write_int(at_offset ? tensor.storage_offset() : 0);
    write_sizes(tensor.sizes());
    const auto contiguous = c10::contiguous_strides(tensor.sizes());
    write_sizes(place.whole ? tensor.strides() : at::IntArrayRef(contiguous));
    put(tensor.requires_grad() ? Op::NEWTRUE : Op::NEWFALSE);
    write_global("collections", "OrderedDict");
    put(Op::EMPTY_TUPLE);
    put(Op::REDUCE);
    if (untyped) {
      write_global("torch", python_dtype(dtype));
    }
    put(Op::TUPLE);
    put(Op::REDUCE);
  }

  // The persistent id ("storage", type, key, location, number of elements).
  void write_storage(size_t storage, c10::ScalarType dtype, uint64_t elements) {
    const auto type = python_storage(dtype);
    put(Op::MARK);
    write_text("storage");
    if (type.empty()) {
      write_global("torch.storage", "UntypedStorage");
    } else {
      write_global("torch", type);
    }
    write_text(std::to_string(storage));
    write_text("cpu");
    const auto size = type.empty() ? c10::elementSize(dtype) : 1; // in bytes
    write_int(static_cast<int64_t>(elements * size));
    put(Op::TUPLE);
    put(Op::BINPERSID);
  }

  void write_int(int64_t value) {
    if (value >= std::numeric_limits<int32_t>::min() &&
        value <= std::numeric_limits<int32_t>::max()) {
      put(Op::BININT);
      put_number(static_cast<int32_t>(value));
    } else {
      put(Op::LONG1);
      put_number(static_cast<uint8_t>(sizeof(value)));
      put_number(value);
    }
  }

  void write_double(double value) {
    put(Op::BINFLOAT);
    put_number(value);
    std::reverse(pickle_.end() - sizeof(value), pickle_.end()); // big-endian
  }

  void write_text(const std::string& text) {
    DDP_CHECK_VALUE(
        text.size() <= std::numeric_limits<uint32_t>::max(),
        "it has a string of {} bytes, but the format allows at most 2^32 - 1",
        text.size());
    put(Op::BINUNICODE);
    put_number(static_cast<uint32_t>(text.size()));
    pickle_ += text;
  }

  void write_sizes(at::IntArrayRef sizes) {
    put(Op::MARK);
    for (const auto size : sizes) {
      write_int(size);
    }
    put(Op::TUPLE);
  }

  void write_global(const std::string& module, const std::string& name) {
    const auto [found, fresh] = globals_.emplace(
        module + "." + name, static_cast<uint8_t>(globals_.size()));
    if (!fresh) {
      put(Op::BINGET);
      put_number(found->second);
      return;
    }
    put(Op::GLOBAL);
    pickle_ += module + "\n" + name + "\n";
    put(Op::BINPUT);
    put_number(found->second);
  }

  void put(Op opcode) {
    pickle_.push_back(static_cast<char>(opcode));
  }

  template <typename T>
  void put_number(T value) {
    pickle_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  StoragePlan plan_;
  std::string pickle_;
  std::map<std::string, uint8_t> globals_; // their indices in the memo
};

} // namespace

PickledValue write_pickle(const c10::IValue& value) {
  return PickleWriter(value).take();
}

} // namespace ddp::detail
