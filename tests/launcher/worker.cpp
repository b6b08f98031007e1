// A rank that behaves as the launcher's tests ask: worker MODE [ARGUMENT...]
// [then MODE [ARGUMENT...]]. It prints "ready <rank> <pid>" when it waits for
// the test.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <dirent.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <common/file_descriptor.h>
#include <common/heartbeat_page.h>

namespace {

using Arguments = std::vector<std::string>;

int my_rank() {
  return std::atoi(std::getenv("RANK"));
}

void write_text(const std::string& text, int fd = STDOUT_FILENO) {
  if (ddp::write_all(fd, text) != 0) {
    _exit(99);
  }
}

void say_ready() {
  write_text(
      "ready " + std::to_string(my_rank()) + " " + std::to_string(getpid()) +
      "\n");
}

[[noreturn]] void wait_for_ever() {
  for (;;) {
    pause();
  }
}

sigset_t waited_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    sigaddset(&set, signal);
  }
  return set;
}

int take_signal() {
  const sigset_t set = waited_signals();
  int signal = 0;
  sigwait(&set, &signal);
  return signal;
}

int print_environment(const Arguments& names) {
  std::string text;
  for (const std::string& name : names) {
    const char* value = std::getenv(name.c_str());
    text += name + (value ? "=" + std::string(value) : " is unset") + "\n";
  }
  write_text(text);
  return 0;
}

// Each inherited descriptor except 0, 1 and 2.
int print_descriptors(const Arguments&) {
  std::string text = "descriptors:";
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (fd <= STDERR_FILENO || fd == dirfd(folder)) {
      continue;
    }
    text += " " + std::to_string(fd);
  }
  closedir(folder);
  write_text(text + "\n");
  return 0;
}

int wait_for_death(const Arguments&) {
  say_ready();
  wait_for_ever();
}

// ignore-term [RANK CODE]: only SIGKILL ends it, except that this rank exits
// with CODE on SIGUSR1.
int ignore_term(const Arguments& arguments) {
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  say_ready();
  if (!arguments.empty() && my_rank() == std::stoi(arguments.at(0))) {
    while (take_signal() != SIGUSR1) {
    }
    return std::stoi(arguments.at(1));
  }
  wait_for_ever();
}

// Prints received signals, until one that is neither USR1 nor USR2.
int tell_signals(const Arguments&) {
  say_ready();
  for (;;) {
    const int signal = take_signal();
    write_text("got " + std::to_string(signal) + "\n");
    if (signal != SIGUSR1 && signal != SIGUSR2) {
      return 0;
    }
  }
}

// Leaves a child and a daemon, both of which ignore SIGTERM and SIGHUP.
void start_family() {
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  if (fork() == 0) {
    wait_for_ever();
  }
  if (fork() == 0) {
    setsid();
    if (fork() == 0) {
      wait_for_ever();
    }
    _exit(0);
  }
}

// family CODE: leaves a family and exits. family: leaves one and waits.
int family(const Arguments& arguments) {
  start_family();
  if (!arguments.empty()) {
    return std::stoi(arguments.at(0));
  }
  say_ready();
  wait_for_ever();
}

void sleep_for(const std::string& milliseconds) {
  usleep(static_cast<useconds_t>(std::stoi(milliseconds)) * 1000);
}

void write_error_file(
    const std::string& message,
    const std::string& stack,
    bool consequence) {
  std::ofstream(std::getenv("TORCHELASTIC_ERROR_FILE"))
      << R"({"message": {"message": ")" << message
      << R"(", "extraInfo": {"timestamp": "1", "py_callstack": ")" << stack
      << R"(", "consequence": ")" << (consequence ? "true" : "false")
      << R"("}}})";
}

ddp::HeartbeatPage* attach_heartbeat() {
  const int fd = std::atoi(std::getenv(ddp::kHeartbeatVariable));
  void* memory = mmap(
      nullptr,
      sizeof(ddp::HeartbeatPage),
      PROT_READ | PROT_WRITE,
      MAP_SHARED,
      fd,
      0);
  if (memory == MAP_FAILED || ftruncate(fd, 0) == 0) {
    _exit(99); // a rank must not be able to shrink the memory
  }
  return static_cast<ddp::HeartbeatPage*>(memory);
}

