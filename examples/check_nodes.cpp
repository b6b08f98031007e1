// Checks the names, ports, versions and clocks of a job's nodes, and measures
// how fast pairs of nodes reduce. Uses the port PORT, or any.
// Run: ddprun --hosts node0,node1 check_nodes [PORT]

#include "report_errors.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <c10/util/Logging.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

using Store = c10::intrusive_ptr<c10d::Store>;
using Texts = std::vector<std::string>; // of all nodes

constexpr double kClockTolerance = 1; // seconds
constexpr int64_t kFloats = 1024 * 1024;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  TORCH_CHECK(
      value != nullptr, name, " is not set: start this program with ddprun");
  return value;
}

Store open_store(const std::string& host, int port, int64_t seconds) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = std::chrono::seconds(seconds);
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

/// A store to which other nodes connect; changes `port` to its port.
Store serve_store(int* port) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(*port);
  options.isServer = true;
  options.waitWorkers = false;
  auto store = c10::make_intrusive<c10d::TCPStore>("localhost", options);
  *port = store->getPort();
  return store;
}

/// Whether the store of `rank` is at this address.
bool leads_to(const std::string& host, int port, const std::string& rank) {
  try {
    const auto store = open_store(host, port, 2);
    return store->get_to_str("rank") == rank;
  } catch (const c10::Error&) {
    return false;
  }
}

/// The address with which this node reaches the first node.
std::string own_address() {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const auto host = variable("MASTER_ADDR");
  TORCH_CHECK(getaddrinfo(host.c_str(), "9", &hints, &found) == 0, host);
  const int way = socket(found->ai_family, SOCK_DGRAM, 0);
  sockaddr_storage address{};
  auto* const own = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  char text[NI_MAXHOST] = "";
  if (connect(way, found->ai_addr, found->ai_addrlen) == 0 &&
      getsockname(way, own, &size) == 0) {
    getnameinfo(own, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  }
  close(way);
  freeaddrinfo(found);
  return text;
}

std::string own_versions() {
  using GetVersion = int (*)(int*);
  const auto nccl_version =
      reinterpret_cast<GetVersion>(dlsym(RTLD_DEFAULT, "ncclGetVersion"));
  int nccl = 0;
  const bool has_nccl = nccl_version != nullptr && nccl_version(&nccl) == 0;
  return "LibTorch " TORCH_VERSION +
      std::string(torch::cuda::is_available() ? ", GPUs" : ", no GPUs") +
      (has_nccl ? ", NCCL " + std::to_string(nccl) : "");
}

double clock_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

/// With two ranks, each sends the whole tensor once.
double gigabits_per_second(const ddp::ProcessGroup& pair) {
  const auto tensor =
      torch::zeros({kFloats}, torch::TensorOptions().device(pair.device()));
  pair.all_reduce(tensor); // connects
  pair.barrier();
  constexpr int times = 10;
  const double begin = clock_seconds();
  for (int i = 0; i < times; ++i) {
    pair.all_reduce(tensor);
  }
  tensor[0].item<float>(); // waits for a GPU
  return times * kFloats * 32 / (clock_seconds() - begin) / 1e9;
}

/// Measures all pairs; of more than 8 nodes, only neighbors. Other nodes wait,
/// so that they do not slow the pair down.
void measure_pairs(const Texts& hosts) {
  const auto group = ddp::init_process_group();
  for (int64_t i = 0; i < group.size(); ++i) {
    const auto end =
        group.size() > 8 ? std::min(i + 2, group.size()) : group.size();
    for (auto j = i + 1; j < end; ++j) {
      const bool takes_part = group.rank() == i || group.rank() == j;
      const auto pair = group.split(takes_part ? 0 : -1);
      const double speed = takes_part ? gigabits_per_second(pair) : 0;
      if (group.rank() == i) {
        std::printf(
            "%s and %s: %.1f Gbit/s over %s\n",
            hosts[static_cast<size_t>(i)].c_str(),
            hosts[static_cast<size_t>(j)].c_str(),
            speed,
            group.backend().c_str());
        std::fflush(stdout);
      }
      group.barrier();
    }
  }
}

/// Returns whether there are no problems. Nodes exchange data through ddprun's
/// store, and form a group only if all nodes reach each other.
bool check(int port) {
  FLAGS_caffe2_log_level = 3; // reported below instead of by c10d
  const auto store = open_store(
      variable("MASTER_ADDR"), std::stoi(variable("MASTER_PORT")), 300);
  const auto rank = std::stoul(variable("RANK"));
  const auto size = std::stoul(variable("WORLD_SIZE"));
  const auto exchange = [&](const std::string& key, const std::string& own) {
    store->set(key + std::to_string(rank), own);
    Texts all;
    for (size_t i = 0; i < size; ++i) {
      all.push_back(store->get_to_str(key + std::to_string(i)));
    }
    return all;
  };
  const auto own_store = serve_store(&port);
  own_store->set("rank", std::to_string(rank));
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  const auto hosts = exchange("host", name);
  const auto addresses = exchange("address", own_address());
  const auto ports = exchange("port", std::to_string(port));
  const auto versions = exchange("versions", own_versions());
  // All nodes leave the previous exchange within the time of an answer.
  const auto clocks = exchange("clock", std::to_string(clock_seconds()));
  const double offset = std::stod(clocks[rank]) - std::stod(clocks[0]);
  std::string problems;
  for (size_t i = 0; i < size; ++i) {
    const auto other = std::to_string(i);
    const auto port_there = std::stoi(ports[i]);
    if (!leads_to(addresses[i], port_there, other)) {
      problems += hosts[rank] + ": cannot connect to " + hosts[i] + " at " +
          addresses[i] + " port " + ports[i] + "\n";
    } else if (!leads_to(hosts[i], port_there, other)) {
      problems += hosts[rank] + ": the name " + hosts[i] +
          " does not lead to that node (" + addresses[i] + " does)\n";
    }
  }
  if (versions[rank] != versions[0]) {
    problems += hosts[rank] + ": versions differ from " + hosts[0] + "'s\n";
  }
  std::printf(
      "%s (%s): %s, clock %+.1f s%s\n%s",
      hosts[rank].c_str(),
      addresses[rank].c_str(),
      versions[rank].c_str(),
      offset,
      std::abs(offset) > kClockTolerance ? " (warning: the clock differs)" : "",
      problems.c_str());
  std::fflush(stdout);
  const auto all = exchange("problems", problems);
  exchange("read", ""); // the store ends with the first rank to end
  const bool is_well = std::all_of(
      all.begin(), all.end(), [](const auto& each) { return each.empty(); });
  if (is_well && size > 1) {
    measure_pairs(hosts);
  }
  return is_well;
}

int main(int argc, char** argv) {
  return report_errors([&] {
    const bool is_well = check(argc > 1 ? std::atoi(argv[1]) : 0);
    TORCH_CHECK(is_well, "the node check found the problems printed above");
  });
}
