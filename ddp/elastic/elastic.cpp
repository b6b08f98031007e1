#include <ddp/elastic.h>

#include <ddp/elastic/agreed_flag.h>
#include <ddp/failure/elastic_pause.h>
#include <ddp/failure/flight_recorder.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/agreement/broadcast_value.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/support/detached_task.h>
#include <ddp/support/snapshot_memory.h>

#include <ATen/ATen.h>
#include <c10/util/thread_name.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <thread>

namespace ddp {
namespace {

namespace elastic_pause = detail::elastic_pause;
using std::chrono::milliseconds;

constexpr milliseconds kLook{20};
constexpr milliseconds kLongLook{100};

/// A copy of a state.
class Commit {
 public:
  void make(const TrainingState& state) {
    std::vector<at::Tensor> tensors;
    // The default group, of one rank, does not communicate.
    const auto value = state.state_dict();
    const auto bytes = torch::jit::pickle(value, &tensors);
    pickled_.assign(bytes.begin(), bytes.end());
    memory_.begin();
    tensors_.clear();
    for (const auto& tensor : tensors) {
      tensors_.push_back(memory_.copy(tensor));
    }
  }

  c10::IValue value() const {
    std::vector<at::Tensor> copies; // which may then change in place
    for (const auto& tensor : tensors_) {
      copies.push_back(tensor.clone());
    }
    return torch::jit::unpickle(
        pickled_.data(), pickled_.size(), nullptr, copies);
  }

 private:
  std::string pickled_; // without the tensors
  std::vector<at::Tensor> tensors_;
  detail::SnapshotMemory memory_;
};

/// Ends the waits of a rank that must pause, but reaches no step since other
/// ranks have ended. Does nothing if no pause is possible.
class Watch {
 public:
  Watch() {
    if (elastic_pause::may_come()) {
      thread_ = std::thread([this] { run(); });
    }
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() {
    stopped_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
  }

 private:
  void run() {
    c10::setThreadName("ddp_elastic");
    while (!stopped_) {
      if (elastic_pause::is_asked_within(kLongLook)) {
        limit_step();
      }
    }
  }

  void limit_step() {
    const auto end =
        std::chrono::steady_clock::now() + elastic_pause::step_patience();
    while (!stopped_ && elastic_pause::is_asked()) {
      if (std::chrono::steady_clock::now() >= end) {
        elastic_pause::end_waits();
      }
      std::this_thread::sleep_for(kLook);
    }
  }

  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

/// Whether an exception is due to a change of the job's nodes. The error for a
/// lost peer can occur long before ddprun detects the change.
bool follows_from_change(const std::exception& error) {
  if (dynamic_cast<const MembershipChanged*>(&error)) {
    return true;
  }
  if (!dynamic_cast<const c10::Error*>(&error) ||
      dynamic_cast<const c10::ValueError*>(&error)) {
    return false;
  }
  return elastic_pause::is_asked() ||
      (dynamic_cast<const c10::DistError*>(&error) &&
       elastic_pause::is_asked_within(elastic_pause::loss_patience()));
}

/// Null if the nodes change again before the group is formed. The thread that
/// forms the group is then abandoned.
std::optional<ProcessGroup> next_group(const ProcessGroupOptions& options) {
  auto group =
      detail::run_detached([options] { return init_process_group(options); });
  while (group.wait_for(kLook) != std::future_status::ready) {
    if (elastic_pause::is_asked()) {
      return std::nullopt;
    }
  }
  try {
    return group.get();
  } catch (const std::exception& error) {
    if (!follows_from_change(error)) {
      throw;
    }
    return std::nullopt;
  }
}

} // namespace

const char* MembershipChanged::what() const noexcept {
  return "the nodes of the job change (ddp::elastic catches this exception)";
}

struct DDP_LOCAL ElasticRun::Impl {
  explicit Impl(const ElasticOptions& its_options) : options(its_options) {
    DDP_CHECK_VALUE(
        options.commit_every() >= 1,
        "ElasticOptions: commit_every must be at least 1, not {}",
        options.commit_every());
    const auto& each = options.group();
    DDP_CHECK_VALUE(
        !each.rank() && !each.world_size() && each.master_addr().empty() &&
            !each.master_port(),
        "ElasticOptions: rank, world_size, master_addr and master_port change "
        "with each group: set them only in the environment");
  }

  void commit() {
    detail::check_gpu_results(group); // before the last copy is overwritten
    kept.make(*state);
    committed = steps;
  }

