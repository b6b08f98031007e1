#include <tests/launcher/launched_job.h>
#include <tests/support/skip.h>
#include <tests/support/temporary_folder.h>

#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <utmp.h>

namespace ddp::test {
namespace {

constexpr std::chrono::seconds kPatience(20);
constexpr std::chrono::seconds kPatienceForDeath(5);

int milliseconds_until(Clock::time_point deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return std::max(0, static_cast<int>(left.count()));
}

// False where it is still alive at the deadline.
bool dies_until(pid_t pid, Clock::time_point deadline) {
  const FileDescriptor process(
      static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  pollfd ended{process.get(), POLLIN, 0};
  return !process || poll(&ended, 1, milliseconds_until(deadline)) > 0;
}

std::vector<pid_t> children_of(pid_t pid) {
  const std::string self = std::to_string(pid);
  std::ifstream list("/proc/" + self + "/task/" + self + "/children");
  std::vector<pid_t> children;
  for (pid_t each; list >> each;) {
    children.push_back(each);
  }
  return children;
}

std::vector<pid_t> processes_with(const std::string& mark) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (std::isdigit(name[0]) &&
        read_text(entry.path() / "environ").find(mark) != std::string::npos) {
      found.push_back(std::stoi(name));
    }
  }
  return found;
}

void change_environment(const std::vector<std::string>& changes) {
  for (const std::string& change : changes) {
    const size_t equals = change.find('=');
    if (equals == std::string::npos) {
      unsetenv(change.c_str());
    } else {
      setenv(change.substr(0, equals).c_str(), &change[equals + 1], 1);
    }
  }
}

[[noreturn]] void run_ddprun(const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>("ddprun")};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  execv(DDPRUN_PATH, argv.data());
  _exit(111);
}

} // namespace

LaunchedJob::LaunchedJob(
    const std::vector<std::string>& arguments,
    const JobSetup& setup) {
  std::random_device random;
  mark_ = "DDP_TEST_MARK=" + std::to_string(random()) + "-" +
      std::to_string(random());
  start(arguments, setup);
}

void LaunchedJob::start(
    const std::vector<std::string>& arguments,
    const JobSetup& setup) {
  int terminal = -1;
  int ours = -1;
  if (setup.terminal) {
    // Some containers and chroots have no pseudo-terminals.
    if (openpty(&ours, &terminal, nullptr, nullptr, nullptr) != 0) {
      ddp::test::skip("there is no pseudo-terminal");
    }
    out_pipe_ = FileDescriptor(ours);
  }
  const FileDescriptor owned_terminal(terminal);
  Pipe in = make_pipe();
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  pid_ = check_call(fork(), "fork");
  if (pid_ == 0) {
    dup2(setup.terminal ? terminal : in.read_end.get(), STDIN_FILENO);
    dup2(setup.terminal ? terminal : out.write_end.get(), STDOUT_FILENO);
    dup2(setup.terminal ? terminal : err.write_end.get(), STDERR_FILENO);
    if (setup.terminal) { // make it ours, so that ^C works
      out_pipe_.reset();
      login_tty(terminal);
    }
    change_environment({mark_, "OMP_NUM_THREADS"});
    change_environment(setup.environment);
    if (setup.before_exec) {
      setup.before_exec();
    }
    run_ddprun(arguments);
  }
  write_all(in.write_end.get(), setup.stdin_text);
  if (!setup.terminal) {
    out_pipe_ = std::move(out.read_end);
    err_pipe_ = std::move(err.read_end);
  }
}

LaunchedJob::~LaunchedJob() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL); // which may not carry the mark yet
  }
  for (pid_t pid : processes_with(mark_)) {
    kill(pid, SIGKILL);
  }
  if (pid_ > 0) {
    waitpid(pid_, nullptr, 0);
  }
}

pid_t LaunchedJob::agent() const {
  const auto deadline = Clock::now() + kPatience;
  while (Clock::now() < deadline) {
    const auto children = children_of(pid_);
    if (!children.empty()) {
      return children.front();
    }
    sched_yield();
  }
  throw std::runtime_error("there is no agent");
}

pid_t LaunchedJob::store() const {
  const auto deadline = Clock::now() + kPatience;
  while (Clock::now() < deadline) {
    for (pid_t each : children_of(agent())) {
      if (read_text("/proc/" + std::to_string(each) + "/comm") ==
          "ddprun-store\n") {
        return each;
      }
    }
    sched_yield();
  }
  throw std::runtime_error("there is no store");
}

