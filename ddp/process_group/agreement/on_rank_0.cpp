#include <ddp/process_group/agreement/on_rank_0.h>

#include <c10/util/Exception.h>
#include <common/heartbeat_page.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/support/error_text.h>

#include <string>

namespace ddp::detail {
namespace {

/// Tells those that wait for this rank what it is in while it lives.
class Attendance {
 public:
  Attendance(const char* operation, const ProcessGroup& group)
      : group_(ProcessGroupImpl::of(group)) {
    if (group_.board) {
      char call[HeartbeatPage::kActivitySize];
      heartbeat::copy_activity(call, sizeof(call));
      group_.board->attend(
          group_.scope, group_.launched, *call ? call : operation);
    }
  }
  Attendance(const Attendance&) = delete;
  Attendance& operator=(const Attendance&) = delete;
  ~Attendance() {
    if (group_.board) {
      group_.board->leave();
    }
  }

 private:
  ProcessGroupImpl& group_;
};

/// What `work` threw, or nothing.
std::string failure_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    const auto text = error_text(error);
    return text.empty() ? "an exception without a text" : text;
  }
}

} // namespace

void on_rank_0(
    const char* operation,
    const ProcessGroup& group,
    const std::function<void()>& work) {
  const heartbeat::Activity activity(operation);
  std::string own_failure;
  if (group.rank() == 0) {
    const Attendance attendance(operation, group);
    own_failure = failure_of(work);
  }
  const auto failure = group.broadcast(own_failure);
  TORCH_CHECK(
      failure.empty(),
      operation,
      " on rank 0 of ",
      group.size(),
      ": ",
      failure);
}

void on_each_rank(
    const char* operation,
    const ProcessGroup& group,
    const std::function<void()>& work) {
  const heartbeat::Activity activity(operation);
  const auto failures = group.all_gather(failure_of(work));
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    TORCH_CHECK(
        failures[rank].empty(),
        operation,
        " on rank ",
        rank,
        " of ",
        group.size(),
        ": ",
        failures[rank]);
  }
}

} // namespace ddp::detail
