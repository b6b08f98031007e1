// The one program of ddprun's that speaks to c10d's key-value store. A process
// of its own, because loading LibTorch takes longer than all that ddprun does.
//
// ddprun-store DESCRIPTOR
//   serves a store for the ranks at a listening socket that it inherited.
// ddprun-store --rdzv-member OPTIONS
//   carries an agent's part of the shared log (see HelperOptions), and serves
//   its store where the endpoint is here.
//
// Each lives until it is killed, or its agent dies.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <unistd.h>

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <launcher/rendezvous/log/log_helper.h>
#include <launcher/sockets.h>
#include <launcher/store/tcp_log.h>

namespace {

bool is_listener(const std::string& descriptor) {
  return ddp::local_address(std::atoi(descriptor.c_str())).port > 0;
}

// By numbers: the names of the levels differ over versions.
constexpr int kErrors = 2;
constexpr int kFatalErrors = 3;

[[noreturn]] void serve(int listener) {
  try {
    const auto store = ddp::serve_store(listener);
    while (store) {
      pause();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddprun: cannot serve the store: %s\n", error.what());
  }
  _exit(1);
}

} // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const size_t count = arguments.size();
  std::signal(SIGPIPE, SIG_IGN); // a client that dies shall not end the store
  // Not that an address has no name, or that a client died.
  FLAGS_caffe2_log_level = kErrors;
  if (count == 1 && is_listener(arguments[0])) {
    serve(std::atoi(arguments[0].c_str()));
  }
  // What goes wrong is told to the agent, which says it once.
  FLAGS_caffe2_log_level = kFatalErrors;
  if (count == 2 && arguments[0] == "--rdzv-member") {
    ddp::TcpLog log;
    ddp::run_log_helper(log, ddp::helper_options(arguments[1]));
  }
  std::fputs("ddprun-store is started by ddprun\n", stderr);
  return 2;
}
