#include <ddp/failure/crash_handler.h>

#include <common/signal_safe_buffer.h>
#include <ddp/failure/error_file.h>
#include <ddp/failure/flight_recorder.h>
#include <ddp/failure/heartbeat.h>

#include <dlfcn.h>
#include <execinfo.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <ctime>

// All functions that a handler calls here are async-signal-safe by POSIX or in
// glibc: `backtrace` once libgcc is loaded, `dladdr` always. Neither allocates.
// dladdr takes a recursive lock; if another thread never releases the lock, the
// first report is already written.

namespace ddp::detail {
namespace {

struct Signal {
  int number;
  const char* name;
};

constexpr Signal kSignals[] = {
    {SIGSEGV, "Segmentation fault"},
    {SIGBUS, "Bus error"},
    {SIGFPE, "Floating point exception"},
    {SIGILL, "Illegal instruction"},
    {SIGABRT, "Aborted"}};

constexpr int kFrames = 64;
constexpr size_t kMaxName = 4000;
// The maximum length of a frame, in characters.
constexpr size_t kFrameRoom = 2 * kMaxName;
constexpr unsigned kWriteSeconds = 10;

// The handler's memory: it may not allocate, and the stack may be exhausted.
struct Crash {
  std::atomic<bool> begun{false};
  std::atomic<bool> stack_taken{false};
  char text[128 * 1024];
  alignas(16) char stack[64 * 1024];
};
Crash crash;

using Machine = decltype(ucontext_t::uc_mcontext);

/// The instruction at which the signal arrived.
void* instruction_of(const Machine& machine) {
#if defined(__x86_64__)
  return reinterpret_cast<void*>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<void*>(machine.pc);
#else
  return &crash; // in no stack, so the whole stack is shown
#endif
}

/// The return address of a call that has just been made.
void* return_of(const Machine& machine) {
#if defined(__x86_64__)
  return *reinterpret_cast<void**>(machine.gregs[REG_RSP]);
#elif defined(__aarch64__)
  return reinterpret_cast<void*>(machine.regs[30]);
#else
  return nullptr;
#endif
}

struct Stack {
  void* frames[kFrames];
  int count = 0;
};

/// Finds the stack from the crash on, without the handler.
void find_stack(const Machine& machine, Stack& stack) {
  void* instruction = instruction_of(machine);
  if (instruction == nullptr) {
    // A null function pointer was called: the unwinder would read address 0.
    stack.frames[1] = return_of(machine);
    stack.count = 2;
    return;
  }
  stack.count = backtrace(stack.frames, kFrames);
  auto* end = stack.frames + stack.count;
  auto* first = std::find(stack.frames, end, instruction);
  if (first != end) {
    auto* last = std::copy(first, end, stack.frames);
    stack.count = static_cast<int>(last - stack.frames);
  }
}

uint64_t distance(const void* from, const void* to) {
  return static_cast<uint64_t>(
      static_cast<const char*>(to) - static_cast<const char*>(from));
}

std::string_view file_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/// "#0 symbol+0x12 (libfoo.so+0x345)"
void add_frame(SignalSafeBuffer& text, int number, void* frame) {
  text.add('#').add_number(static_cast<uint64_t>(number)).add(' ');
  Dl_info info{};
  // A call may be its function's last instruction: look before the return.
  const char* inside = static_cast<char*>(frame) - (number > 0 ? 1 : 0);
  if (dladdr(inside, &info) == 0) {
    text.add("0x").add_number(reinterpret_cast<uintptr_t>(frame), 16);
  } else {
    if (info.dli_sname) {
      text.add_escaped(std::string_view(info.dli_sname).substr(0, kMaxName));
      text.add("+0x").add_number(distance(info.dli_saddr, frame), 16);
    } else {
      text.add("??");
    }
    text.add(" (").add_escaped(file_name(info.dli_fname)).add("+0x");
    text.add_number(distance(info.dli_fbase, frame), 16).add(')');
  }
  text.add("\\n");
}

void add_message(SignalSafeBuffer& text, const siginfo_t& info) {
  const int number = info.si_signo;
  text.add("Signal ").add_number(static_cast<uint64_t>(number)).add(" (");
  for (const auto& signal : kSignals) {
    text.add(signal.number == number ? signal.name : "");
  }
  text.add(')');
  if (info.si_code > 0 && info.si_code != SI_KERNEL) {
    text.add(" at address 0x");
    text.add_number(reinterpret_cast<uintptr_t>(info.si_addr), 16);
  } else if (info.si_code <= 0 && info.si_pid != getpid()) {
    text.add(" sent by process ");
    text.add_number(static_cast<uint64_t>(info.si_pid));
  }
}

void add_details(SignalSafeBuffer& text) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const auto seconds = static_cast<uint64_t>(now.tv_sec);
  const auto nanoseconds = static_cast<uint64_t>(now.tv_nsec);
  text.add("\"timestamp\":\"").add_number(seconds);
  text.add("\",\"timestamp_ns\":\"");
  text.add_number(seconds * 1000000000 + nanoseconds);
  text.add("\",\"rank\":\"").add_escaped(launched_rank());
  text.add("\",\"step\":\"");
  text.add_number(static_cast<uint64_t>(heartbeat::last_step()));
  char activity[256];
  heartbeat::copy_activity(activity, sizeof(activity));
  text.add("\",\"activity\":\"").add_escaped(activity);
  if (heartbeat::is_failed_by_another()) {
    text.add("\",\"consequence\":\"true");
  }
}

void write_report(const siginfo_t& info, const Stack& stack) {
  SignalSafeBuffer text(crash.text, sizeof(crash.text));
  text.add("{\"message\":{\"message\":\"");
  add_message(text, info);
  text.add("\",\"extraInfo\":{");
  add_details(text);
  text.add("\",\"py_callstack\":\"");
  for (int i = 0; i < stack.count && text.room() > kFrameRoom; ++i) {
    add_frame(text, i, stack.frames[i]);
  }
  text.add("\"}}}");
  write_error_report(text.view());
}

void dump_collectives(const siginfo_t& info) {
  char memory[128];
  SignalSafeBuffer text(memory, sizeof(memory) - 1);
  add_message(text, info);
  memory[text.view().size()] = '\0';
  debug::flight_recorder::dump(memory);
}

void on_crash(int number, siginfo_t* info, void* context) {
  if (crash.begun.exchange(true)) {
    sleep(kWriteSeconds); // another thread reports, and ends the process
  } else {
    const bool reports = !has_error_report();
    Stack stack{};
    if (reports) {
      write_report(*info, stack); // reading the stack may crash as well
    }
    dump_collectives(*info);
    if (reports) {
      find_stack(static_cast<ucontext_t*>(context)->uc_mcontext, stack);
      write_report(*info, stack);
    }
  }
  std::signal(number, SIG_DFL);
  raise(number); // delivered after this handler returns
}

/// Provides memory for handlers after a stack overflow, unless it exists.
void provide_stack() {
  stack_t before{};
  if (sigaltstack(nullptr, &before) == 0 && (before.ss_flags & SS_DISABLE) &&
      !crash.stack_taken.exchange(true)) {
    stack_t stack{};
    stack.ss_sp = crash.stack;
    stack.ss_size = sizeof(crash.stack);
    sigaltstack(&stack, nullptr);
  }
}

} // namespace

void report_crashes() {
  void* frame = nullptr;
  backtrace(&frame, 1); // loads libgcc
  provide_stack();
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  for (const auto& signal : kSignals) {
    struct sigaction before {};
    if (sigaction(signal.number, nullptr, &before) == 0 &&
        !(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_DFL) {
      sigaction(signal.number, &action, nullptr);
    }
  }
}

} // namespace ddp::detail
