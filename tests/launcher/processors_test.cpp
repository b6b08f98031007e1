// CPUs and GPUs that ranks may use.
#include <tests/support/catch_plain.h>

#include <common/cpu_quota.h>
#include <common/processors.h>
#include <common/scheduler/launch_error.h>
#include <launcher/cli/options/option_values.h>
#include <tests/launcher/fake_root.h>

namespace ddp::test::processors_test {

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

TEST_CASE("a control group of version 2 bounds the CPUs", "[unit]") {
  const FakeRoot root;
  CHECK(std::isinf(cpu_quota(root.path())));
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
  // As a container sees it: the path is the host's.
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
  CHECK_THROWS_AS(count("xpu", std::nullopt), LaunchError);
}

} // namespace ddp::test::processors_test
