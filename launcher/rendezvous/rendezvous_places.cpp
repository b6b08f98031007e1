// Where a node serves the log, and what it tells at the endpoint that it left.
#include <launcher/rendezvous/rendezvous.h>

#include <utility>

#include <sys/epoll.h>

#include <common/scheduler/launch_error.h>
#include <launcher/rendezvous/endpoint.h>
#include <launcher/rendezvous/route.h>

namespace ddp {
namespace {

constexpr std::chrono::seconds kEndpointRetryTime(1);
constexpr std::chrono::seconds kTellAgainTime(2);
// Of others' entries, which mean nothing here: the rest waits for signals.
constexpr int kMostEntries = 256;

// Where the log that this node serves is reached from here.
std::string own_host(const NodeOptions& nodes, int listener) {
  const std::string address = local_address(listener).host;
  return is_wildcard(address) ? nodes.host : address;
}

std::vector<SharedLog::Endpoint> all_endpoints(const NodeOptions& nodes) {
  std::vector<SharedLog::Endpoint> endpoints;
  for (const SocketAddress& each : nodes.etcd) {
    endpoints.push_back({each.host, each.port});
  }
  if (!endpoints.empty()) {
    return endpoints;
  }
  endpoints.push_back({nodes.host, nodes.port});
  for (const std::string& host : nodes.other_hosts) {
    endpoints.push_back({host, nodes.port});
  }
  return endpoints;
}

// None where this node cannot serve at the endpoint just now.
std::optional<Listener> listener_if_free(
    const NodeOptions& nodes,
    const std::string& address) {
  try {
    return address.empty() ? std::nullopt : listen_at_endpoint(nodes, address);
  } catch (const LaunchError&) { // where this node is told to serve
    return std::nullopt;
  }
}

} // namespace

// That waits for name servers and other hosts; ranks and signals do not.
void Rendezvous::look_for_place() {
  if (place_) {
    return;
  }
  place_.emplace([nodes = settings_.nodes] { return find_place(nodes); });
  watch(place_->fd());
}

void Rendezvous::found_place(Time now) {
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, place_->fd(), nullptr);
  Place place = place_->take();
  place_.reset();
  if (!log_) { // the first time
    is_endpoint_here_ = place.is_endpoint_here;
    serve_address_ = place.address;
    own_address_ = place.local_address;
  }
  if (member_.is_connected()) {
    return; // meanwhile, to another node's
  }
  if (place.listener) {
    member_.serve();
    serve_log(std::move(*place.listener));
  } else if (!log_) {
    look_for_log(now);
  } else {
    retry_at_ =
        now + kEndpointRetryTime; // what took its port may be gone by then
  }
}

void Rendezvous::look_for_log(Time now) {
  if (!settings_.nodes.hosts_log && is_endpoint_here_) {
    retry_at_ = now + kEndpointRetryTime;
  }
  open_log(all_endpoints(settings_.nodes), FileDescriptor());
}

void Rendezvous::serve_log(Listener listener) {
  const std::string host = own_host(settings_.nodes, listener.socket.get());
  open_log({{host, listener.port}}, std::move(listener.socket));
}

// The first endpoint's port is needed to tell others.
NodeOptions Rendezvous::standby_options() const {
  NodeOptions nodes = settings_.nodes;
  if (has_moved_ && is_endpoint_here_ && !member_.self().hosts_log) {
    nodes.port = nodes.first_port;
  }
  return nodes;
}

// Who comes there would look in vain, or begin another job: the new host of the
// log tells those that serve one, and this node others, if the endpoint is
// here.
void Rendezvous::tell_first_endpoint(Time now) {
  tell_at_.reset();
  const NodeOptions& nodes = settings_.nodes;
  const bool hosts_log = member_.self().hosts_log;
  const bool is_there = is_endpoint_here_ && log_at_.port == nodes.port;
  if (hosts_log ? is_there : !is_endpoint_here_) {
    return;
  }
  SharedLog::Options options;
  options.endpoints = {{nodes.host, nodes.port}};
  options.member = member_.self().id;
  if (is_endpoint_here_) {
    auto listener = listener_if_free(nodes, serve_address_);
    if (!listener) {
      tell_at_ = now + kTellAgainTime;
      return;
    }
    options.endpoints[0].host = own_host(nodes, listener->socket.get());
    options.listener = std::move(listener->socket);
  }
  options.program = settings_.store_program;
  announcer_ = std::make_unique<SharedLog>(std::move(options));
  watch(announcer_->fd());
}

void Rendezvous::handle_announcer(Time now) {
  for (int i = 0; announcer_ && i < kMostEntries; ++i) {
    const auto event = announcer_->next();
    if (!event) {
      return;
    }
    if (event->kind == SharedLog::Event::Kind::kConnected) {
      Authenticator authenticator = authenticator_;
      authenticator.set_nonce(event->text);
      Entry entry;
      entry.type = Entry::Type::kMoved;
      entry.from = member_.self().id;
      entry.sequence = 1; // in a log that it wrote to it is not heard
      entry.address = log_at_.host;
      entry.port = log_at_.port;
      entry.node = member_.self();
      announcer_->post(authenticator.seal(entry_text(entry)));
    } else if (event->kind == SharedLog::Event::Kind::kLost) {
      epoll_ctl(events_.get(), EPOLL_CTL_DEL, announcer_->fd(), nullptr);
      announcer_.reset();
      tell_at_ = now + kTellAgainTime; // it may come again
    }
  }
}

} // namespace ddp
