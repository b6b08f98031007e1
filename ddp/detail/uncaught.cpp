#include <ddp/detail/uncaught.h>

#include <ddp/detail/collective_wait.h>

#include <c10/util/Type.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <mutex>
#include <thread>

namespace ddp::detail {
namespace {

using nlohmann::json;

struct Handler {
  std::mutex mutex;
  std::weak_ptr<FailureBoard> board;
  std::terminate_handler previous = nullptr;
  std::atomic<bool> begun{false};
};

/// Never destroyed: threads may end the program while it exits.
Handler& handler() {
  static auto* instance = new Handler;
  return *instance;
}

struct Uncaught {
  std::string text;
  bool consequence = false;
};

Uncaught current() {
  try {
    if (const auto error = std::current_exception()) {
      std::rethrow_exception(error);
    }
    return {"std::terminate was called without an exception"};
  } catch (const c10::Error& error) {
    return {
        c10::demangle(typeid(error).name()) + ": " +
            error.what_without_backtrace(),
        dynamic_cast<const PeerError*>(&error) != nullptr};
  } catch (const std::exception& error) {
    return {c10::demangle(typeid(error).name()) + ": " + error.what()};
  } catch (...) {
    return {"an exception that is no std::exception"};
  }
}

/// As torch.distributed.elastic's `record` does.
void write_error_file(const std::string& text) {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path && *path) {
    const json content{
        {"message",
         {{"message", text},
          {"extraInfo",
           {{"py_callstack", ""},
            {"timestamp", std::to_string(std::time(nullptr))}}}}}};
    std::ofstream(path) << content.dump(
        -1, ' ', false, json::error_handler_t::replace);
  }
}

void report_current() noexcept {
  const auto uncaught = current();
  write_error_file(uncaught.text);
  std::shared_ptr<FailureBoard> board;
  {
    const std::lock_guard<std::mutex> lock(handler().mutex);
    board = handler().board.lock();
  }
  // The wait that a consequence came from has told the others.
  if (board && !uncaught.consequence) {
    board->report("", uncaught.text);
  }
}

[[noreturn]] void on_terminate() {
  if (!handler().begun.exchange(true)) {
    report_current();
  } else {
    // Another thread is at it: the process shall not end before.
    std::this_thread::sleep_for(std::chrono::seconds(4));
  }
  if (handler().previous) {
    handler().previous();
  }
  std::abort();
}

} // namespace

void report_uncaught(const std::shared_ptr<FailureBoard>& board) {
  const std::lock_guard<std::mutex> lock(handler().mutex);
  handler().board = board;
  static const bool installed = [] {
    handler().previous = std::set_terminate(on_terminate);
    return true;
  }();
  static_cast<void>(installed);
}

} // namespace ddp::detail