void begin(ddp::HeartbeatPage* page, const std::string& activity) {
  ++page->sequence;
  for (size_t i = 0; i <= activity.size(); ++i) {
    page->activity[i] = i < activity.size() ? activity[i] : '\0';
  }
  ++page->sequence;
  ++page->beats;
}

void say_where(int) {
  write_error_file("asked", "#0 _ZN3net7forwardEv+0x1 (train+0x2)", false);
  std::signal(SIGABRT, SIG_DFL);
  raise(SIGABRT);
}

// beat RANK STEPS: all ranks take this number of steps, 20 ms apart; then that
// rank does something else while the others wait for it.
int beat(const Arguments& arguments) {
  const bool different = my_rank() == std::stoi(arguments.at(0));
  const int steps = std::stoi(arguments.at(1));
  std::signal(SIGABRT, say_where);
  ddp::HeartbeatPage* page = attach_heartbeat();
  page->version = ddp::HeartbeatPage::kVersion;
  page->joined = 1;
  for (int i = 1; i <= steps; ++i) {
    sleep_for("20");
    begin(page, "bucket 1 of 1, step " + std::to_string(i));
    page->step = i;
  }
  begin(page, different ? "read_batch" : "all_reduce");
  say_ready();
  wait_for_ever();
}

// call [RANK ACTIVITY AFTER MESSAGE CODE]...: these ranks report this activity.
// After AFTER ms they write an error that names another rank as the reason,
// unless MESSAGE is empty, and exit with CODE; with "-" for CODE, they wait.
int call(const Arguments& arguments) {
  ddp::HeartbeatPage* page = attach_heartbeat();
  page->version = ddp::HeartbeatPage::kVersion;
  for (size_t i = 0; i + 4 < arguments.size(); i += 5) {
    if (my_rank() == std::stoi(arguments[i])) {
      begin(page, arguments[i + 1]);
      if (arguments[i + 4] != "-") {
        sleep_for(arguments[i + 2]);
        if (!arguments[i + 3].empty()) {
          write_error_file(arguments[i + 3], "", true);
        }
        return std::stoi(arguments[i + 4]);
      }
    }
  }
  wait_for_ever();
}

// failed-in SIZE: a group of this size has failed because of another rank.
int failed_in(const Arguments& arguments) {
  attach_heartbeat()->failed_by_another = std::stoull(arguments.at(0));
  return 0;
}

// lines COUNT: numbered lines on both streams, in awkward pieces.
int lines(const Arguments& arguments) {
  const int count = std::stoi(arguments.at(0));
  for (int i = 0; i < count; ++i) {
    const std::string line = "rank " + std::to_string(my_rank()) + " line " +
        std::to_string(i) + " " + std::string(static_cast<size_t>(i % 97), 'x');
    const int fd = i % 2 ? STDERR_FILENO : STDOUT_FILENO;
    const size_t cut = line.size() / 2;
    write_text(line.substr(0, cut), fd);
    write_text(line.substr(cut) + " end\n", fd);
  }
  return 0;
}

// --rdzv-member OPTIONS: as an agent's helper that sends many messages.
int flood_agent(const Arguments& /*arguments*/) {
  const int channel = STDIN_FILENO;
  const std::string entry = "E" + std::string(50000, 'x');
  for (int i = 0; i < 2000; ++i) {
    send(channel, entry.data(), entry.size(), MSG_NOSIGNAL);
  }
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<int(const Arguments&)>> modes = {
      {"environment", print_environment},
      {"descriptors", print_descriptors},
      {"wait", wait_for_death},
      {"ignore-term", ignore_term},
      {"tell-signals", tell_signals},
      {"family", family},
      {"beat", beat},
      {"call", call},
      {"failed-in", failed_in},
      {"lines", lines},
      {"--rdzv-member", flood_agent}};
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "tell-signals" || mode == "ignore-term") {
    const sigset_t set = waited_signals();
    sigprocmask(SIG_BLOCK, &set, nullptr);
  }
  const auto then = std::find(argv + 1, argv + argc, std::string("then"));
  if (then != argv + argc) {
    modes.at(mode)(Arguments(argv + 2, then));
    return modes.at(then[1])(Arguments(then + 2, argv + argc));
  }
  return modes.at(mode)(Arguments(argv + 2, argv + argc));
}
