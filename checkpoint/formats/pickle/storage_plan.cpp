#include <ATen/core/Dict.h>
#include <ATen/ops/empty.h>
#include <checkpoint/formats/pickle/pickle_tree.h>
#include <checkpoint/formats/pickle/storage_plan.h>
#include <ddp/internal/check.h>
#include <ddp/support/plain_memory.h>
#include <ddp/support/plain_tensor.h>

namespace ddp::detail {
namespace {

// Lazily conjugated and negated values have to be computed, and lazy zeros have
// no memory.
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

} // namespace

StoragePlan::StoragePlan(const c10::IValue& value) {
  count(value, 0);
}

StoragePlan::Key StoragePlan::key_of(const at::Tensor& tensor) {
  return {tensor.storage().unsafeGetStorageImpl(), tensor.scalar_type()};
}

void StoragePlan::count(const c10::IValue& value, int depth) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    if (plain(tensor)) {
      used_bytes_[key_of(tensor)] += tensor.nbytes();
    }
    return;
  }
  if (!value.isList() && !value.isTuple() && !value.isGenericDict()) {
    return;
  }
  DDP_CHECK_VALUE(
      depth < kMaxDepth,
      "its values are nested more than {} deep, or contain themselves",
      kMaxDepth);
  if (value.isList()) {
    for (const auto& item : value.toListRef()) {
      count(item, depth + 1);
    }
  } else if (value.isTuple()) {
    for (const auto& item : value.toTupleRef().elements()) {
      count(item, depth + 1);
    }
  } else {
    for (const auto& item : value.toGenericDict()) {
      count(item.value(), depth + 1);
    }
  }
}

StoragePlan::Place StoragePlan::place(const at::Tensor& tensor) {
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

} // namespace ddp::detail