  /// Finds the rank whose copy counts. Returns whether the training continues.
  bool agree_on_progress() {
    flag.emplace(group, "ElasticRun::step");
    root = -1;
    int64_t most = -1;
    bool goes_on = true;
    const auto own = at::tensor({committed, int64_t{finished}}, at::kLong);
    const auto all = group.all_gather(own);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const auto* told = all[rank].const_data_ptr<int64_t>();
      goes_on = goes_on && told[1] == 0;
      if (told[0] > most) {
        most = told[0];
        root = static_cast<int64_t>(rank);
      }
    }
    steps = std::max<int64_t>(most, 0);
    return goes_on;
  }

  /// Returns if the training is complete, and throws if the nodes change.
  void train_once(const std::function<void()>& train) {
    if (agree_on_progress()) {
      train();
      flag->finish();
    }
    finished = true;
    // A rank that was asked to pause before this call must join the next group.
    elastic_pause::set_possible(false);
    if (elastic_pause::is_asked()) {
      elastic_pause::set_possible(true);
      throw MembershipChanged();
    }
  }

  void leave_group() {
    flag.reset();
    state.reset();
    group = ProcessGroup();
  }

  void pause() {
    leave_group();
    std::optional<ProcessGroup> next;
    while (!next) {
      elastic_pause::make();
      debug::flight_recorder::await_new_rank();
      next = next_group(options.group());
    }
    group = *next;
  }

  ElasticOptions options;
  ProcessGroup group;
  std::optional<TrainingState> state;
  std::optional<detail::AgreedFlag> flag;
  Commit kept;
  int64_t steps = 0; // of the job, since its last full start
  int64_t committed = -1; // steps in `kept`; -1 if empty
  int64_t root = -1; // the rank whose copy counts
  bool finished = false;
};

ElasticRun::ElasticRun(const ElasticOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}

ElasticRun::~ElasticRun() = default;

const ProcessGroup& ElasticRun::group() const {
  return impl_->group;
}

bool ElasticRun::sync(const TrainingState& state) {
  const detail::heartbeat::Activity activity("ElasticRun::sync");
  for (const auto& part : state.parts_) {
    DDP_CHECK_VALUE(
        !part.sharded,
        "ElasticRun::sync: \"{}\" is sharded (ZeroRedundancyOptimizer), so the "
        "state of a lost rank cannot be recovered. Use the unsharded optimizer",
        part.name);
  }
  auto& impl = *impl_;
  impl.state = state;
  auto& parts = impl.state->parts_;
  std::string omitted;
  for (const auto& part : parts) {
    if (part.per_rank) {
      omitted += (omitted.empty() ? "'" : ", '") + part.name + "'";
    }
  }
  parts.erase(
      std::remove_if(
          parts.begin(),
          parts.end(),
          [](const auto& part) { return part.per_rank; }),
      parts.end());
  if (impl.root < 0) {
    return false;
  }
  if (!omitted.empty() && impl.group.rank() == 0) {
    TORCH_WARN(
        "ddp: ElasticRun::sync did not change ",
        omitted,
        ", which may differ between ranks");
  }
  const bool sends = impl.group.rank() == impl.root;
  const auto value = detail::broadcast_value(
      sends ? impl.kept.value() : c10::IValue(), impl.group, impl.root);
  impl.state->load_state_dict(value, impl.group);
  detail::ProcessGroupImpl::of(impl.group).repeats_steps = true;
  impl.commit();
  return true;
}

void ElasticRun::step() {
  const detail::heartbeat::Activity activity("ElasticRun::step");
  auto& impl = *impl_;
  ++impl.steps;
  if (impl.state && impl.steps % impl.options.commit_every() == 0) {
    impl.commit();
  }
  if (!impl.flag->exchange(elastic_pause::is_asked())) {
    return;
  }
  if (impl.state && impl.committed != impl.steps) {
    impl.commit();
  }
  throw MembershipChanged();
}

void elastic(
    const std::function<void(ElasticRun&)>& train,
    const ElasticOptions& options) {
  ElasticRun run(options);
  auto& impl = *run.impl_;
  impl.group = init_process_group(options.group());
  const Watch watch;
  elastic_pause::set_possible(true);
  for (;;) {
    try {
      impl.train_once([&] { train(run); });
      return;
    } catch (const std::exception& error) {
      if (!follows_from_change(error)) {
        elastic_pause::set_possible(false);
        throw;
      }
    }
    impl.pause();
  }
}

} // namespace ddp
