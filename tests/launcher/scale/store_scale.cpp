// Measures the time and the requests of a start of many nodes over a TCPStore.
// Run: store_scale NODES
#define main helper_main
#include <launcher/store/main.cpp> // NOLINT(bugprone-suspicious-include)
#undef main

#include <sys/prctl.h>
#include <sys/socket.h>

#include <common/file_descriptor.h>
#include <tests/launcher/scale/scale.h>

// TCPStore's clients send each request by one call, its server by others.
extern "C" ssize_t send(int socket, const void* data, size_t size, int flags) {
  static const auto real =
      reinterpret_cast<decltype(&send)>(dlsym(RTLD_NEXT, "send"));
  ++ddp::test::requests();
  return real(socket, data, size, flags);
}

int main(int, char** argv) {
  FLAGS_caffe2_log_level = ddp::kFatalErrors;
  ddp::test::allow_many();
  ddp::test::requests();
  ddp::Listener listener = ddp::listen_on("127.0.0.1", 0);
  const ddp::SocketAddress served = ddp::own_address(listener.socket.get());
  ddp::Pipe pipe = ddp::make_pipe();
  if (fork() == 0) { // a separate process, like ddprun-store
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ddp::TcpLog log;
    log.serve(listener.socket.get());
    pipe.write_end.reset();
    for (;;) {
      pause();
    }
  }
  listener.socket.reset();
  pipe.write_end.reset();
  char none = 0;
  (void)!read(pipe.read_end.get(), &none, 1); // until it serves
  ddp::test::ScaleJob(std::atoi(argv[1]), {}, [&](int) {
    auto log = std::make_unique<ddp::TcpLog>();
    log->connect(served, served.host);
    return log;
  }).run();
}
