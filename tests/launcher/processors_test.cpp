// CPUs and GPUs that ranks may use.
#include <tests/support/catch_plain.h>

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <cerrno>

#include <common/cpu_quota.h>
#include <common/processors.h>
#include <common/text.h>
#include <launcher/affinity/cpu_binding.h>
#include <launcher/affinity/machine.h>
#include <launcher/cli/options/option_values.h>
#include <tests/launcher/option_parsing.h>
#include <tests/support/process.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::processors_test {

/// A folder that stands for the root of a computer's files.
struct FakeRoot : TemporaryFolder {
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path() + "/" + name;
    std::filesystem::create_directories(file.parent_path());
    write_text(file, text + "\n");
  }
};

TEST_CASE("GPUs are counted as CUDA would show them", "[unit]") {
  const FakeRoot root;
  const std::string folder = root.path();
  for (const char* name :
       {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"}) {
    root.write(name, "");
  }
  CHECK(visible_gpus(nullptr, folder) == 3);
  CHECK(visible_gpus("", folder) == 0);
  CHECK(visible_gpus("-1", folder) == 0);
  CHECK(visible_gpus("2,0", folder) == 2);
  CHECK(visible_gpus("0,7,1", folder) == 1);
  CHECK(visible_gpus("GPU-1f,MIG-22", folder) == 2);
  CHECK(visible_gpus(nullptr, folder + "/none") == 0);
}

TEST_CASE("a GPU that a control group hides is not counted", "[unit]") {
  const FakeRoot root;
  root.write("nvidia0", "");
  root.write("nvidia2", "");
  const std::string hidden = root / "nvidia1";
  std::filesystem::create_symlink(hidden, hidden); // to itself
  CHECK(visible_gpus(nullptr, root.path()) == 2);
}

TEST_CASE("a control group of version 2 bounds the CPUs", "[unit]") {
  const FakeRoot root;
  CHECK(std::isinf(cpu_quota(root.path())));
  const int unlimited = available_cpus(root.path());
  CHECK_FALSE(quota_limits_cpus(root.path()));
  root.write("proc/self/cgroup", "0::/kubepods/pod/box\n");
  CHECK(std::isinf(cpu_quota(root.path())));
  root.write("sys/fs/cgroup/kubepods/pod/box/cpu.max", "max 100000\n");
  CHECK(std::isinf(cpu_quota(root.path())));
  root.write("sys/fs/cgroup/kubepods/cpu.max", "350000 100000\n");
  CHECK(cpu_quota(root.path()) == 3.5);
  root.write("sys/fs/cgroup/kubepods/pod/box/cpu.max", "50000 20000\n");
  CHECK(cpu_quota(root.path()) == 2.5);
  root.write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  CHECK(cpu_quota(root.path()) == 0.5);
  CHECK(available_cpus(root.path()) == 1);
  CHECK(quota_limits_cpus(root.path()) == (unlimited > 1));
}

TEST_CASE("a control group of version 1 bounds the CPUs", "[unit]") {
  const FakeRoot root;
  root.write(
      "proc/self/cgroup",
      "5:cpuset:/\n4:cpu,cpuacct:/docker/box\n0::/system.slice\n");
  const std::string group = "sys/fs/cgroup/cpu,cpuacct/docker/box/";
  root.write(group + "cpu.cfs_quota_us", "-1");
  root.write(group + "cpu.cfs_period_us", "100000");
  CHECK(std::isinf(cpu_quota(root.path())));
  root.write(group + "cpu.cfs_quota_us", "150000");
  CHECK(cpu_quota(root.path()) == 1.5);
  // In a container, the path is the host's.
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "25000");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  CHECK(cpu_quota(root.path()) == 0.25);
}

TEST_CASE("ranks follow what is there", "[unit]") {
  const FakeRoot root;
  const std::string path = root.path();
  const auto count = [&](const char* text,
                         const std::optional<std::string>& devices) {
    return rank_count({"--nproc-per-node", text}, devices, path);
  };
  CHECK(count("auto", std::nullopt) == available_cpus(path));
  CHECK_THROWS_WITH(count("gpu", std::nullopt), Has("no GPU is visible"));
  for (const char* name : {"dev/nvidia0", "dev/nvidia1", "dev/nvidia2"}) {
    root.write(name, "");
  }
  CHECK(count("gpu", std::nullopt) == 3);
  CHECK(count("auto", "2,0") == 2);
  CHECK(count("auto", "") == available_cpus(path));
  CHECK_THROWS_AS(count("gpu", ""), LaunchError);
  CHECK(count("5", std::nullopt) == 5);
  CHECK(count("cpu", "2,0") == available_cpus(path));
  CHECK_THROWS_AS(count("xpu", std::nullopt), LaunchError);
}

