#include <launcher/check/probe.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <common/address_list.h>
#include <launcher/rendezvous/route.h>

namespace ddp {
namespace {

constexpr int kStoreTime = 2000; // milliseconds

double clock_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

bool becomes_ready(int socket, short events, int milliseconds) {
  pollfd waiting{socket, events, 0};
  return poll(&waiting, 1, milliseconds) == 1;
}

FileDescriptor connect_to(
    const std::string& address,
    int port,
    std::string* error) {
  int failure = 0;
  const auto list = detail::look_up(address, port, AI_NUMERICHOST, &failure);
  if (failure != 0) {
    *error = gai_strerror(failure);
    return {};
  }
  auto connection = connect_within(*list, kStoreTime);
  if (!connection) {
    *error = std::strerror(errno);
  }
  return connection;
}

} // namespace

Responder::Responder(Listener listener, int rank)
    : listener_(std::move(listener)),
      rank_(rank),
      thread_([this] { serve(); }) {}

Responder::~Responder() {
  stopped_ = true;
  thread_.join();
}

void Responder::serve() {
  constexpr int a_moment = 50; // milliseconds
  while (!stopped_) {
    if (!becomes_ready(listener_.socket.get(), POLLIN, a_moment)) {
      continue;
    }
    const FileDescriptor connection(
        accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::array<char, 64> text{};
    const int size = std::snprintf(
        text.data(), text.size(), "%d %.9f\n", rank_, clock_seconds());
    send(
        connection.get(), text.data(), static_cast<size_t>(size), MSG_NOSIGNAL);
  }
}

std::optional<Answer> ask(
    const std::string& address,
    int port,
    std::string* error) {
  const double begin = clock_seconds();
  const FileDescriptor connection = connect_to(address, port, error);
  if (!connection) {
    return std::nullopt;
  }
  std::array<char, 64> text{};
  const bool has_answer = becomes_ready(connection.get(), POLLIN, kStoreTime) &&
      read(connection.get(), text.data(), text.size() - 1) > 0;
  const double end = clock_seconds();
  Answer answer;
  double theirs = 0;
  if (!has_answer ||
      std::sscanf(text.data(), "%d %lf", &answer.rank, &theirs) != 2) {
    *error = "it does not answer";
    return std::nullopt;
  }
  answer.clock_offset = theirs - (begin + end) / 2;
  answer.round_trip = end - begin;
  return answer;
}

} // namespace ddp
