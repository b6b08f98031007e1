#include <ATen/ops/empty.h>
#include <checkpoint/formats/pickle/storage_plan.h>
#include <checkpoint/formats/values.h>
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
  count(value);
}

StoragePlan::Key StoragePlan::key_of(const at::Tensor& tensor) {
  return {tensor.storage().unsafeGetStorageImpl(), tensor.scalar_type()};
}

void StoragePlan::count(const c10::IValue& value) {
  if (value.isTensor() && plain(value.toTensor())) {
    used_bytes_[key_of(value.toTensor())] += value.toTensor().nbytes();
  }
  for_each_item(value, [&](const auto& /*key*/, const c10::IValue& item) {
    count(item);
  });
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
