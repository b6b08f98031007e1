#include <ddp/detail/agreement.h>

#include <ddp/detail/collective_wait.h>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ddp::detail {

void agree(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroup& group,
    const std::string& key,
    const std::string& text,
    const std::string& what) {
  if (group.size() == 1) {
    return;
  }
  TORCH_CHECK(store, what, " cannot be compared over ranks without a store");
  const auto key_of = [&](int64_t rank) {
    return key + "/rank " + std::to_string(rank);
  };
  store->set(key_of(group.rank()), text);
  for (int64_t r = 0; r < group.size(); ++r) {
    const auto operation = c10::str(
        "comparing ", what, " (here ", text, ") with those of rank ", r);
    wait_for(group, *store, key_of(r), operation.c_str());
    const auto bytes = store->get(key_of(r));
    const std::string theirs(bytes.begin(), bytes.end());
    TORCH_CHECK(
        theirs == text,
        what,
        " differ between ranks: rank ",
        group.rank(),
        " has ",
        text,
        ", rank ",
        r,
        " has ",
        theirs);
  }
}

} // namespace ddp::detail
