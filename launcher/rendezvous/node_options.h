#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <launcher/sockets.h>

namespace ddp {

/// Where torchrun has its static and its c10d rendezvous.
constexpr int kMasterPort = 29500;
constexpr int kRendezvousPort = 29400;
/// Where an etcd has its clients.
constexpr int kEtcdPort = 2379;

/// How an etcd wants to be spoken to; empty if it does not care.
struct EtcdAccess {
  /// PEM files for TLS: this client's certificate and its key, and who signs
  /// the servers' certificates.
  std::string cert;
  std::string key;
  std::string cacert;
  std::string user;
  /// A file whose first line is the user's password.
  std::string password_file;

  bool is_encrypted() const {
    return !cert.empty() || !cacert.empty();
  }
};

/// How the nodes of a job find each other.
struct NodeOptions {
  /// --nnodes.
  int least = 1;
  int most = 1;
  /// --node-rank; -1 for any place.
  int rank = -1;
  /// The endpoint at which the job's log is.
  std::string host;
  int port = 0;
  /// Whether this node serves the log; unset: where the endpoint is an address
  /// of this machine.
  std::optional<bool> hosts_log;
  /// The members of the etcd that has the log; none if it is in a store of
  /// c10d's.
  std::vector<SocketAddress> etcd;
  EtcdAccess etcd_access;
  /// An address, or the name of an interface, at which this node listens; empty
  /// for the address by which it reaches the endpoint.
  std::string bind;
  /// The address by which others reach this node; empty for the one at which it
  /// listens.
  std::string local_address;
  /// Ports to listen at; 0 for any.
  int first_port = 0;
  int last_port = 0;
  /// The job's secret; empty if there is none.
  std::string token;
  /// After this silence a node, or the log, is lost.
  std::chrono::milliseconds node_timeout{10000};
  /// How long a job that could start waits for more nodes.
  std::chrono::milliseconds last_call{3000};
  /// How long it waits for enough.
  std::chrono::milliseconds join_timeout{600000};

  /// Whether a service has the log, so that it outlives all nodes; else it is
  /// lost with the node that serves it, and the job with it.
  bool has_service() const {
    return !etcd.empty();
  }
  bool several() const {
    return most > 1;
  }
};

} // namespace ddp
