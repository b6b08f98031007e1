#include <ddp/detail/agreement.h>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ddp::detail {
namespace {

/// What `rank` wrote; throws where it does not come in time.
std::string wait_for(
    c10d::Store& store,
    const ProcessGroup& group,
    const std::string& key,
    const std::string& what,
    const std::string& text) {
  try {
    store.wait({key}, group.timeout());
  } catch (const std::exception& error) {
    C10_THROW_ERROR(
        DistBackendError,
        c10::str(
            "rank ",
            group.rank(),
            " of ",
            group.size(),
            ": ",
            what,
            " must be the same on all ranks; here they are ",
            text,
            ", and ",
            key,
            " did not come: ",
            error.what()));
  }
  const auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

} // namespace

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
    const auto theirs = wait_for(*store, group, key_of(r), what, text);
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
