#include <checkpoint/formats/pickle/pickle_tree.h>
#include <checkpoint/formats/values.h>
#include <ddp/internal/check.h>
#include <ddp/support/containers.h>

namespace ddp::detail {
namespace {

// The memory of LibTorch's containers, and of each item.
constexpr uint64_t kContainerBytes = 128;
constexpr uint64_t kItemBytes = sizeof(c10::IValue);
constexpr uint64_t kDictSlotBytes = 64;

/// Thrown for a value that no file may contain.
struct Unreadable {
  std::string kind;
};

class TreeMaker {
 public:
  TreeMaker(PickleArena& arena, bool strict, std::vector<std::string>* omitted)
      : arena_(arena), strict_(strict), omitted_(omitted) {}

  /// `depth` is the depth of the container.
  c10::IValue make(const PickleValue& value, int depth) {
    arena_.charge(kItemBytes);
    if (auto* const* object = std::get_if<PickleObject*>(&value)) {
      return make_content(**object, depth);
    }
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

 private:
  c10::IValue make_content(const PickleObject& object, int depth) {
    arena_.charge(kContainerBytes);
    if (const auto* text = std::get_if<std::string>(&object.content)) {
      arena_.charge(text->size());
      return *text;
    }
    if (const auto* tensor = std::get_if<at::Tensor>(&object.content)) {
      return *tensor;
    }
    check_depth(depth);
    if (const auto* list = std::get_if<PickleList>(&object.content)) {
      return make_list(*list, depth + 1);
    }
    if (const auto* tuple = std::get_if<PickleTuple>(&object.content)) {
      return make_tuple(*tuple, depth + 1);
    }
    if (const auto* dict = std::get_if<PickleDict>(&object.content)) {
      return make_dict(*dict, depth + 1);
    }
    throw Unreadable{kind_of(object)};
  }

  c10::IValue make_item(
      const PickleValue& key,
      const PickleValue& value,
      int depth) {
    place_.push_back(key);
    auto item = make(value, depth);
    place_.pop_back();
    return item;
  }

  c10::IValue make_list(const PickleList& list, int depth) {
    auto result = new_list();
    for (const auto& item : list.items) {
      const auto position = static_cast<int64_t>(result.size());
      result.push_back(make_item(position, item, depth));
    }
    return result;
  }

  c10::IValue make_tuple(const PickleTuple& tuple, int depth) {
    std::vector<c10::IValue> items;
    for (const auto& item : tuple.items) {
      const auto position = static_cast<int64_t>(items.size());
      items.push_back(make_item(position, item, depth));
    }
    return c10::ivalue::Tuple::create(std::move(items));
  }

  void omit(const PickleValue& key) {
    place_.push_back(key);
    std::string place;
    for (const auto& part : place_) {
      const auto* name = content_of<std::string>(part);
      const auto* number = content_of<int64_t>(part);
      const auto text = name != nullptr ? *name
          : number != nullptr           ? std::to_string(*number)
                                        : "(" + kind_of(part) + ")";
      arena_.charge(text.size() + 1);
      place += (place.empty() ? "" : ".") + text;
    }
    place_.pop_back();
    omitted_->push_back(std::move(place));
  }

  static void check_key(const c10::IValue& key) {
    if (!key.isString() && !key.isInt()) {
      throw Unreadable{
          "a dict with a key of type " + key.tagKind() +
          " (keys must be strings or integers)"};
    }
  }

  c10::IValue make_dict(const PickleDict& dict, int depth) {
    std::vector<c10::IValue> keys;
    std::vector<c10::IValue> values;
    const auto place = place_.size();
    for (size_t i = 0; i < dict.items.size(); i += 2) {
      try {
        auto key = make(dict.items[i], depth);
        check_key(key);
        values.push_back(make_item(dict.items[i], dict.items[i + 1], depth));
        keys.push_back(std::move(key));
      } catch (const Unreadable&) {
        if (strict_) {
          throw;
        } // else the item is dropped
        place_.resize(place);
        if (omitted_ != nullptr) {
          omit(dict.items[i]);
        }
      }
    }
    arena_.charge(dict_slots(keys) * kDictSlotBytes);
    auto result = new_dict();
    for (size_t i = 0; i < keys.size(); ++i) {
      DDP_CHECK(
          result.insert(keys[i], std::move(values[i])).second,
          "a dict has the key {} twice",
          keys[i]);
    }
    return result;
  }

  PickleArena& arena_;
  bool strict_;
  std::vector<std::string>* omitted_;
  std::vector<PickleValue> place_; // the keys of the value that is made
};

} // namespace

c10::IValue make_tree(
    const PickleValue& value,
    PickleArena& arena,
    bool strict,
    std::vector<std::string>* omitted) {
  try {
    return TreeMaker(arena, strict, omitted).make(value, 0);
  } catch (const Unreadable& unreadable) {
    DDP_THROW(
        Error,
        "it is or contains {}; this library reads tensors, numbers, bools, "
        "strings, None, and lists, tuples and dicts of these",
        unreadable.kind);
  }
}

} // namespace ddp::detail
