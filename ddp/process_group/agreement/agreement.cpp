#include <ddp/process_group/agreement/agreement.h>

#include <ddp/internal/check.h>
#include <ddp/process_group/agreement/store_gather.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/support/detached_task.h>

#include <algorithm>

namespace ddp::detail {
namespace {

constexpr std::chrono::seconds kClueTime(5);

/// Empty if all parts are equal.
std::string difference(
    const std::vector<StoreGather::Part>& parts,
    const std::string& what) {
  const auto& first = parts.front();
  for (const auto& part : parts) {
    if (part.content != first.content) {
      return detail::format(
          "{} differ between ranks: rank {} has {}, rank {} has {}; they must "
          "be the same on all ranks in the same backward pass",
          what,
          first.rank,
          first.content,
          part.rank,
          part.content);
    }
  }
  return "";
}

std::string missing_ranks(StoreGather gather, int64_t size) {
  const auto parts = gather.parts();
  std::string text;
  for (int64_t rank = 0; rank < size; ++rank) {
    const bool came = std::any_of(
        parts.begin(), parts.end(), [rank](const StoreGather::Part& part) {
          return part.rank == rank;
        });
    if (!came) {
      text += c10::str("; rank ", rank, " of ", size, " has not arrived");
    }
  }
  return text;
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
  StoreGather gather(store, key);
  const StoreGather::Part own{group.rank(), text};
  answered_within(
      group.timeout(), [gather, own, what, size = group.size()]() mutable {
        if (const auto all = gather.add(own, size)) {
          gather.decide(difference(*all, what));
        }
      });
  const auto operation = c10::str("comparing ", what, " (here ", text, ")");
  wait_for(
      group, store, gather.verdict_key(), operation.c_str(), [&gather, &group] {
        return answered_within(kClueTime, [gather, size = group.size()] {
          return missing_ranks(gather, size);
        });
      });
  const auto verdict = answered_within(
      group.timeout(), [gather]() mutable { return gather.verdict(); });
  DDP_CHECK(verdict.empty(), verdict);
}

} // namespace ddp::detail
