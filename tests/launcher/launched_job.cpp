#include <tests/launcher/launched_job.h>
#include <tests/support/skip.h>
#include <tests/support/temporary_folder.h>

#include <cerrno>

#include <common/poll_until.h>
#include <common/random_name.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <utmp.h>

namespace ddp::test {
namespace {

constexpr const char* kMark = "DDP_TEST_MARK";
constexpr std::chrono::seconds kPatience(20);
constexpr std::chrono::milliseconds kInterval(1);
constexpr std::chrono::seconds kPatienceForDeath(5);

// Returns false if the process is still alive at the deadline.
bool dies_until(pid_t pid, Clock::time_point deadline) {
  const FileDescriptor process = open_process(pid);
  pollfd ended{process.get(), POLLIN, 0};
  return !process || poll(&ended, 1, detail::milliseconds_until(deadline)) > 0;
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

// The state of a process, and its parent.
std::pair<std::string, pid_t> state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string number;
  std::string name; // has no spaces in these tests
  std::pair<std::string, pid_t> found;
  file >> number >> name >> found.first >> found.second;
  return found;
}

void await(const std::string& error, const std::function<bool()>& holds) {
  if (!detail::poll_for(kPatience, kInterval, holds)) {
    throw std::runtime_error(error);
  }
}

} // namespace

LaunchedJob::LaunchedJob(
    const std::vector<std::string>& arguments,
    const JobSetup& setup)
    : mark_(detail::random_name()) {
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
    if (setup.terminal) { // as controlling terminal, so that ^C works
      out_pipe_.reset();
      login_tty(terminal);
    }
    set_variables({{kMark, mark_}, {"OMP_NUM_THREADS", ""}});
    set_variables(setup.environment);
    if (setup.before_exec) {
      setup.before_exec();
    }
    Command command{{DDPRUN_PATH}, {}};
    command.arguments.insert(
        command.arguments.end(), arguments.begin(), arguments.end());
    become(command);
  }
  write_all(in.write_end.get(), setup.stdin_text);
  if (!setup.terminal) {
    out_pipe_ = std::move(out.read_end);
    err_pipe_ = std::move(err.read_end);
  }
}

LaunchedJob::~LaunchedJob() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL); // it may not have the mark yet
  }
  for (pid_t pid : processes_with(mark_)) {
    kill(pid, SIGKILL);
  }
  if (pid_ > 0) {
    waitpid(pid_, nullptr, 0);
  }
}

pid_t LaunchedJob::agent() const {
  std::vector<pid_t> children;
  await("there is no agent", [&] {
    children = children_of(pid_);
    return !children.empty();
  });
  return children.front();
}

pid_t LaunchedJob::store() const {
  std::vector<pid_t> children;
  std::vector<pid_t>::iterator store;
  await("there is no store", [&] {
    children = children_of(agent());
    store = std::find_if(children.begin(), children.end(), [](pid_t each) {
      return read_text("/proc/" + std::to_string(each) + "/comm") ==
          "ddprun-store\n";
    });
    return store != children.end();
  });
  return *store;
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
  if (poll(polled, 2, detail::milliseconds_until(deadline)) == 0) {
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
    } else if (size == 0 || errno == EIO) { // EIO: a closed terminal
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
  return detail::poll_for(kPatienceForDeath, kInterval, [&] {
    return processes_with(mark_).empty();
  });
}

void LaunchedJob::wait_until_half_full() const {
  const int half = fcntl(out_pipe_.get(), F_GETPIPE_SZ) / 2;
  await("the output pipe did not fill up in time", [&] {
    int held = 0;
    ioctl(out_pipe_.get(), FIONREAD, &held);
    return held >= half;
  });
}

void LaunchedJob::close_output() {
  out_pipe_.reset();
}

void LaunchedJob::type(const std::string& text) const {
  write_all(out_pipe_.get(), text);
}

void write_program(const std::string& path, const std::string& script) {
  write_text(path, "#!/bin/sh\n" + script + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

void wait_for_death(pid_t pid) {
  if (!dies_until(pid, Clock::now() + kPatienceForDeath)) {
    throw std::runtime_error(
        "process " + std::to_string(pid) + " did not end in time");
  }
}

void wait_for_state(pid_t pid, const std::string& states) {
  await("process " + std::to_string(pid) + " is in no state of " + states, [&] {
    const auto state = state_of(pid).first;
    return !state.empty() && states.find(state) != std::string::npos;
  });
}

pid_t parent_of(pid_t pid) {
  return state_of(pid).second;
}

} // namespace ddp::test