// The CPUs and memory of ranks, on computers made of files.

/// A computer with CPUs and GPUs.
struct Computer : FakeRoot {
  Computer() = default;
  /// Two sockets, each of two nodes of four cores with two threads; two cores
  /// share a cache. Core c is CPUs c and c + 16; node n has cores 4n to 4n + 3.
  explicit Computer(bool has_gpus) {
    for (int id = 0; id < 32; ++id) {
      const int core = id % 16;
      add_cpu(id, core, core / 8, core / 2 * 2);
    }
    for (int node = 0; node < 4; ++node) {
      const auto cores = [&](int first) {
        return number_list({first, first + 1, first + 2, first + 3});
      };
      write(
          "/sys/devices/system/node/node" + std::to_string(node) + "/cpulist",
          cores(4 * node) + "," + cores(4 * node + 16));
    }
    if (has_gpus) {
      add_gpus();
    }
  }

  void add_cpu(int id, int core, int socket, int cache_of) const {
    const std::string folder =
        "/sys/devices/system/cpu/cpu" + std::to_string(id);
    const auto pair = [](int first, int step) {
      return std::to_string(first) + "," + std::to_string(first + step);
    };
    write(folder + "/topology/thread_siblings_list", pair(core, 16));
    write(folder + "/topology/physical_package_id", std::to_string(socket));
    write(folder + "/cache/index0/type", "Data");
    write(folder + "/cache/index0/level", "1");
    write(folder + "/cache/index0/shared_cpu_list", pair(core, 16));
    write(folder + "/cache/index1/type", "Unified");
    write(folder + "/cache/index1/level", "3");
    write(folder + "/cache/index1/shared_cpu_list", pair(cache_of, 1));
    write(folder + "/cache/index2/type", "Instruction");
    write(folder + "/cache/index2/level", "4");
    write(folder + "/cache/index2/shared_cpu_list", "0-31");
  }

  void add_gpu(
      const std::string& address,
      const std::string& uuid,
      int node,
      int minor = 7) const {
    write(
        "/proc/driver/nvidia/gpus/" + address + "/information",
        "Model: \t\t Some GPU\nGPU UUID: \t " + uuid + "\nDevice Minor: \t " +
            std::to_string(minor));
    write(
        "/sys/bus/pci/devices/" + address + "/numa_node", std::to_string(node));
  }

  // Not in the order of their numbers; nothing at node 0.
  void add_gpus() const {
    add_gpu("0000:c1:00.0", "GPU-dddd", 3);
    add_gpu("0000:3b:00.0", "GPU-bbbb", 1);
    add_gpu("0000:81:00.0", "GPU-cccc", 2);
    add_gpu("0000:07:00.0", "GPU-aaaa", 1);
  }
};

cpu_set_t cpus(const std::string& list) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : parse_number_list(list)) {
    CPU_SET(cpu, &set);
  }
  return set;
}

struct Request {
  Binding binding;
  int ranks;
  std::optional<std::string> devices = std::nullopt;
  std::string allowed = "0-31";
};

Texts places(const Computer& root, const Request& request) {
  Texts texts;
  for (const RankPlace& place : rank_places(
           request.binding,
           request.ranks,
           request.devices,
           cpus(request.allowed),
           root.path())) {
    texts.push_back(describe(place));
  }
  return texts;
}

std::string refusal(const Computer& root, const Request& request) {
  const auto error = launch_error_of([&] { places(root, request); });
  CHECK(error.rfind("2: ", 0) == 0);
  return error;
}

const std::string kNode0 = "CPUs 0-3,16-19, memory of node 0";
const std::string kNode1 = "CPUs 4-7,20-23, memory of node 1";
const std::string kNode2 = "CPUs 8-11,24-27, memory of node 2";
const std::string kNode3 = "CPUs 12-15,28-31, memory of node 3";
const std::string kSocket0 = "CPUs 0-7,16-23, memory of nodes 0-1";
const std::string kSocket1 = "CPUs 8-15,24-31, memory of nodes 2-3";

