#include <ATen/core/Tensor.h>
#include <checkpoint/command/leaves.h>
#include <checkpoint/formats/values.h>

#include <unordered_set>
#include <utility>

namespace ddp::command {
namespace {

class LeafCollector {
 public:
  explicit LeafCollector(bool whole_lists) : whole_lists_(whole_lists) {}

  void collect(const c10::IValue& value, const std::string& place) {
    if (is_leaf(value)) {
      add(place, value);
      return;
    }
    detail::for_each_item(value, [&](const auto& key, const auto& item) {
      collect(item, detail::place_in(place, key));
    });
  }

  std::vector<Leaf> take_leaves() {
    return std::move(leaves_);
  }

 private:
  bool is_leaf(const c10::IValue& value) const {
    size_t items = 0;
    size_t plain = 0;
    detail::for_each_item(value, [&](const auto& /*key*/, const auto& item) {
      ++items;
      plain += !item.isTensor() && !item.isGenericDict() && !item.isList() &&
          !item.isTuple();
    });
    return items == 0 ||
        (whole_lists_ && !value.isGenericDict() && plain == items);
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
