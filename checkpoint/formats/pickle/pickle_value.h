#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <deque>
#include <string>
#include <variant>
#include <vector>

// What an unpickler has on its stack.
namespace ddp::detail {

struct PickleObject;

/// A value: none, a plain one, or an object that several places may share.
using PickleValue =
    std::variant<std::monostate, bool, int64_t, double, PickleObject*>;

struct PickleList {
  std::vector<PickleValue> items;
};
struct PickleTuple {
  std::vector<PickleValue> items;
};
/// Keys and values in turn, as they came: a key may be there again.
struct PickleDict {
  std::vector<PickleValue> items;
  /// One of LibTorch's archives, whose attributes are its items.
  bool archive = false;
};
/// One of Python's names that the reader knows.
struct PickleGlobal;
/// An object, or a name, that the reader does not know; nothing is kept of it.
struct PickleUnknown {
  std::string name;
};
struct PickleStorage {
  at::Storage storage;
  /// The dtype of its elements; bytes where the file gives it none.
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
/// They refer to each other by plain pointers, and all go at once: neither
/// cycles nor depth matter.
class PickleHeap {
 public:
  /// Allows `budget` bytes; what needs more throws `c10::Error`.
  explicit PickleHeap(uint64_t budget) : left_(budget) {}

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

/// The value's, or its object's, content if it is of that kind, else null.
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

/// What the value is, in Python's words.
std::string kind_of(const PickleValue& value);
std::string kind_of(const PickleObject& object);

} // namespace ddp::detail
