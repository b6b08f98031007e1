// spawned COUNT WHAT [ARGUMENT...]: calls ddp::spawn.

#include <ddp/ddp.h>
#include <tests/support/grouped_digits.h>
#include <tests/support/process.h>
#include <torch/types.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using ddp::test::variable;

namespace {

std::vector<std::string> texts;
int64_t count = 1;

std::string text(size_t i) {
  return i < texts.size() ? texts[i] : "";
}

bool is_chosen() {
  return variable("RANK") == text(3);
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void sum() {
  auto group = ddp::init_process_group();
  auto value = torch::full({3}, static_cast<double>(group.rank() + 1));
  group.all_reduce(value);
  say(c10::str(
      "rank ",
      group.rank(),
      " of ",
      group.size(),
      ", local ",
      group.local_rank(),
      " of ",
      group.local_size(),
      ", sum ",
      value[2].item<int64_t>()));
}

/// UBSan would end the process before the signal.
__attribute__((no_sanitize("undefined"))) void write_to_null() {
  *static_cast<volatile int*>(nullptr) = 1;
}

/// The chosen rank does `what`, while the others wait for it.
void fail(const std::function<void()>& what) {
  auto group = ddp::init_process_group();
  group.barrier();
  if (is_chosen()) {
    what();
  }
  group.barrier();
}

void save_and_end(int /*signal*/) {
  _exit(write(1, "saved\n", 6) == 6 ? 0 : 1);
}

/// The chosen rank fails; the others never wait for it, and do `on_request` at
/// SIGTERM.
void fail_beside(void (*on_request)(int)) {
  std::signal(SIGTERM, on_request);
  auto group = ddp::init_process_group();
  group.barrier();
  if (is_chosen()) {
    throw std::runtime_error("no data");
  }
  for (;;) {
    pause();
  }
}

void save_slowly(int signal) {
  sleep(1);
  save_and_end(signal);
}

/// Rank 1 fails, which makes rank 0 fail; rank 1 ends after rank 0.
void fail_slowly() {
  struct End {
    ~End() {
      while (other != 0 && kill(other, 0) == 0) {
        std::this_thread::yield();
      }
    }
    pid_t other = 0;
  } end;
  auto group = ddp::init_process_group();
  const auto pids = group.all_gather(std::to_string(getpid()));
  if (group.rank() == 1) {
    end.other = static_cast<pid_t>(std::stol(pids[0]));
    throw std::runtime_error("the origin");
  }
  group.barrier();
}

void show_arguments() {
  std::string line = "rank " + variable("RANK") + ":";
  for (const auto& each : texts) {
    line += " <" + each + ">";
  }
  say(line);
}

void show_environment() {
  for (const char* name :
       {"RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "OMP_NUM_THREADS",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_ERROR_FILE",
        "OMPI_COMM_WORLD_RANK",
        "DDP_SPAWN"}) {
    const char* value = std::getenv(name);
    say(variable("RANK") + ": " + name + (value ? "=" : " is unset") +
        (value ? value : ""));
  }
}

/// The descriptors that it inherits from the first process.
void show_descriptors() {
  namespace fs = std::filesystem;
  say("rank " + variable("RANK") + ": input is " +
      fs::read_symlink("/proc/self/fd/0").string() + ", 9 is " +
      (fs::exists(fs::symlink_status("/proc/self/fd/9")) ? "open" : "closed"));
}

int64_t open_descriptors() {
  using Files = std::filesystem::directory_iterator;
  return std::distance(Files("/proc/self/fd"), Files());
}

void show_place() {
  say("rank " + variable("RANK") + " of process " + std::to_string(getpid()) +
      " waits");
  for (;;) {
    pause();
  }
}

void end_when_asked() {
  std::signal(SIGTERM, save_and_end);
  show_place();
}

void say_when_asked() {
  for (const int number : {SIGHUP, SIGINT, SIGTERM}) {
    std::signal(number, [](int) {
      if (write(1, "asked\n", 6) != 6) {
        _exit(1);
      }
    });
  }
  std::signal(SIGUSR1, save_and_end);
  show_place();
}

/// A program that a worker starts is not a worker of the same call.
void start_other() {
  const auto command = "unset RANK WORLD_SIZE; '" +
      std::filesystem::read_symlink("/proc/self/exe").string() +
      "' 1 environment";
  const int status = std::system(command.c_str());
  say("other: " + std::to_string(WEXITSTATUS(status)));
}

using Worker = std::function<void()>;
Worker worker_of(const std::string& what, int argc, char** argv) {
  const std::map<std::string, Worker> workers{
      {"sum", sum},
      {"arguments", show_arguments},
      {"taken", show_arguments},
      {"folder", show_arguments},
      {"environment", show_environment},
      {"descriptors", show_descriptors},
      {"wait", show_place},
      {"removed", sum},
      {"replaced", sum},
      {"leaves", sum},
      {"locale", sum},
      {"asked", end_when_asked},
      {"stubborn", say_when_asked},
      {"other", start_other},
      {"deaf", [] { fail_beside(SIG_IGN); }},
      {"slow", fail_slowly},
      {"grace", [] { fail_beside(save_slowly); }},
      {"throw",
       [] { fail([] { throw std::runtime_error("no data for \"it\""); }); }},
      {"number", [] { fail([] { throw 7; }); }},
      {"exit", [] { fail([] { _exit(std::atoi(text(4).c_str())); }); }},
      {"kill", [] { fail([] { raise(SIGKILL); }); }},
      {"crash", [] { fail(write_to_null); }},
      {"recursion",
       [argc, argv] { ddp::spawn(argc, argv, 2, [] { say("no"); }); }}};
  const auto found = workers.find(what);
  return found == workers.end() ? [] {} : found->second;
}

/// Another program is at this program's path from now on.
void replace_program() {
  namespace fs = std::filesystem;
  const auto path = fs::read_symlink("/proc/self/exe");
  fs::copy_file("/bin/false", path.string() + ".new");
  fs::rename(path.string() + ".new", path);
}

/// Runs the rest of main() in a child, as test frameworks do that fork each
/// test. Returns in the child only.
void fork_test() {
  const auto child = fork();
  if (child != 0) {
    int status = -1;
    waitpid(child, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
}

/// Four characters, the size of a signal's number, which spawn flushes.
void write_to_stderr() {
  static char buffer[64];
  std::setvbuf(stderr, buffer, _IOFBF, sizeof(buffer));
  std::fputs("text", stderr);
}

/// A thread that allocates while processes start.
class BusyThread {
 public:
  ~BusyThread() {
    done_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> done_{false};
  std::thread thread_{[this] {
    while (!done_) {
      std::vector<std::string> strings(100, std::string(100, 'x'));
    }
  }};
};

void run(int argc, char** argv) {
  const auto what = text(2);
  const auto worker = worker_of(what, argc, argv);
  auto options = ddp::SpawnOptions().grace(
      std::chrono::seconds(what == "stubborn" ? 1000 : 1));
  if (what == "grace") {
    options.grace(std::chrono::milliseconds(std::stoll(text(4))));
  }
  if (what == "threads") {
    const BusyThread thread;
    ddp::spawn(argc, argv, count, sum, options);
  } else if (what == "twice") {
    const auto sum_and_say = [](const char* call) {
      return [call] {
        say(call);
        sum();
      };
    };
    ddp::spawn(argc, argv, count, sum_and_say("first"), options);
    const auto before = open_descriptors(); // some are LibTorch's
    ddp::spawn(argc, argv, count + 1, sum_and_say("second"), options);
    say("descriptors left: " + std::to_string(open_descriptors() - before));
  } else {
    ddp::spawn(argc, argv, count, worker, options);
  }
}

} // namespace

int main(int argc, char** argv) {
  std::signal(SIGSEGV, SIG_DFL); // no sanitizer's report
  texts.assign(argv, argv + argc);
  count = std::atoll(text(1).c_str());
  const auto what = text(2);
  if (what == "folder") {
    texts.push_back(std::filesystem::current_path());
    std::filesystem::current_path("/");
  }
  if (what == "removed" && variable("RANK").empty()) {
    std::filesystem::remove(std::filesystem::read_symlink("/proc/self/exe"));
  }
  if (what == "replaced" && variable("RANK").empty()) {
    replace_program();
  }
  if (what == "forked") {
    fork_test();
  }
  if (what == "streamless") {
    write_to_stderr();
  }
  if (what == "early" && is_chosen()) {
    return 0;
  }
  if (what == "taken") { // as a library for flags does
    argc = 1;
    argv[1] = nullptr;
  }
  if (what == "locale") {
    ddp::test::group_digits();
  }
  std::printf("before; ");
  const auto before = open_descriptors();
  try {
    run(argc, argv);
  } catch (const c10::Error& error) {
    say(std::string("error: ") + error.what_without_backtrace());
    if (what == "leaves") {
      say("descriptors left: " + std::to_string(open_descriptors() - before));
    }
    return 1;
  }
  say("after");
  return 0;
}
