// Where a node serves the log, or finds it.
#include <launcher/rendezvous/rendezvous.h>

#include <utility>

#include <sys/epoll.h>

#include <common/scheduler/launch_error.h>
#include <launcher/rendezvous/endpoint.h>
#include <launcher/rendezvous/route.h>

namespace ddp {
namespace {

constexpr std::chrono::seconds kEndpointRetryTime(1);

// Where the log that this node serves is reached from here.
std::string own_host(const NodeOptions& nodes, int listener) {
  const std::string address = local_address(listener).host;
  return is_wildcard(address) ? nodes.host : address;
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
  const NodeOptions& nodes = settings_.nodes;
  const std::vector<SocketAddress> own{{nodes.host, nodes.port}};
  open_log(nodes.etcd.empty() ? own : nodes.etcd, FileDescriptor());
}

void Rendezvous::serve_log(Listener listener) {
  const std::string host = own_host(settings_.nodes, listener.socket.get());
  open_log({{host, listener.port}}, std::move(listener.socket));
}

} // namespace ddp
