#include <ddp/process_group/uncaught.h>

#include <ddp/failure/error_file.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/process_group/wait_report.h>

#include <c10/util/Logging.h>
#include <c10/util/Type.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <thread>

namespace ddp::detail {
namespace {

using nlohmann::json;

struct Handler {
  std::mutex mutex;
  /// The process of the groups, which a forked child does not report.
  std::atomic<pid_t> owner{0};
  /// The stores of existing groups.
  std::vector<std::weak_ptr<FailureStore>> stores;
  std::terminate_handler previous = nullptr;
  std::atomic<bool> begun{false};
};

/// Never destroyed: other threads may call std::terminate during the exit.
Handler& handler() {
  static auto* instance = new Handler;
  return *instance;
}

struct Uncaught {
  std::chrono::nanoseconds time =
      std::chrono::system_clock::now().time_since_epoch();
  std::string text;
  /// The text and the stack, as in Python's error files; empty unless frames
  /// are shown.
  std::string stack;
  /// Another rank's failure is the reason.
  bool consequence = false;
  /// The other ranks know the failure.
  bool known = false;
};

/// The store throws if rank 0 or the launcher has ended, or if a wait for
/// another rank's key timed out.
bool tells_of_peer(const c10::Error& error) {
  return dynamic_cast<const PeerError*>(&error) != nullptr ||
      dynamic_cast<const c10::DistStoreError*>(&error) != nullptr ||
      dynamic_cast<const c10::DistNetworkError*>(&error) != nullptr;
}

Uncaught describe(const c10::Error& error) {
  Uncaught result;
  result.known = dynamic_cast<const PeerError*>(&error) != nullptr;
  const auto& type = result.known ? typeid(c10::DistBackendError) // public
                                  : typeid(error);
  result.text =
      c10::demangle(type.name()) + ": " + error.what_without_backtrace();
  if (error.backtrace() && shows_frames()) {
    result.stack = result.text + "\n" + error.backtrace()->get();
  }
  result.consequence = tells_of_peer(error);
  return result;
}

Uncaught current() {
  Uncaught result;
  try {
    if (const auto error = std::current_exception()) {
      std::rethrow_exception(error);
    }
    result.text =
        "std::terminate was called without an exception: was a std::thread "
        "destroyed that was not joined?";
  } catch (const c10::Error& error) {
    result = describe(error);
  } catch (const std::exception& error) {
    result.text = c10::demangle(typeid(error).name()) + ": " + error.what();
  } catch (...) {
    result.text = "an exception that is not a std::exception";
  }
  // The program may have caught the error that names the other rank.
  result.consequence = result.consequence || heartbeat::is_failed_by_another();
  return result;
}

/// Writes the file of torch.distributed.elastic's `record`, with fields for
/// ddprun.
void write_error_file(const Uncaught& uncaught) {
  using std::chrono::seconds;
  char activity[256];
  heartbeat::copy_activity(activity, sizeof(activity));
  json details{
      {"timestamp",
       std::to_string(
           std::chrono::duration_cast<seconds>(uncaught.time).count())},
      {"timestamp_ns", std::to_string(uncaught.time.count())},
      {"rank", launched_rank()},
      {"step", std::to_string(heartbeat::last_step())},
      {"activity", activity}};
  if (!uncaught.stack.empty()) { // torchrun would show it instead of the text
    details["py_callstack"] = uncaught.stack;
  }
  if (uncaught.consequence) {
    details["consequence"] = "true";
  }
  const json content{
      {"message", {{"message", uncaught.text}, {"extraInfo", details}}}};
  write_error_report(
      content.dump(-1, ' ', false, json::error_handler_t::replace));
}

void report(const Uncaught& uncaught) noexcept {
  if (!uncaught.consequence) {
    heartbeat::failed_by_itself();
  }
  write_error_file(uncaught);
  if (uncaught.known || handler().owner != getpid()) {
    return;
  }
  std::vector<std::weak_ptr<FailureStore>> stores;
  {
    const std::lock_guard<std::mutex> lock(handler().mutex);
    stores = handler().stores;
  }
  // The newest group first: a host of an older one may be lost.
  for (auto weak = stores.rbegin(); weak != stores.rend(); ++weak) {
    if (const auto store = weak->lock()) {
      const auto rank = this_rank(store->root_rank(), store->root_size());
      using Kind = Failure::Kind;
      uncaught.consequence
          ? store->report(
                "", rank + " failed: " + uncaught.text, Kind::kConsequence)
          : store->report("", uncaught.text);
    }
  }
}

/// Prints less than the runtime, which adds about forty C++ frames to the text
/// of a c10::Error.
[[noreturn]] void end_briefly(const std::string& text) {
  std::cerr << "error: " + text + "\n" << std::flush;
  std::abort();
}

[[noreturn]] void on_terminate() {
  if (!handler().begun.exchange(true)) {
    const auto uncaught = current();
    report(uncaught);
    if (!shows_frames() &&
        handler().previous == __gnu_cxx::__verbose_terminate_handler) {
      end_briefly(uncaught.text);
    }
  } else {
    // Another thread is reporting; the process must not end earlier.
    std::this_thread::sleep_for(std::chrono::seconds(4));
  }
  if (handler().previous) {
    handler().previous();
  }
  std::abort();
}

} // namespace

void report_exception() noexcept {
  report(current());
}

void report_uncaught(const std::shared_ptr<FailureStore>& failure_store) {
  const std::lock_guard<std::mutex> lock(handler().mutex);
  auto& stores = handler().stores;
  if (handler().owner.exchange(getpid()) != getpid()) {
    stores.clear(); // of the process that forked this one
  }
  stores.erase(
      std::remove_if(
          stores.begin(),
          stores.end(),
          [](const auto& other) { return other.expired(); }),
      stores.end());
  if (failure_store) {
    stores.push_back(failure_store);
  }
  static const bool installed = [] {
    if (!shows_frames()) { // what() would contain the frames
      c10::SetStackTraceFetcher([] { return std::string(); });
    }
    handler().previous = std::set_terminate(on_terminate);
    return true;
  }();
  static_cast<void>(installed);
}

} // namespace ddp::detail
