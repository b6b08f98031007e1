#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <launcher/sockets.h>

namespace ddp {

/// The default ports of torchrun's static and c10d rendezvous.
constexpr int kMasterPort = 29500;
constexpr int kRendezvousPort = 29400;
/// The default port of etcd for clients.
constexpr int kEtcdPort = 2379;

/// The maximum number of ranks on a node, so that a typing error does not
/// exhaust the machine's memory. The number of all ranks fits an int.
constexpr int kMaxLocalRanks = 65536;
constexpr int kMostNodes = 16384;

/// TLS and authentication for etcd; empty if etcd requires none.
struct EtcdAccess {
  /// PEM files for TLS: this client's certificate and key, and the certificate
  /// authority of the servers.
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

/// Options of the rendezvous of a job's nodes.
struct NodeOptions {
  /// The bounds of --nnodes.
  int least = 1;
  int most = 1;
  /// --node-rank; -1 if any rank is acceptable.
  int rank = -1;
  /// The endpoint of the job's log.
  std::string host;
  int port = 0;
  /// Whether this node serves the log. If unset, this node serves the log if
  /// the endpoint is an address of this machine.
  std::optional<bool> hosts_log;
  /// The members of the etcd that keeps the log; empty if a c10d store keeps
  /// it.
  std::vector<SocketAddress> etcd;
  EtcdAccess etcd_access;
  /// The address or interface at which this node listens; empty for the address
  /// from which it reaches the endpoint.
  std::string bind;
  /// The address at which others reach this node; empty for the address at
  /// which it listens.
  std::string local_address;
  /// The range of ports to listen at; 0 for any.
  int first_port = 0;
  int last_port = 0;
  /// The job's secret; empty if there is none.
  std::string token;
  /// A node, or the log, is considered lost after this time without a beat.
  std::chrono::milliseconds node_timeout{10000};
  /// The number of responding nodes that a node watches; the first node watches
  /// all.
  int most_watched = 32;
  /// The time that a job with enough nodes waits for more nodes.
  std::chrono::milliseconds last_call{3000};
  /// The time that a job waits for enough nodes.
  std::chrono::milliseconds join_timeout{600000};

  /// Whether a service keeps the log, which then outlives all nodes. Otherwise
  /// the log and the job are lost with the node that serves the log.
  bool has_service() const {
    return !etcd.empty();
  }
  bool several() const {
    return most > 1;
  }
};

} // namespace ddp
