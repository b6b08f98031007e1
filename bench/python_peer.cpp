#include <bench/python_peer.h>

#include <c10/util/Exception.h>

#include <cstdio>
#include <cstdlib>

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace bench {

bool PythonPeer::available() {
  return std::getenv("DDP_PYTHON") != nullptr;
}

void PythonPeer::start(std::optional<PythonPeer>& peer) {
  if (available()) {
    peer.emplace();
  } else {
    std::printf("no Python: DDP_PYTHON is not set\n");
  }
}

PythonPeer::PythonPeer() {
  int ends[2];
  TORCH_CHECK(
      available() &&
          socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0,
      "cannot start the Python peer: DDP_PYTHON is not set, or a socket pair "
      "cannot be created");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  std::string program = std::getenv("DDP_PYTHON");
  std::string script = PYTHON_PEER_PATH;
  char* const arguments[] = {program.data(), script.data(), nullptr};
  const int error = posix_spawn(
      &pid_, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  socket_ = ends[0];
  TORCH_CHECK(error == 0, "cannot start DDP_PYTHON='", program, "'");
}

PythonPeer::~PythonPeer() {
  close(socket_); // ends the peer
  waitpid(pid_, nullptr, 0);
}

double PythonPeer::tell(const std::string& line) const {
  const auto text = line + "\n";
  send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  std::string answer;
  for (char c = 0; c != '\n'; answer += c) {
    TORCH_CHECK(
        read(socket_, &c, 1) == 1, "the Python peer ended during '", line, "'");
  }
  return std::stod(answer);
}

} // namespace bench
