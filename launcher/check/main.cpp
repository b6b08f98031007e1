// What `ddprun --check` runs, once on each node: ddprun-check FIRST LAST, with
// the ports to listen at (0 0 for any).
//
// Nodes tell each other of themselves by the store, and try to connect; only
// where all can do they form a group, for the bandwidth.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <unistd.h>

#include <ATen/Context.h>
#include <c10/util/Logging.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <common/host_name.h>
#include <launcher/check/bandwidth.h>
#include <launcher/check/probe.h>
#include <launcher/check/table.h>
#include <launcher/rendezvous/endpoint.h>
#include <launcher/rendezvous/route.h>

namespace ddp {
namespace {

using Nodes = std::vector<CheckedNode>;

constexpr std::chrono::minutes kPatience(5);
constexpr int kErrors = 2; // of c10's levels

const char* text_of(const char* variable) {
  const char* text = std::getenv(variable);
  TORCH_CHECK(text != nullptr, variable, " is not set: see ddprun --check");
  return text;
}

int number_of(const char* variable) {
  return std::atoi(text_of(variable));
}

bool reaches_all(const CheckedNode& node) {
  return node.reaches_all;
}

std::string cuda_version() {
  if (!at::detail::getCUDAHooks().hasCUDART()) {
    return "none";
  }
  const long version = at::detail::getCUDAHooks().versionCUDART();
  return std::to_string(version / 1000) + "." +
      std::to_string(version % 1000 / 10);
}

// Its library comes with LibTorch's where that has CUDA.
std::string nccl_version() {
  using GetVersion = int (*)(int*);
  const auto get_version =
      reinterpret_cast<GetVersion>(dlsym(RTLD_DEFAULT, "ncclGetVersion"));
  int version = 0;
  if (get_version == nullptr || get_version(&version) != 0) {
    return "none";
  }
  return std::to_string(version / 10000) + "." +
      std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}

/// One node's part.
class Check {
 public:
  Check(int first_port, int last_port)
      : rank_(number_of("RANK")),
        size_(number_of("WORLD_SIZE")),
        store_(open_store()),
        own_(own_facts()),
        responder_(listen(first_port, last_port), rank_) {
    own_.port = responder_.port();
  }

  /// Whether nothing is off.
  bool run();

 private:
  static c10::intrusive_ptr<c10d::Store> open_store();
  static CheckedNode own_facts();
  Listener listen(int first_port, int last_port) const;
  Nodes exchange(const std::string& name);
  bool reaches(const CheckedNode& node, int rank);
  void check_name(const CheckedNode& node, int rank);

  int rank_;
  int size_;
  c10::intrusive_ptr<c10d::Store> store_;
  CheckedNode own_;
  Responder responder_;
};

c10::intrusive_ptr<c10d::Store> Check::open_store() {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(number_of("MASTER_PORT"));
  options.waitWorkers = false;
  options.timeout = kPatience;
  // c10d warns of hosts without a name, which is told below.
  const int log_level = std::exchange(FLAGS_caffe2_log_level, kErrors);
  auto store =
      c10::make_intrusive<c10d::TCPStore>(text_of("MASTER_ADDR"), options);
  FLAGS_caffe2_log_level = log_level;
  return store;
}

CheckedNode Check::own_facts() {
  CheckedNode node;
  node.host = detail::host_name();
  std::string why;
  const std::string master = text_of("MASTER_ADDR");
  const auto route = find_route(master, number_of("MASTER_PORT"), &why);
  TORCH_CHECK(route, "cannot reach ", master, ": ", why);
  node.address = route->local;
  node.versions = {
      {"ddp", DDP_VERSION},
      {"LibTorch", TORCH_VERSION},
      {"CUDA", cuda_version()},
      {"NCCL", nccl_version()}};
  return node;
}

Listener Check::listen(int first_port, int last_port) const {
  NodeOptions options;
  options.first_port = first_port;
  options.last_port = last_port;
  return first_port > 0 ? listen_in_range(own_.address, options)
                        : listen_on(own_.address, 0);
}

// What all nodes say of themselves by now.
Nodes Check::exchange(const std::string& name) {
  store_->set("check/" + name + std::to_string(rank_), node_text(own_));
  Nodes nodes;
  for (int i = 0; i < size_; ++i) {
    nodes.push_back(
        parse_node(store_->get_to_str("check/" + name + std::to_string(i))));
  }
  return nodes;
}

bool Check::reaches(const CheckedNode& node, int rank) {
  std::string error;
  const auto answer = ask(node.address, node.port, &error);
  if (!answer || answer->rank != rank) {
    own_.problems.push_back(
        "cannot connect to " + node.host + " at " + node.address + " port " +
        std::to_string(node.port) + ": " +
        (answer ? "something else answers" : error));
    own_.reaches_all = false;
    return false;
  }
  if (rank == 0) {
    own_.clock_offset = -answer->clock_offset;
  }
  return true;
}

// Rendezvous, MPI and people use names.
void Check::check_name(const CheckedNode& node, int rank) {
  std::string found;
  for (const std::string& address : addresses_of(node.host)) {
    std::string error;
    const auto answer = ask(address, node.port, &error);
    if (address == node.address || (answer && answer->rank == rank)) {
      return;
    }
    found += (found.empty() ? "" : ", ") + address;
  }
  own_.problems.push_back(
      found.empty() ? "the name " + node.host + " does not resolve"
                    : "the name " + node.host + " means " + found +
              ", which does not reach it (" + node.address + " does)");
}

// Every node sees the same outcome; that of rank 0 prints it.
bool Check::run() {
  const Nodes nodes = exchange("facts");
  for (int i = 0; i < size_; ++i) {
    const CheckedNode& other = nodes[static_cast<size_t>(i)];
    if (i != rank_ && reaches(other, i) && other.host != own_.host) {
      check_name(other, i);
    }
  }
  const Nodes probed = exchange("probed");
  Bandwidths bandwidths;
  if (size_ > 1 && std::all_of(probed.begin(), probed.end(), &reaches_all)) {
    try {
      bandwidths = measure_bandwidths();
    } catch (const c10::Error& error) {
      own_.problems.push_back(error.what_without_backtrace());
    }
  }
  Nodes outcome = exchange("outcome");
  compare_versions(&outcome);
  if (rank_ == 0) {
    std::fputs(describe_nodes(outcome, bandwidths).c_str(), stdout);
    std::fflush(stdout);
    store_->set("check/printed", "1");
  }
  store_->wait({"check/printed"}); // or ddprun would end rank 0 first
  return std::all_of(outcome.begin(), outcome.end(), [](const auto& each) {
    return each.problems.empty();
  });
}

} // namespace
} // namespace ddp

int main(int argc, char** argv) {
  try {
    const int first_port = argc == 3 ? std::atoi(argv[1]) : 0;
    const int last_port = argc == 3 ? std::atoi(argv[2]) : 0;
    return ddp::Check(first_port, last_port).run() ? 0 : 1;
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "ddprun-check: %s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddprun-check: %s\n", error.what());
  }
  return 125;
}