TEST_CASE("binding: ranks are near their GPUs", "[unit]") {
  const Computer root(true);
  CHECK(
      places(root, {Binding::kNode, 4}) ==
      Texts{kNode1, kNode1, kNode2, kNode3});
  CHECK(
      places(root, {Binding::kSocket, 4}) ==
      Texts{kSocket0, kSocket0, kSocket1, kSocket1});
  CHECK(
      places(root, {Binding::kExclusive, 4}) ==
      Texts{
          "CPUs 4-5,20-21, memory of node 1",
          "CPUs 6-7,22-23, memory of node 1",
          kNode2,
          kNode3});
  CHECK(
      places(root, {Binding::kCoreComplex, 4}) ==
      Texts{
          "CPUs 4-5,20-21, memory of node 1",
          "CPUs 6-7,22-23, memory of node 1",
          "CPUs 8-9,24-25, memory of node 2",
          "CPUs 12-13,28-29, memory of node 3"});
}

TEST_CASE("binding: GPUs that no rank uses keep their share", "[unit]") {
  const Computer root(true);
  CHECK(
      places(root, {Binding::kExclusive, 1}) ==
      Texts{"CPUs 4-5,20-21, memory of node 1"});
  CHECK(places(root, {Binding::kExclusive, 1, "0"}) == Texts{kNode1});
}

TEST_CASE("binding: the selection of devices says whose GPU it is", "[unit]") {
  const Computer root(true);
  CHECK(places(root, {Binding::kNode, 2, "3,2"}) == Texts{kNode3, kNode2});
  CHECK(
      places(root, {Binding::kNode, 2, "GPU-c,GPU-aaaa"}) ==
      Texts{kNode2, kNode1});
  CHECK_THAT(
      refusal(root, {Binding::kNode, 2, "2,9,3"}),
      Has("rank 1 has no GPU (1 visible, 2 ranks)"));
  CHECK_THAT(
      refusal(root, {Binding::kNode, 5}),
      Has("rank 4 has no GPU (4 visible, 5 ranks)"));
  for (const std::string name : {"MIG-1234", "GPU-eeee"}) {
    CHECK_THAT(
        refusal(root, {Binding::kNode, 1, name}),
        Has("the GPU of '" + name + "' is unknown"));
  }
}

TEST_CASE("binding: without GPUs, ranks spread over the nodes", "[unit]") {
  const Computer root(false);
  CHECK(places(root, {Binding::kNode, 2}) == Texts{kNode0, kNode2});
  CHECK(
      places(root, {Binding::kNode, 4}) ==
      Texts{kNode0, kNode1, kNode2, kNode3});
  CHECK(places(root, {Binding::kSocket, 2}) == Texts{kSocket0, kSocket1});
  CHECK(
      places(root, {Binding::kExclusive, 6}) ==
      Texts{
          "CPUs 0-1,16-17, memory of node 0",
          "CPUs 2-3,18-19, memory of node 0",
          kNode1,
          "CPUs 8-9,24-25, memory of node 2",
          "CPUs 10-11,26-27, memory of node 2",
          kNode3});
  CHECK(
      places(root, {Binding::kCoreComplex, 4})[1] ==
      "CPUs 4-5,20-21, memory of node 1");
  CHECK_THAT(
      refusal(root, {Binding::kExclusive, 17}),
      Has("4 core(s) of NUMA node 0 for 5 ranks"));
  root.add_gpus();
  CHECK(places(root, {Binding::kNode, 2, ""}) == Texts{kNode0, kNode2});
}

TEST_CASE("binding: shares are even and part whole cores", "[unit]") {
  const Computer root(true);
  CHECK(
      places(root, {Binding::kShare, 3}) ==
      Texts{
          "CPUs 0-5,16-21, memory of nodes 0-1",
          "CPUs 6-10,22-26, memory of nodes 1-2",
          "CPUs 11-15,27-31, memory of nodes 2-3"});
  // More ranks than cores divide the threads, and then share them.
  const Texts threads = places(root, {Binding::kShare, 31});
  CHECK(threads[0] == "CPUs 0,16, memory of node 0");
  CHECK(threads[1] == "CPU 1, memory of node 0");
  CHECK(threads[2] == "CPU 17, memory of node 0");
  CHECK(threads[30] == "CPU 31, memory of node 3");
  const Texts shared = places(root, {Binding::kShare, 64});
  CHECK(shared[0] == "CPU 0, memory of node 0");
  CHECK(shared[1] == "CPU 0, memory of node 0");
  CHECK(shared[63] == "CPU 31, memory of node 3");
}

