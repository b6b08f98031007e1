#include <c10/util/Exception.h>
#include <checkpoint/formats/pickle/pickle_tree.h>
#include <ddp/support/containers.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace ddp::detail {
namespace {

// What LibTorch's containers take, of themselves and for each item.
constexpr uint64_t kContainerBytes = 128;
constexpr uint64_t kItemBytes = sizeof(c10::IValue);
constexpr uint64_t kDictSlotBytes = 64;

void limit_depth(int depth) {
  TORCH_CHECK(
      depth < kMaxDepth,
      "its values are nested more than ",
      kMaxDepth,
      " deep");
}

/// Ends the making of values that contain one that no file may have.
struct Unreadable {
  std::string kind;
};

class TreeMaker {
 public:
  TreeMaker(PickleHeap& heap, uint64_t max_values, bool strict)
      : heap_(heap), max_values_(max_values), strict_(strict) {}

  // What is shared counts each time.
  struct Extent {
    uint64_t values = 0; // 0 while it is being made
    int depth = 0;
  };

  // Adds to the extent of what the value is in, which is `depth` deep.
  c10::IValue make(const PickleValue& value, int depth, Extent& parent);

 private:
  c10::IValue make_object(PickleObject& object, int depth, Extent& parent);
  c10::IValue make_content(PickleObject& object, int depth, Extent& own);
  std::vector<c10::IValue> make_all(
      const std::vector<PickleValue>& values,
      int depth,
      Extent& own);
  std::vector<c10::IValue> make_known_items(
      const std::vector<PickleValue>& values,
      int depth,
      Extent& own);
  c10::IValue make_list(std::vector<c10::IValue> items);
  c10::IValue make_dict(std::vector<c10::IValue> items);

  struct Made {
    c10::IValue value;
    Extent extent;
  };

  PickleHeap& heap_;
  uint64_t max_values_;
  bool strict_;
  std::unordered_map<const PickleObject*, Made> made_;
};

c10::IValue TreeMaker::make(
    const PickleValue& value,
    int depth,
    Extent& parent) {
  if (auto* const* object = std::get_if<PickleObject*>(&value)) {
    return make_object(**object, depth, parent);
  }
  ++parent.values;
  if (const auto* truth = std::get_if<bool>(&value)) {
    return *truth;
  }
  if (const auto* number = std::get_if<int64_t>(&value)) {
    return *number;
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return *number;
  }
  return {};
}

c10::IValue TreeMaker::make_object(
    PickleObject& object,
    int depth,
    Extent& parent) {
  if (auto* text = std::get_if<std::string>(&object.content)) {
    heap_.charge(kContainerBytes + text->size());
    ++parent.values;
    return *text;
  }
  const auto [found, fresh] = made_.try_emplace(&object);
  auto& made = found->second; // stays where it is
  if (fresh) {
    limit_depth(depth);
    heap_.charge(sizeof(*found) + kContainerBytes);
    Extent own{1, 1};
    try {
      made.value = make_content(object, depth, own);
    } catch (const Unreadable&) {
      made_.erase(&object);
      throw;
    }
    made.extent = own;
  }
  TORCH_CHECK(made.extent.values > 0, "it has a value that contains itself");
  limit_depth(depth + made.extent.depth - 1);
  parent.depth = std::max(parent.depth, made.extent.depth + 1);
  parent.values += made.extent.values;
  TORCH_CHECK(
      parent.values <= max_values_,
      "it refers to the same values so often that they would be more than ",
      max_values_);
  return made.value;
}

c10::IValue TreeMaker::make_content(
    PickleObject& object,
    int depth,
    Extent& own) {
  if (auto* tensor = std::get_if<at::Tensor>(&object.content)) {
    return *tensor;
  }
  if (auto* list = std::get_if<PickleList>(&object.content)) {
    return make_list(make_all(list->items, depth, own));
  }
  if (auto* tuple = std::get_if<PickleTuple>(&object.content)) {
    return c10::ivalue::Tuple::create(make_all(tuple->items, depth, own));
  }
  if (auto* dict = std::get_if<PickleDict>(&object.content)) {
    return make_dict(make_known_items(dict->items, depth, own));
  }
  if (!strict_) {
    throw Unreadable{kind_of(&object)};
  }
  TORCH_CHECK(
      false,
      "it has ",
      kind_of(&object),
      " as a value; this library reads tensors, numbers, strings, lists, "
      "tuples and dicts of them");
}

std::vector<c10::IValue> TreeMaker::make_all(
    const std::vector<PickleValue>& values,
    int depth,
    Extent& own) {
  heap_.charge(values.size() * kItemBytes);
  std::vector<c10::IValue> result;
  result.reserve(values.size());
  for (const auto& value : values) {
    result.push_back(make(value, depth + 1, own));
  }
  return result;
}

/// Of a dict's keys and values in turn.
std::vector<c10::IValue> TreeMaker::make_known_items(
    const std::vector<PickleValue>& values,
    int depth,
    Extent& own) {
  heap_.charge(values.size() * kItemBytes);
  std::vector<c10::IValue> result;
  result.reserve(values.size());
  for (size_t i = 0; i < values.size(); i += 2) {
    try {
      auto key = make(values[i], depth + 1, own);
      auto item = make(values[i + 1], depth + 1, own);
      result.push_back(std::move(key));
      result.push_back(std::move(item));
    } catch (const Unreadable&) { // left out
    }
  }
  return result;
}

c10::IValue TreeMaker::make_list(std::vector<c10::IValue> items) {
  auto list = new_list();
  list.reserve(items.size());
  for (auto& item : items) {
    list.push_back(std::move(item));
  }
  return list;
}

c10::IValue TreeMaker::make_dict(std::vector<c10::IValue> items) {
  std::vector<c10::IValue> keys;
  for (size_t i = 0; i < items.size(); i += 2) {
    TORCH_CHECK(
        items[i].isString() || items[i].isInt(),
        "a dict has a key that is a ",
        items[i].tagKind(),
        "; this library takes strings and integers");
    keys.push_back(items[i]);
  }
  heap_.charge(dict_slots(keys) * kDictSlotBytes);
  auto dict = new_dict();
  for (size_t i = 0; i < items.size(); i += 2) {
    TORCH_CHECK(
        dict.insert(items[i], std::move(items[i + 1])).second,
        "a dict has the key ",
        items[i],
        " twice");
  }
  return dict;
}

} // namespace

c10::IValue make_tree(
    const PickleValue& value,
    PickleHeap& heap,
    uint64_t max_values,
    bool strict) {
  TreeMaker::Extent all;
  try {
    return TreeMaker(heap, max_values, strict).make(value, 0, all);
  } catch (const Unreadable& unreadable) {
    TORCH_CHECK(false, "it is or contains ", unreadable.kind);
  }
}

} // namespace ddp::detail