pid_t LaunchedJob::worker(int rank) {
  const std::string start = "ready " + std::to_string(rank) + " ";
  wait_for_output(start);
  return std::stoi(out_.substr(out_.find(start) + start.size()));
}

void LaunchedJob::send(int signal) const {
  check_call(kill(pid_, signal), "kill");
}

bool LaunchedJob::read_some(Clock::time_point deadline) {
  FileDescriptor* pipes[] = {&out_pipe_, &err_pipe_};
  std::string* texts[] = {&out_, &err_};
  pollfd polled[] = {
      {out_pipe_.get(), POLLIN, 0}, {err_pipe_.get(), POLLIN, 0}};
  if (!out_pipe_ && !err_pipe_) {
    return false;
  }
  if (poll(polled, 2, milliseconds_until(deadline)) == 0) {
    throw std::runtime_error(
        "no output in time; so far:\n" + out_ + "\nand on stderr:\n" + err_);
  }
  for (int i = 0; i < 2; ++i) {
    if (polled[i].revents == 0) {
      continue;
    }
    char buffer[65536];
    const ssize_t size = read(pipes[i]->get(), buffer, sizeof buffer);
    if (size > 0) {
      texts[i]->append(buffer, static_cast<size_t>(size));
    } else if (size == 0 || errno == EIO) { // EIO: a terminal left by all
      pipes[i]->reset();
    }
  }
  return true;
}

void LaunchedJob::wait_for_output(const std::string& text, int count) {
  const auto deadline = Clock::now() + kPatience;
  while (count_of(out_, text) < count && count_of(err_, text) < count) {
    if (!read_some(deadline)) {
      throw std::runtime_error(
          "the output ended without '" + text + "':\n" + out_ + err_);
    }
  }
}

int LaunchedJob::wait() {
  const auto deadline = Clock::now() + kPatience;
  while (read_some(deadline)) {
  }
  const int code = wait_unread();
  if (!leaves_nothing()) {
    throw std::runtime_error("processes are left:\n" + out_ + err_);
  }
  return code;
}

int LaunchedJob::wait_after(int signal) {
  send(signal);
  return wait();
}

int LaunchedJob::wait_unread() {
  if (!dies_until(pid_, Clock::now() + kPatience)) {
    throw std::runtime_error("ddprun did not end in time:\n" + out_ + err_);
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

bool LaunchedJob::leaves_nothing() const {
  const auto deadline = Clock::now() + kPatienceForDeath;
  for (;;) {
    const auto left = processes_with(mark_);
    if (left.empty()) {
      return true;
    }
    if (!dies_until(left.front(), deadline)) {
      return false;
    }
  }
}

void LaunchedJob::wait_until_half_full() const {
  const int half = fcntl(out_pipe_.get(), F_GETPIPE_SZ) / 2;
  const auto deadline = Clock::now() + kPatience;
  for (int held = 0; held < half;) {
    if (Clock::now() > deadline) {
      throw std::runtime_error("the output pipe did not fill up in time");
    }
    sched_yield();
    ioctl(out_pipe_.get(), FIONREAD, &held);
  }
}

void LaunchedJob::close_output() {
  out_pipe_.reset();
}

void LaunchedJob::type(const std::string& text) const {
  write_all(out_pipe_.get(), text);
}

void wait_for_death(pid_t pid) {
  if (!dies_until(pid, Clock::now() + kPatienceForDeath)) {
    throw std::runtime_error(
        "process " + std::to_string(pid) + " did not end in time");
  }
}

void wait_for_state(pid_t pid, const std::string& states) {
  const auto deadline = Clock::now() + kPatienceForDeath;
  std::string state;
  while (Clock::now() < deadline) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string number;
    std::string name; // has no spaces in these tests
    if (file >> number >> name >> state &&
        states.find(state) != std::string::npos) {
      return;
    }
    sched_yield();
  }
  throw std::runtime_error(
      "process " + std::to_string(pid) + " is in state " + state + ", not in " +
      states);
}

pid_t parent_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string number;
  std::string name; // has no spaces in these tests
  std::string state;
  pid_t parent = 0;
  file >> number >> name >> state >> parent;
  return parent;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

} // namespace ddp::test
