#include <ddp/failure/flight_recorder.h>

#include <common/file_descriptor.h>
#include <common/host_name.h>
#include <common/signal_safe_buffer.h>
#include <ddp/failure/debug_level.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <system_error>

namespace ddp::debug::flight_recorder {
namespace {

using detail::SignalSafeBuffer;

struct Entry {
  /// From 1; 0 while it is written.
  std::atomic<uint64_t> number{0};
  std::atomic<State> state{State::kStarted};
  int64_t sequence = 0;
  int64_t rank = 0;
  int64_t size = 0;
  int64_t bytes = 0;
  bool alike = true;
  int64_t began_ns = 0;
  std::atomic<int64_t> ended_ns{0};
  char group[80];
  char backend[16];
  char operation[40];
  char arguments[64];
  char tensors[256];
  char activity[96];
};

/// Held for less than a microsecond.
class Lock {
 public:
  explicit Lock(std::atomic_flag& busy, int attempts = INT_MAX) : busy_(busy) {
    while (!(held_ = !busy_.test_and_set(std::memory_order_acquire)) &&
           --attempts > 0) {
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() {
    if (held_) {
      busy_.clear(std::memory_order_release);
    }
  }

 private:
  std::atomic_flag& busy_;
  bool held_ = false;
};

// A handler may have interrupted the thread that holds the lock.
constexpr int kAttemptsInHandler = 1000;

struct Recorder {
  int64_t rank = 0;
  int64_t size = 1;
  pid_t owner = 0;
  char host[80] = "";
  /// The error of the first failed operation.
  char failure[1000] = "";
  char folder[PATH_MAX] = "";
  char path[PATH_MAX + 40] = "";
  /// The next `enable` starts another record.
  std::atomic<bool> ended{false};
  std::atomic<unsigned> dumps{0};
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  uint64_t last = 0;
  std::array<Entry, kCapacity> entries;
  Recorder* before = nullptr; // so LeakSanitizer finds it in use
};

// Never destroyed: threads and signal handlers may use one during the exit.
std::atomic<Recorder*> current{nullptr};

/// Only differences count; the time of day may be changed meanwhile.
int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

template <size_t size>
void copy(char (&target)[size], const std::string& text) {
  std::snprintf(target, size, "%s", text.c_str());
}

const char* name_of(State state) {
  constexpr const char* kNames[] = {
      "checking", "started", "completed", "failed"};
  return kNames[static_cast<size_t>(state)];
}

void add_text(SignalSafeBuffer& text, const char* name, const char* value) {
  text.add(",\"").add(name).add("\":\"").add_escaped(value).add('"');
}

void add_number(SignalSafeBuffer& text, const char* name, int64_t value) {
  text.add(",\"").add(name).add("\":");
  text.add_number(static_cast<uint64_t>(value));
}

/// Returns 0, or an errno value.
int write_head(int file, const Recorder& recorder, const char* reason) {
  char memory[8 * sizeof(recorder.failure)];
  SignalSafeBuffer text(memory, sizeof(memory));
  text.add("{\"ddp_flight_record\":1");
  add_number(text, "rank", recorder.rank);
  add_number(text, "size", recorder.size);
  add_text(text, "host", recorder.host);
  add_number(text, "process", recorder.owner);
  add_number(text, "time_ns", now_ns());
  add_text(text, "reason", recorder.failure[0] ? recorder.failure : reason);
  return write_all(file, text.add(",\"collectives\":[").view());
}

/// Returns false for an entry that is overwritten meanwhile, or is another
/// record's.
bool add_entry(SignalSafeBuffer& text, const Entry& entry, uint64_t number) {
  if (entry.number.load(std::memory_order_acquire) != number) {
    return false;
  }
  text.add("{\"number\":").add_number(number);
  add_text(text, "group", entry.group);
  add_text(text, "backend", entry.backend);
  add_number(text, "rank", entry.rank);
  add_number(text, "size", entry.size);
  add_number(text, "sequence", entry.sequence);
  add_text(text, "operation", entry.operation);
  add_text(text, "arguments", entry.arguments);
  add_text(text, "tensors", entry.tensors);
  text.add(",\"alike\":").add(entry.alike ? "true" : "false");
  add_number(text, "bytes", entry.bytes);
  add_text(text, "activity", entry.activity);
  add_text(text, "state", name_of(entry.state));
  add_number(text, "began_ns", entry.began_ns);
  add_number(text, "ended_ns", entry.ended_ns);
  text.add('}');
  return entry.number.load(std::memory_order_acquire) == number;
}

/// Returns 0, or an errno value.
int write_record(int file, Recorder& recorder, const char* reason) {
  int error = write_head(file, recorder, reason);
  uint64_t last = 0;
  {
    const Lock lock(recorder.busy, kAttemptsInHandler);
    last = recorder.last;
  }
  const char* separator = "\n";
  uint64_t number = last > kCapacity ? last - kCapacity + 1 : 1;
  for (; error == 0 && number <= last; ++number) {
    char memory[4096];
    SignalSafeBuffer text(memory, sizeof(memory));
    text.add(separator);
    bool is_kept = false;
    {
      const Lock lock(recorder.busy, kAttemptsInHandler);
      is_kept = add_entry(text, recorder.entries[number % kCapacity], number);
    }
    if (is_kept) {
      error = write_all(file, text.view());
      separator = ",\n";
    }
  }
  return error != 0 ? error : write_all(file, "\n]}\n");
}

/// Null if nothing is recorded, or in a forked child process.
Recorder* recorder_of_this_process() {
  auto* recorder = current.load(std::memory_order_acquire);
  return recorder && recorder->owner == getpid() ? recorder : nullptr;
}

/// Returns 0, or an errno value. Async-signal-safe.
int write_file(Recorder& recorder, const char* reason) {
  mkdir(recorder.folder, 0777); // if it was removed
  // Several threads may dump at the same time.
  char memory[sizeof(recorder.path) + 16];
  SignalSafeBuffer draft(memory, sizeof(memory) - 1);
  draft.add(recorder.path).add(".part").add_number(recorder.dumps++);
  memory[draft.view().size()] = '\0';
  const int file = open(memory, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) {
    return errno;
  }
  int error = write_record(file, recorder, reason);
  close(file);
  if (error == 0 && rename(memory, recorder.path) != 0) {
    error = errno;
  }
  if (error != 0) {
    unlink(memory);
  }
  return error;
}

void on_signal(int number) {
  const int error = errno;
  dump(number == SIGUSR1 ? "SIGUSR1" : "SIGTERM");
  if (number == SIGTERM) {
    std::signal(number, SIG_DFL);
    raise(number); // delivered after this handler returns
  }
  errno = error;
}

void take_signal(int number) {
  struct sigaction before {};
  if (sigaction(number, nullptr, &before) == 0 &&
      !(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_DFL) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, nullptr);
  }
}

/// An absolute path: the program may change its working directory.
void find_folder(Recorder& recorder) {
  const char* named = std::getenv("DDP_DEBUG_FOLDER");
  std::string folder = named && *named ? named : "ddp-debug";
  char here[PATH_MAX];
  if (folder[0] != '/' && getcwd(here, sizeof(here))) {
    folder = std::string(here) + "/" + folder;
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  DDP_CHECK_VALUE(
      !error,
      "DDP_DEBUG_FOLDER: cannot create {}: {}",
      folder,
      error.message());
  copy(recorder.folder, folder);
}

void set_aside(const std::string& path) {
  std::rename(path.c_str(), (path + ".previous").c_str());
}

/// Sets aside the records of ranks that only an earlier, larger job had.
void set_aside_from(int64_t size, const char* folder) {
  std::error_code error;
  std::filesystem::directory_iterator file(folder, error);
  for (; !error && file != std::filesystem::directory_iterator();
       file.increment(error)) {
    const auto name = file->path().filename().string();
    int rank = 0;
    int length = 0;
    if (std::sscanf(name.c_str(), "rank_%d.json%n", &rank, &length) == 1 &&
        length == static_cast<int>(name.size()) && rank >= size) {
      set_aside(file->path().string());
    }
  }
}

} // namespace

void take_dump_signal() {
  if (debug_level() != DebugLevel::kOff) {
    take_signal(SIGUSR1);
  }
}

void enable(int64_t rank, int64_t size) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  auto* before = current.load();
  if (before && !before->ended) {
    return;
  }
  auto* recorder = new Recorder;
  recorder->rank = rank;
  recorder->size = size;
  recorder->owner = getpid();
  copy(recorder->host, detail::host_name());
  if (before) {
    recorder->before = before;
    copy(recorder->folder, before->folder);
    const Lock reading(before->busy);
    recorder->last = before->last; // calls of both have different numbers
  } else {
    find_folder(*recorder);
  }
  copy(
      recorder->path,
      std::string(recorder->folder) + "/rank_" + std::to_string(rank) +
          ".json");
  set_aside(recorder->path);
  if (rank == 0) {
    set_aside_from(size, recorder->folder);
  }
  current = recorder;
  take_signal(SIGTERM);
}

void await_new_rank() noexcept {
  if (auto* recorder = current.load()) {
    recorder->ended = true;
  }
}

uint64_t began(const Caller& caller, int64_t sequence, const Call& call) {
  auto& recorder = *current.load(std::memory_order_acquire);
  char activity[sizeof(Entry::activity)];
  detail::heartbeat::copy_activity(activity, sizeof(activity));
  const auto now = now_ns();
  const Lock lock(recorder.busy);
  const auto number = ++recorder.last;
  auto& entry = recorder.entries[number % kCapacity];
  entry.number = 0;
  entry.state = State::kStarted;
  entry.sequence = sequence;
  entry.rank = caller.rank;
  entry.size = caller.size;
  entry.bytes = call.bytes;
  entry.alike = call.alike;
  entry.began_ns = now;
  entry.ended_ns = 0;
  copy(entry.group, caller.group);
  copy(entry.backend, caller.backend);
  copy(entry.operation, call.operation);
  copy(entry.arguments, call.arguments);
  copy(entry.tensors, call.tensors);
  copy(entry.activity, activity);
  entry.number = number;
  return number;
}

void is_now(uint64_t number, State state) noexcept {
  auto& recorder = *current.load(std::memory_order_acquire);
  const Lock lock(recorder.busy);
  auto& entry = recorder.entries[number % kCapacity];
  if (entry.number == number) {
    entry.state = state;
    const bool ended = state == State::kCompleted || state == State::kFailed;
    entry.ended_ns = ended ? now_ns() : 0;
  }
}

void dump(const char* reason) noexcept {
  if (auto* recorder = recorder_of_this_process()) {
    write_file(*recorder, reason);
  }
}

std::string dump_for(const std::string& error) {
  auto* recorder = recorder_of_this_process();
  if (!recorder) {
    return "";
  }
  {
    const Lock lock(recorder->busy);
    if (!recorder->failure[0]) {
      copy(recorder->failure, error);
    }
  }
  const int failure = write_file(*recorder, error.c_str());
  return failure == 0
      ? std::string("; its last collectives are in ") + recorder->folder
      : std::string("; its last collectives cannot be written to ") +
          recorder->folder + ": " + std::generic_category().message(failure);
}

} // namespace ddp::debug::flight_recorder
