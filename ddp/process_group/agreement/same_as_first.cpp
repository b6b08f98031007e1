#include <ddp/process_group/agreement/same_as_first.h>

#include <ddp/process_group/process_group_impl.h>
#include <ddp/support/own_thread.h>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <vector>

namespace ddp::detail {

void check_same_as_first(
    const ProcessGroup& group,
    const std::string& what,
    const std::string& text) {
  auto& impl = ProcessGroupImpl::of(group);
  const auto store = group.store();
  if (!store || group.size() == 1) {
    return;
  }
  const auto key =
      c10::str(impl.scope, "/same_", what, "_", impl.comparisons[what]++);
  const auto own = c10::str("rank ", group.rank(), " has ", text);
  std::vector<uint8_t> bytes;
  try {
    bytes = answered_within(group.timeout(), [store, key, own] {
      return store->compareSet(
          key, {}, std::vector<uint8_t>(own.begin(), own.end()));
    });
  } catch (const c10::DistNetworkError&) {
    return; // the rank that keeps the store has ended: it compares no more
  }
  const std::string first(bytes.begin(), bytes.end());
  const auto texts_begin = [](const std::string& said) {
    return said.find(" has ") + 5;
  };
  TORCH_CHECK_VALUE(
      first.substr(texts_begin(first)) == text,
      what,
      " differs between ranks: ",
      own,
      ", ",
      first,
      ". All ranks have to give the same, in the same order");
}

} // namespace ddp::detail