TEST_CASE("binding: only CPUs that may be used are given out", "[unit]") {
  const Computer root(false);
  const std::string allowed = "2-5,18,20-21,12";
  CHECK(
      places(root, {Binding::kNode, 3, std::nullopt, allowed}) ==
      Texts{
          "CPUs 2-3,18, memory of node 0",
          "CPUs 4-5,20-21, memory of node 1",
          "CPU 12, memory of node 3"});
  CHECK(
      places(root, {Binding::kShare, 2, std::nullopt, allowed}) ==
      Texts{
          "CPUs 2-4,18,20, memory of nodes 0-1",
          "CPUs 5,12,21, memory of nodes 1,3"});
  // The complex with more of them comes first.
  CHECK(
      places(root, {Binding::kCoreComplex, 1, std::nullopt, "1,2-3,18"}) ==
      Texts{"CPUs 2-3,18, memory of node 0"});
  root.add_gpus();
  CHECK_THAT(
      refusal(root, {Binding::kNode, 4, std::nullopt, allowed}),
      Has("a GPU is on NUMA node 2, whose CPUs are not available "
          "to ddprun (available: CPUs 2-5,12,18,20-21)"));
}

TEST_CASE("binding: a GPU that cannot be opened is not counted", "[unit]") {
  const Computer root(true);
  root.add_gpu("0000:06:00.0", "GPU-eeee", 0, 3);
  const Request request{Binding::kNode, 1, "0"};
  const auto with = places(root, request);
  std::filesystem::create_directories(root.path() + "/dev");
  const auto device = root.path() + "/dev/nvidia3";
  std::filesystem::create_symlink(device, device); // to itself
  CHECK(places(root, request) != with);
  CHECK(places(root, request) == places(root, {Binding::kNode, 1, "GPU-aaaa"}));
}

TEST_CASE("binding: what Linux does not tell is said", "[unit]") {
  const Computer empty;
  for (const Binding binding : {Binding::kShare, Binding::kNode}) {
    CHECK_THAT(
        refusal(empty, {binding, 2}),
        Has("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list "
            "cannot be read"));
  }
  // A virtual machine: one node without a number, unknown caches.
  const Computer plain;
  const std::string cpu = "/sys/devices/system/cpu/cpu";
  plain.write(cpu + "0/topology/thread_siblings_list", "0");
  plain.write(cpu + "1/topology/thread_siblings_list", "1");
  plain.write(cpu + "1/topology/physical_package_id", "-1");
  plain.add_gpu("0000:07:00.0", "GPU-aaaa", -1);
  CHECK(
      places(plain, {Binding::kNode, 1, std::nullopt, "0-1"}) ==
      Texts{"CPUs 0-1, memory of node 0"});
  CHECK_THAT(
      refusal(plain, {Binding::kCoreComplex, 1, std::nullopt, "0-1"}),
      Has("cpu0/cache does not list them"));
}

TEST_CASE("binding: a process moves to its place", "[unit]") {
  const cpu_set_t allowed = allowed_cpus();
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &allowed)) {
    --last;
  }
  RankPlace place;
  CHECK(apply_place(place) == EINVAL); // no CPU
  CPU_SET(last, &place.cpus);
  place.memory_nodes = {0};
  Process moved([&] {
    const int error = apply_place(place);
    const cpu_set_t now = allowed_cpus();
    int mode = -1;
    unsigned long mask[16] = {};
    const bool told =
        syscall(SYS_get_mempolicy, &mode, mask, 8 * sizeof mask, 0, 0) == 0;
    const bool near = mode == MPOL_PREFERRED && mask[0] == 1;
    return error != 0 ? 1 : !CPU_EQUAL(&now, &place.cpus) ? 2 : told && !near;
  });
  CHECK(moved.finish(kLong).exit_code == 0);
}

} // namespace ddp::test::processors_test
