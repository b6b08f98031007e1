#pragma once

#include <tests/support/backend_values.h>

#include <ddp/backends/common/placement.h>
#include <ddp/backends/gloo.h>
#include <ddp/backends/hierarchical.h>
#include <ddp/process_group.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

// For the tests of the hierarchical backend.

namespace ddp::test {

using Hosts = std::vector<std::string>;

/// How the ranks of a host communicate.
using Local = BackendPtr (*)(const backends::BackendOptions&);

/// A backend whose ranks assume that they are on `hosts`, with gloo between the
/// hosts.
inline BackendPtr hierarchical_backend(
    const ProcessGroup& group,
    const Hosts& hosts,
    const std::string& name = "hierarchical",
    Local local = backends::gloo::create) {
  const backends::hierarchical::Placement placement(hosts);
  const auto rank = static_cast<int>(group.rank());
  const int host = placement.host[rank];
  const int place = placement.place[rank];
  const auto options = [&](const std::string& part, int its_rank, size_t size) {
    backends::BackendOptions result;
    result.store = c10::make_intrusive<c10d::PrefixStore>(
        name + "/" + part, group.store());
    result.rank = its_rank;
    result.size = static_cast<int>(size);
    result.timeout = std::chrono::seconds(20);
    result.address = "127.0.0.1";
    return result;
  };
  backends::hierarchical::SubBackends sub_backends;
  sub_backends.flat =
      backends::gloo::create(options("direct", rank, hosts.size()));
  const auto here = placement.ranks[host].size();
  if (here > 1) {
    sub_backends.intra_node =
        local(options("host_" + hosts[rank], place, here));
  }
  if (place == 0 && placement.hosts() > 1) {
    sub_backends.inter_node = backends::gloo::create(
        options("between", host, placement.ranks.size()));
  }
  return backends::hierarchical::create(hosts, rank, sub_backends);
}

} // namespace ddp::test
