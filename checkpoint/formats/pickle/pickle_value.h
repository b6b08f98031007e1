#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <deque>
#include <string>
#include <variant>
#include <vector>

// The values on an unpickler's stack.
namespace ddp::detail {

struct PickleObject;

/// A value: none, a plain value, or an object that several places may share.
using PickleValue =
    std::variant<std::monostate, bool, int64_t, double, PickleObject*>;

struct PickleList {
  std::vector<PickleValue> items;
};
struct PickleTuple {
  std::vector<PickleValue> items;
};
/// Alternating keys and values, in the order of the pickle; keys may repeat.
struct PickleDict {
  std::vector<PickleValue> items;
  /// Whether this is a LibTorch archive, whose attributes are the items.
  bool archive = false;
};
/// A Python name that the reader supports.
struct PickleGlobal;
/// An unsupported object or name; its contents are dropped.
struct PickleUnknown {
  std::string name;
};
struct PickleStorage {
  at::Storage storage;
  /// The dtype of the elements; bytes if the file does not set one.
  at::ScalarType dtype = at::kByte;
};

struct PickleObject {
  std::variant<
      std::string,
      PickleList,
      PickleTuple,
      PickleDict,
      const PickleGlobal*,
      PickleUnknown,
      PickleStorage,
      at::Tensor>
      content;
};

/// The objects of one pickle.
///
/// Objects refer to each other by plain pointers, and are destroyed together,
/// so neither cycles nor depth cause problems.
class PickleArena {
 public:
  /// Allows `budget` bytes; objects that need more throw `c10::Error`.
  explicit PickleArena(uint64_t budget) : left_(budget) {}

  template <typename Content>
  PickleObject* create(Content content) {
    charge(sizeof(PickleObject));
    objects_.push_back(PickleObject{std::move(content)});
    return &objects_.back();
  }

  void charge(uint64_t bytes);

 private:
  uint64_t left_;
  std::deque<PickleObject> objects_;
};

/// The content of the value or of its object if the type is `Content`, else
/// null.
template <typename Content>
auto* content_of(const PickleValue& value) {
  if constexpr (std::is_arithmetic_v<Content>) {
    return std::get_if<Content>(&value);
  } else {
    auto* const* object = std::get_if<PickleObject*>(&value);
    return object == nullptr ? nullptr
                             : std::get_if<Content>(&(*object)->content);
  }
}

/// The type of the value, named as in Python.
std::string kind_of(const PickleValue& value);
std::string kind_of(const PickleObject& object);

} // namespace ddp::detail
