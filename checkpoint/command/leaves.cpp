#include <ATen/core/Tensor.h>
#include <checkpoint/command/leaves.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace ddp::command {
namespace {

bool is_sequence(const c10::IValue& value) {
  return value.isList() || value.isTuple();
}

bool is_plain(const c10::IValue& value) {
  return !value.isTensor() && !value.isGenericDict() && !is_sequence(value);
}

class LeafCollector {
 public:
  explicit LeafCollector(bool whole_lists) : whole_lists_(whole_lists) {}

  void collect(const c10::IValue& value, const std::string& place) {
    if (value.isGenericDict() && !value.toGenericDict().empty()) {
      for (const auto& entry : value.toGenericDict()) {
        collect(entry.value(), below(place, key_text(entry.key())));
      }
    } else if (is_sequence(value) && !is_leaf(items_of(value))) {
      const auto items = items_of(value);
      for (size_t i = 0; i < items.size(); ++i) {
        collect(items[i], below(place, std::to_string(i)));
      }
    } else {
      add(place, value);
    }
  }

  std::vector<Leaf> take_leaves() {
    return std::move(leaves_);
  }

 private:
  static std::string below(const std::string& place, const std::string& name) {
    return place.empty() ? name : place + "." + name;
  }

  bool is_leaf(const std::vector<c10::IValue>& items) const {
    return items.empty() ||
        (whole_lists_ && std::all_of(items.begin(), items.end(), is_plain));
  }

  void add(std::string name, const c10::IValue& value) {
    while (!names_.insert(name).second) { // {"a": {"b": x}, "a.b": y}
      name += "'";
    }
    leaves_.push_back({std::move(name), value});
  }

  bool whole_lists_;
  std::vector<Leaf> leaves_;
  std::unordered_set<std::string> names_;
};

} // namespace

std::vector<Leaf> leaves_of(const c10::IValue& tree, bool whole_lists) {
  LeafCollector collector(whole_lists);
  collector.collect(tree, "");
  return collector.take_leaves();
}

std::string key_text(const c10::IValue& key) {
  return key.isInt() ? std::to_string(key.toInt()) : key.toStringRef();
}

std::vector<c10::IValue> items_of(const c10::IValue& sequence) {
  if (sequence.isList()) {
    return sequence.toListRef().vec();
  }
  const auto& elements = sequence.toTupleRef().elements();
  return std::vector<c10::IValue>(elements.begin(), elements.end());
}

void Extent::add(const at::Tensor& tensor) {
  ++tensors;
  elements += static_cast<uint64_t>(tensor.numel());
  bytes += tensor.nbytes();
}

Extent extent_of(const c10::IValue& tree) {
  Extent extent;
  for (const auto& leaf : leaves_of(tree, /*whole_lists=*/true)) {
    if (leaf.value.isTensor()) {
      extent.add(leaf.value.toTensor());
    }
  }
  return extent;
}

} // namespace ddp::command
